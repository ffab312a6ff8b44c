package io.bloomgate;

import java.util.List;
import java.util.function.BiConsumer;

/** The options of a guard, checked. */
final class GuardOptions<V> {
    final Codec<V> codec;
    long ttlMs = 60_000;
    long absentTtlMs = 10_000;
    long leaseMs = 3_000;
    long waitMs = 3_000;
    int attempts = 3;
    long failSafeMs;
    Long softTimeoutMs;
    double beta = 1;
    boolean feed;
    long patienceMs = 30_000;
    byte[] prefix;
    List<byte[]> announceTo = List.of();
    Durability durability = Durability.NONE;
    BiConsumer<Event, Integer> listener;

    GuardOptions(Codec<V> codec) {
        this.codec = codec;
    }
}
