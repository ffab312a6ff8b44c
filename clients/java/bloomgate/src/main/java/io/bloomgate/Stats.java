package io.bloomgate;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A filter's kind and fill (BF.STATS). Fields that do not apply to a kind are null.
 *
 * @param errorRate the false positive rate that was requested
 * @param errorRateNow the estimated current false positive rate
 * @param items the number of items that were added
 * @param itemsEstimated the number of items, estimated from the set bits
 * @param capacity the number of items that it holds before it grows
 * @param sizeBytes its size in memory
 * @param pendingBytes the size of pending adds
 * @param itemsDeleted the number of deleted items
 * @param roomForDeleted how many more items can be deleted
 * @param windowS the window in seconds
 * @param sliding whether adding an item again restarts its window
 * @param buckets the buckets of a filter that forgets, the oldest first
 */
public record Stats(
        String kind,
        String layout,
        String hash,
        double errorRate,
        double errorRateNow,
        long items,
        long itemsEstimated,
        long capacity,
        long sizeBytes,
        long pendingBytes,
        List<Layer> layers,
        @Nullable Long itemsDeleted,
        @Nullable Long roomForDeleted,
        @Nullable Long windowS,
        boolean sliding,
        List<Bucket> buckets) {

    /**
     * One layer of a filter.
     *
     * @param capacity the number of items that it holds before it grows
     * @param sizeBytes its size in memory
     * @param hashes the number of bits per item that are set
     * @param items its number of items; null in a plan
     * @param fill its fill ratio, the share of set bits; null in a plan
     */
    public record Layer(long capacity, long sizeBytes, long hashes, @Nullable Long items, @Nullable Double fill) {}

    /**
     * One bucket of a filter that forgets.
     *
     * @param slot its number
     * @param items its number of items
     * @param beginMs its start in milliseconds since 1970; null with ROLLING
     * @param endMs its end in milliseconds since 1970; null with ROLLING
     */
    public record Bucket(long slot, long items, @Nullable Long beginMs, @Nullable Long endMs) {}
}
