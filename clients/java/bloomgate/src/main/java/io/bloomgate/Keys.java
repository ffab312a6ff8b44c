package io.bloomgate;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** The names of a guard's keys. Names are byte strings; for comparisons they are Latin-1 strings with one character per byte. */
final class Keys {
    private Keys() {}

    static byte[] joined(byte[]... parts) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            bytes.writeBytes(part);
        }
        return bytes.toByteArray();
    }

    static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    static String latin(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    /**
     * Returns a prefix of key names in the cluster slot of a filter. Its hash tag is the text between the first `{` and the next `}`, or
     * else the whole name.
     */
    private static byte[] inSlotOf(byte[] filter) {
        String name = latin(filter);
        int opened = name.indexOf('{');
        int closed = opened < 0 ? -1 : name.indexOf('}', opened + 1);
        if (closed > opened + 1) {
            return filter;
        }
        if (name.contains("}")) {
            throw new IllegalArgumentException("no other key shares the slot of " + Items.text(filter)
                    + ": rename the filter, or, without a feed, pass a prefix");
        }
        return joined(ascii("{"), filter, ascii("}"));
    }

    /** Returns the prefix of cache keys. */
    static byte[] cachePrefix(byte[] filter) {
        return joined(inSlotOf(filter), ascii(":"));
    }

    /** Returns the name under which a filter is filled. No cache key has this name. */
    static byte[] fillingName(byte[] filter) {
        return joined(inSlotOf(filter), ascii("~filling"));
    }

    /** One row of the table. Ids with equal bytes, such as 7 and "7", name one row. */
    static final class Row {
        /** The bytes of the item, for comparisons. */
        final String id;
        final byte[] item;
        final byte[] cacheKey;

        Row(Object id, byte[] prefix) {
            item = Items.bytes(id);
            this.id = latin(item);
            cacheKey = joined(prefix, item);
        }
    }

    /** The keys that `bloomgate follow` uses for a filter; crates/follow/src/config.rs defines their names. */
    static final class FeedKeys {
        final byte[] heartbeat;
        final byte[] inFlight;
        private final String base;

        FeedKeys(byte[] filter) {
            base = latin(inSlotOf(filter));
            heartbeat = ascii(base + ":feed");
            inFlight = ascii(base + ":feed:open");
        }

        /** Whether a key belongs to the follower. Names that begin with the heartbeat's name and a colon are reserved for it. */
        boolean own(byte[] cacheKey) {
            String key = latin(cacheKey);
            return key.equals(base + ":feed") || key.startsWith(base + ":feed:");
        }

        /**
         * Whether a follower may delete keys of a guard, according to its heartbeat: a time, and a line for each template of its keys. `=`
         * precedes the text before an item, `^` the prefix of other keys. The module parses it in the same way.
         */
        static boolean deletes(String heartbeat, String prefix) {
            List<String> rules = heartbeat.lines().skip(1).toList();
            return rules.isEmpty() || rules.stream().anyMatch(rule -> {
                String text = rule.isEmpty() ? "" : rule.substring(1);
                return rule.startsWith("=") ? prefix.equals(text)
                        : !rule.startsWith("^") || prefix.startsWith(text) || text.startsWith(prefix);
            });
        }
    }
}
