package io.bloomgate;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** The outcome of a fetch of a row: a reply of BF.FETCH, or an error. `value` is set for hit and stale, `token` for load and stale. */
record Fetched(@Nullable Event word, byte @Nullable [] value, byte @Nullable [] token, @Nullable RuntimeException error) {
    static Fetched failed(RuntimeException error) {
        return new Fetched(null, null, null, error);
    }

    /** Returns a loaded row as an answer of the server; null if the row does not exist. */
    static Fetched loaded(byte @Nullable [] row) {
        return new Fetched(row == null ? Event.ABSENT : Event.HIT, row, null, null);
    }

    static Fetched parse(@Nullable Object reply) {
        if (reply instanceof RuntimeException error) {
            // CLIENT UNBLOCK ended the wait.
            return String.valueOf(error.getMessage()).startsWith("UNBLOCKED") ? new Fetched(Event.WAIT, null, null, null) : failed(error);
        }
        if (reply instanceof List<?> words && !words.isEmpty()) {
            byte[] second = bytes(words, 1);
            byte[] third = bytes(words, 2);
            String word = Replies.text(words.get(0));
            if (word.equals("absent")) {
                return new Fetched(Event.ABSENT, null, null, null);
            } else if (word.equals("hit") && second != null) {
                return new Fetched(Event.HIT, second, null, null);
            } else if (word.equals("stale") && second != null && third != null) {
                return new Fetched(Event.STALE, second, third, null);
            } else if (word.equals("load") && second != null) {
                return new Fetched(Event.LOAD, null, second, null);
            } else if (word.equals("wait") && words.size() > 1 && words.get(1) instanceof Long) {
                return new Fetched(Event.WAIT, null, null, null);
            } else if (word.equals("failed") && words.size() > 1 && words.get(1) instanceof Long) {
                return new Fetched(Event.FAILED, null, null, null);
            }
        }
        return failed(new IllegalStateException("BF.FETCH has answered " + Replies.text(reply)));
    }

    private static byte @Nullable [] bytes(List<?> words, int index) {
        return index < words.size() && words.get(index) instanceof byte[] bytes ? bytes : null;
    }

    /** Returns an answer that has a value or is `absent` without its lease, to share with other callers. */
    Fetched withoutToken() {
        return token == null ? this : new Fetched(Event.HIT, value, null, null);
    }
}
