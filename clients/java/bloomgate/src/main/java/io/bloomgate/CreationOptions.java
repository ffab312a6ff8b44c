package io.bloomgate;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Options of a new filter. The server checks the values. {@code docs/kinds.md} of the project describes the kinds of filters. */
public final class CreationOptions {
    private final List<String> words = new ArrayList<>();

    private CreationOptions() {}

    /** Returns the default options. */
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

    /** Sets the factor from one layer's capacity to the next, 0 to 32768. With 0 the filter does not grow. */
    public CreationOptions expansion(int factor) {
        return with("EXPANSION", String.valueOf(factor));
    }

    /** Makes a full filter refuse items instead of growing. */
    public CreationOptions nonscaling() {
        return with("NONSCALING");
    }

    /** Sets the seed: 0 to 2^32 - 1, or 32 hexadecimal digits for SipHash. Filters with the same seed can be merged. */
    public CreationOptions seed(String seed) {
        return with("SEED", seed);
    }

    /** Sets the layout: {@code native} or {@code redisbloom}. */
    public CreationOptions layout(String layout) {
        return with("LAYOUT", layout);
    }

    /** Sets the hash function: {@code murmur3}, or {@code siphash} for untrusted items and for deletes. */
    public CreationOptions hash(String hash) {
        return with("HASH", hash);
    }

    /** Makes a filter that forgets items after a time in whole seconds (WINDOW). */
    public CreationOptions window(Duration time) {
        return with("WINDOW", String.valueOf(time.toSeconds()));
    }

    /** Keeps at least the last {@code capacity} new items. */
    public CreationOptions rolling() {
        return with("ROLLING");
    }

    /** Sets the maximum number of buckets of a filter that forgets, 3 to 64. */
    public CreationOptions buckets(int most) {
        return with("BUCKETS", String.valueOf(most));
    }

    /** Restarts an item's window when it is added again. */
    public CreationOptions sliding() {
        return with("SLIDING");
    }

    /**
     * Makes a cuckoo filter: unlimited deletes in little more memory than bits. Every add stores a copy of the item, up to four, and
     * a delete removes one: delete only what was added.
     */
    public CreationOptions cuckoo() {
        return with("CUCKOO");
    }

    /** Uses counters instead of bits: four times the memory, unlimited deletes. */
    public CreationOptions counting() {
        return with("COUNTING");
    }

    /** Sets the key's time to live if the filter is created. */
    public CreationOptions expire(Duration time) {
        return with("PX", String.valueOf(time.toMillis()));
    }
}
