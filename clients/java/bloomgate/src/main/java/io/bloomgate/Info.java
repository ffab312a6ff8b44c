package io.bloomgate;

import org.jspecify.annotations.Nullable;

/**
 * A filter's capacity and contents (BF.INFO).
 *
 * @param capacity the number of items that it holds before it grows
 * @param sizeBytes its size in memory, including its header
 * @param layers the number of layers
 * @param items the number of items that were added
 * @param expansion the factor from one layer's capacity to the next; null if the filter does not grow
 */
public record Info(long capacity, long sizeBytes, long layers, long items, @Nullable Long expansion) {}
