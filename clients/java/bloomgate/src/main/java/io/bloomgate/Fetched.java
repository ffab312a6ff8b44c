package io.bloomgate;

import java.util.List;

/**
 * What is known of a row after a fetch: a reply of BF.FETCH, or the error in its place. `value` comes with hit and stale, `token` with
 * load and stale.
 */
record Fetched(Event word, byte[] value, byte[] token, RuntimeException error) {
    static Fetched failed(RuntimeException error) {
        return new Fetched(null, null, null, error);
    }

    static Fetched parse(Object reply) {
        if (reply instanceof RuntimeException error) {
            return failed(error);
        }
        if (reply instanceof List<?> words && !words.isEmpty()) {
            Object second = words.size() > 1 ? words.get(1) : null;
            Object third = words.size() > 2 ? words.get(2) : null;
            switch (Replies.text(words.get(0))) {
                case "absent":
                    return new Fetched(Event.ABSENT, null, null, null);
                case "hit":
                    if (second instanceof byte[] value) {
                        return new Fetched(Event.HIT, value, null, null);
                    }
                    break;
                case "stale":
                    if (second instanceof byte[] value && third instanceof byte[] token) {
                        return new Fetched(Event.STALE, value, token, null);
                    }
                    break;
                case "load":
                    if (second instanceof byte[] token) {
                        return new Fetched(Event.LOAD, null, token, null);
                    }
                    break;
                case "wait":
                    if (second instanceof Long) {
                        return new Fetched(Event.WAIT, null, null, null);
                    }
                    break;
                default:
            }
        }
        return failed(new IllegalStateException("BF.FETCH has answered " + Replies.text(reply)));
    }

    /** Returns the answer as those get it that do not load. */
    Fetched withoutToken() {
        if (token == null) {
            return this;
        }
        return new Fetched(value == null ? Event.WAIT : Event.HIT, value, null, null);
    }
}
