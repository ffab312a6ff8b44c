package io.bloomgate;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** Converts items to bytes, and splits batches of any size into commands. */
final class Items {
    /** The maximum number of items in one command. Larger commands gain nothing, and delay other clients of the server. */
    static final int COMMAND_ITEMS = 500;

    /** The maximum size of one command's items in bytes, unless it has one item. */
    static final int COMMAND_BYTES = 1 << 20;

    /** The number of commands that are sent before their replies are awaited. */
    static final int WINDOW_COMMANDS = 16;

    private Items() {}

    /** Converts an item to the bytes that the filter hashes: bytes, text in UTF-8, or a whole number in decimal. */
    static byte[] bytes(Object item) {
        if (item instanceof byte[] bytes) {
            return bytes;
        }
        if (item instanceof CharSequence text) {
            return utf8(text);
        }
        if (item instanceof Long || item instanceof Integer || item instanceof Short || item instanceof Byte
                || item instanceof BigInteger) {
            return item.toString().getBytes(StandardCharsets.US_ASCII);
        }
        String found = item == null ? "null" : item.getClass().getName();
        throw new IllegalArgumentException("an item must be a String, a byte[] or a whole number, not " + found);
    }

    /** Encodes a text. String.getBytes would write `?` for an unpaired surrogate, so that different items would have equal bytes. */
    private static byte[] utf8(CharSequence text) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw new IllegalArgumentException("an item has half of a surrogate pair, which UTF-8 cannot encode", error);
        }
    }

    /** Returns a key or an item as text, for a message. */
    static String text(byte[] bytes) {
        return '"' + new String(bytes, StandardCharsets.UTF_8) + '"';
    }

    /** Splits items into windows of commands. Reads ahead by at most one window. */
    static final class Windows {
        private final Iterator<?> items;
        private byte[] next;

        Windows(Iterable<?> items) {
            this.items = items.iterator();
        }

        boolean hasNext() {
            return next != null || items.hasNext();
        }

        /** Returns the items of each command of the next window. */
        List<List<byte[]>> next() {
            List<List<byte[]>> window = new ArrayList<>();
            List<byte[]> command = null;
            int size = 0;
            while (hasNext()) {
                if (next == null) {
                    next = bytes(items.next());
                }
                if (command == null || command.size() >= COMMAND_ITEMS || size + next.length > COMMAND_BYTES) {
                    if (window.size() == WINDOW_COMMANDS) {
                        break;
                    }
                    command = new ArrayList<>();
                    window.add(command);
                    size = 0;
                }
                command.add(next);
                size += next.length;
                next = null;
            }
            return window;
        }
    }
}
