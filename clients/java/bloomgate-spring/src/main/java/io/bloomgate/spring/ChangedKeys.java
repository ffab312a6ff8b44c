package io.bloomgate.spring;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** The keys that one transaction, or one call of a method, has changed in each cache. */
final class ChangedKeys {
    private final Map<GuardCache, Map<String, Object>> ids = new LinkedHashMap<>();
    private RuntimeException failure;

    /** Returns the bytes of an id as a string, for comparisons: 7 and "7" are one id. */
    private static String text(Object id) {
        byte[] bytes = id instanceof byte[] same ? same : id.toString().getBytes(StandardCharsets.UTF_8);
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    /**
     * Announces the change of a key unless it is already announced. The key is recorded first, because a failed announcement may have
     * arrived and must be confirmed, too.
     */
    void announce(GuardCache cache, Object id) {
        check();
        if (ids.computeIfAbsent(cache, any -> new HashMap<>()).putIfAbsent(text(id), id) == null) {
            try {
                cache.announce(id);
            } catch (RuntimeException error) {
                failure = error;
                throw error;
            }
        }
    }

    /** Throws the error of a failed announcement, which an error handler of the program may have swallowed. */
    void check() {
        if (failure != null) {
            throw failure;
        }
    }

    boolean contains(GuardCache cache, Object id) {
        Map<String, Object> own = ids.get(cache);
        return own != null && own.containsKey(text(id));
    }

    /** Begins to confirm all changes, with one call for each cache. Does not wait: the caller may hold a connection to a database. */
    void confirm(boolean isOutcomeKnown) {
        ids.forEach((cache, own) -> cache.confirmLater(own.values(), isOutcomeKnown));
        ids.clear();
    }
}
