package io.bloomgate;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An error of a filter or a guard. Errors of the server that have no class here are Lettuce's, and wrong arguments are
 * {@link IllegalArgumentException}s.
 */
public class BloomgateException extends RuntimeException implements Cloneable {
    private List<@Nullable Boolean> answers = List.of();

    BloomgateException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }

    /** Returns what is known of a batch that failed: true or false for each item, or null where the answer is unknown. Empty for others. */
    public List<@Nullable Boolean> answers() {
        return answers;
    }

    /** Returns a copy with the trace of this thread. */
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

    /**
     * The server lacks one of bloomgate's commands, or an option of one: it has not loaded the module, or an older one than this library
     * needs, or another one with BF.* commands.
     */
    public static final class ModuleMissing extends BloomgateException {
        ModuleMissing(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** There is no filter at this key. */
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

    /** A filter that does not grow has reached its capacity. Items before the first null of {@link #answers()} were added. */
    public static final class FilterFull extends BloomgateException {
        FilterFull(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The filter is still being loaded: the last BF.LOADCHUNK has not arrived yet. */
    public static final class FilterLoading extends BloomgateException {
        FilterLoading(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /** The server did not answer in time, or a write did not reach the required replicas, or the disk, in time. */
    public static final class TimedOut extends BloomgateException {
        TimedOut(String message) {
            super(message, null);
        }
    }

    /** There is no connection to the server, or it was lost before the reply. The command is not repeated. */
    public static final class Disconnected extends BloomgateException {
        Disconnected(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    /**
     * A row has no cached value, and its last load failed: the database is not asked again before the back-off ends. Or another caller's
     * load has thrown an {@link Error}, which is the cause.
     */
    public static final class LoadFailed extends BloomgateException {
        LoadFailed(byte[] id, @Nullable Throwable cause) {
            super("the row " + Items.text(id) + " has no cached value, and its last load has failed", cause);
        }
    }

    /**
     * A write was committed, but the server did not answer its confirmation in time. Readers may get the old rows for up to one
     * lease and one time to live. {@link Guard#confirm} with the ids tries again.
     */
    public static final class Unconfirmed extends BloomgateException {
        private final List<byte[]> ids;

        Unconfirmed(List<byte[]> ids, @Nullable Throwable cause) {
            super("the change of " + ids.size() + " row(s) could not be confirmed", cause);
            this.ids = ids;
        }

        /** Returns the ids that are not confirmed, as the bytes of their items. */
        public List<byte[]> ids() {
            return ids;
        }
    }

    /** Returns the error of this package that an error of the server stands for, or else the error itself. */
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
