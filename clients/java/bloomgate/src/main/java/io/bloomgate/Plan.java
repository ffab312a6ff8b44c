package io.bloomgate;

import java.util.List;

/**
 * The size that a filter would have (BF.PLAN).
 *
 * @param errorRate the false positive rate
 * @param capacity for how many items it would have room
 * @param sizeBytes its size in memory
 * @param bitsPerItem its size for each item
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
