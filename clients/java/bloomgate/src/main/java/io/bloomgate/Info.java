package io.bloomgate;

import org.jspecify.annotations.Nullable;

/**
 * A filter's capacity and contents (BF.INFO).
 *
 * @param capacity for how many items it has room
 * @param sizeBytes its size in memory, fields and bits
 * @param layers how many layers it has
 * @param items how many items were added
 * @param expansion the factor from one layer's capacity to the next; null if the filter does not grow
 */
public record Info(long capacity, long sizeBytes, long layers, long items, @Nullable Long expansion) {}
