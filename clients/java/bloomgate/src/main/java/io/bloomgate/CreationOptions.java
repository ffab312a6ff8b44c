package io.bloomgate;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** How a filter is created. {@code docs/kinds.md} of the project describes the kinds. The server checks the values. */
public final class CreationOptions {
    private final List<String> words = new ArrayList<>();

    private CreationOptions() {}

    /**
     * Returns the default options.
     *
     * @return options to add to
     */
    public static CreationOptions defaults() {
        return new CreationOptions();
    }

    private CreationOptions with(String... added) {
        words.addAll(List.of(added));
        return this;
    }

    List<String> words() {
        return words;
    }

    /**
     * Sets the factor from one layer's capacity to the next.
     *
     * @param factor 0 to 32768; with 0 the filter does not grow
     * @return this
     */
    public CreationOptions expansion(int factor) {
        return with("EXPANSION", String.valueOf(factor));
    }

    /**
     * Makes a filter that refuses items when it is full, instead of growing.
     *
     * @return this
     */
    public CreationOptions nonscaling() {
        return with("NONSCALING");
    }

    /**
     * Sets the seed. Filters with the same seed can be merged.
     *
     * @param seed 0 to 2^32 - 1; for SipHash 32 hexadecimal digits
     * @return this
     */
    public CreationOptions seed(String seed) {
        return with("SEED", seed);
    }

    /**
     * Sets the layout.
     *
     * @param layout {@code native} or {@code redisbloom}
     * @return this
     */
    public CreationOptions layout(String layout) {
        return with("LAYOUT", layout);
    }

    /**
     * Sets the hash function.
     *
     * @param hash {@code murmur3}, or {@code siphash}, which is for untrusted items and allows deletes
     * @return this
     */
    public CreationOptions hash(String hash) {
        return with("HASH", hash);
    }

    /**
     * Makes a filter that forgets.
     *
     * @param time after which time an item is forgotten, in whole seconds
     * @return this
     */
    public CreationOptions window(Duration time) {
        return with("WINDOW", String.valueOf(time.toSeconds()));
    }

    /**
     * Makes a filter that finds at least the last items, as many as its capacity.
     *
     * @return this
     */
    public CreationOptions rolling() {
        return with("ROLLING");
    }

    /**
     * Sets the most buckets of a filter that forgets.
     *
     * @param most 3 to 64
     * @return this
     */
    public CreationOptions buckets(int most) {
        return with("BUCKETS", String.valueOf(most));
    }

    /**
     * Makes adding an item again restart its window.
     *
     * @return this
     */
    public CreationOptions sliding() {
        return with("SLIDING");
    }

    /**
     * Makes a filter with counters instead of bits: four times the memory, and any number of deletes.
     *
     * @return this
     */
    public CreationOptions counting() {
        return with("COUNTING");
    }

    /**
     * Sets the key's time to live, if the filter is created.
     *
     * @param time the time to live
     * @return this
     */
    public CreationOptions expire(Duration time) {
        return with("PX", String.valueOf(time.toMillis()));
    }
}
