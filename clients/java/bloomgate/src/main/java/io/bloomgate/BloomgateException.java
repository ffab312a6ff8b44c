package io.bloomgate;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** An error of a filter or a guard. Other errors of the server are Lettuce's. Invalid arguments throw {@link IllegalArgumentException}. */
public class BloomgateException extends RuntimeException implements Cloneable {
    private List<@Nullable Boolean> answers = List.of();

    BloomgateException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }

    /** Returns the answers of a failed batch in the order of its items, with null for an unknown answer. Empty for other errors. */
    public List<@Nullable Boolean> answers() {
        return answers;
    }

    /** Returns a copy with the stack trace of this thread. */
    BloomgateException here() {
        try {
            return (BloomgateException) ((BloomgateException) clone()).fillInStackTrace();
        } catch (CloneNotSupportedException impossible) {
            return this;
        }
    }

    BloomgateException withAnswers(List<@Nullable Boolean> known) {
        answers = known;
        return this;
    }

    /** The module is missing or older than this client, or another module provides BF.*. */
    public static final class ModuleMissing extends BloomgateException {
        ModuleMissing(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The key does not exist. */
    public static final class FilterMissing extends BloomgateException {
        FilterMissing(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The key exists already. */
    public static final class FilterExists extends BloomgateException {
        FilterExists(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** A filter that does not grow is full. Items before the first null of {@link #answers()} were added. */
    public static final class FilterFull extends BloomgateException {
        FilterFull(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The filter is still being loaded: its last BF.LOADCHUNK has not arrived. */
    public static final class FilterLoading extends BloomgateException {
        FilterLoading(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The server did not answer in time, or the required replicas or the disk did not acknowledge a write in time. */
    public static final class TimedOut extends BloomgateException {
        TimedOut(String message) {
            super(message, null);
        }
    }

    /** No connection to the server, or the connection was lost before the reply. The command is not repeated. */
    public static final class Disconnected extends BloomgateException {
        Disconnected(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /**
     * The last load of a row failed, and no value is cached: the row is not loaded again until the back-off ends. Or another caller's load
     * threw an {@link Error}, which is the cause.
     */
    public static final class LoadFailed extends BloomgateException {
        LoadFailed(byte[] id, @Nullable Throwable cause) {
            super("the row " + Items.text(id) + " has no cached value, and its last load failed", cause);
        }
    }

    /**
     * A write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to the longest load and
     * a time to live. {@link Guard#confirm} with the ids tries again.
     */
    public static final class Unconfirmed extends BloomgateException {
        private final List<byte[]> ids;

        Unconfirmed(List<byte[]> ids, @Nullable Throwable cause) {
            super("the change of " + ids.size() + " row(s) could not be confirmed", cause);
            this.ids = ids;
        }

        /** Returns the unconfirmed ids as the bytes of their items. */
        public List<byte[]> ids() {
            return ids;
        }
    }

    /** Converts an error of the server to the error of this package, if there is one. */
    static RuntimeException named(RuntimeException error, byte[] key) {
        String text = String.valueOf(error.getMessage());
        if (text.startsWith("ERR ")) {
            text = text.substring(4);
        }
        String name = Items.text(key);
        if (text.contains("non scaling filter is full")) {
            return new FilterFull(name + ": the filter is full", error);
        }
        if (text.contains("filter is still being loaded")) {
            return new FilterLoading(name + ": the filter is still being loaded", error);
        }
        if (text.equals("not found")) {
            return new FilterMissing(name + ": there is no such filter", error);
        }
        if (text.equals("item exists")) {
            return new FilterExists(name + ": there is a filter already", error);
        }
        return error;
    }
}
