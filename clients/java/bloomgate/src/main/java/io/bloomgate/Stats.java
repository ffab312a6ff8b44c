package io.bloomgate;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A filter's kind and fill (BF.STATS). What does not apply to a kind is null.
 *
 * @param errorRate the false positive rate for which it was made
 * @param errorRateNow the estimated share of absent items that are found
 * @param items how many items were added
 * @param itemsEstimated how many there are, by the bits that are set
 * @param capacity for how many items it has room
 * @param sizeBytes its size in memory
 * @param pendingBytes the size of adds that are pending
 * @param itemsDeleted how many items were deleted
 * @param roomForDeleted how many more may be deleted
 * @param windowS after how many seconds items are forgotten
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
     * @param capacity for how many items it has room
     * @param sizeBytes its size in memory
     * @param hashes how many bits stand for an item
     * @param items how many items it has; null in a plan
     * @param fill the share of its bits that are set; null in a plan
     */
    public record Layer(long capacity, long sizeBytes, long hashes, @Nullable Long items, @Nullable Double fill) {}

    /**
     * One bucket of a filter that forgets.
     *
     * @param slot its number
     * @param items how many items it has
     * @param beginMs its beginning in milliseconds since 1970; null in a filter with ROLLING
     * @param endMs its end; null in a filter with ROLLING
     */
    public record Bucket(long slot, long items, @Nullable Long beginMs, @Nullable Long endMs) {}
}
