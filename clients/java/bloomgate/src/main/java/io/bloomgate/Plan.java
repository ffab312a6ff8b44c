package io.bloomgate;

import java.util.List;

/**
 * The planned size of a filter (BF.PLAN).
 *
 * @param errorRate the false positive rate
 * @param capacity the number of items that it holds before it grows
 * @param sizeBytes its size in memory
 * @param bitsPerItem its size divided by the number of items
 */
public record Plan(
        String kind,
        String layout,
        String hash,
        double errorRate,
        long capacity,
        long sizeBytes,
        double bitsPerItem,
        List<Stats.Layer> layers) {}
