package io.bloomgate.spring;

/** What a cache does if its guard answers that there is no row. */
public enum Trust {
    /**
     * Calls the method all the same, and counts and logs each row that it returns: a contradiction, because an id is missing from the filter, or
     * the key is not the id that the filter has.
     */
    OBSERVE,
    /**
     * Returns an empty {@code Optional}, an empty collection, null from a method that is annotated as nullable, or a future of these. Reactive
     * types are empty. Calls methods of other types, which need not expect null.
     */
    FILTER
}
