package io.bloomgate.spring;

/** The behavior of a cache if its guard reports a row absent. */
public enum Trust {
    /**
     * Calls the method anyway, and counts and logs each row that it returns. Such a row is a contradiction: its id is missing from the
     * filter, or the cache's key differs from the id in the filter.
     */
    OBSERVE,
    /**
     * Returns an empty {@code Optional}, an empty collection, null from a method that is annotated as nullable, or a future of these.
     * Reactive types are empty. Methods of other types are called, because their callers may not expect null.
     */
    FILTER
}
