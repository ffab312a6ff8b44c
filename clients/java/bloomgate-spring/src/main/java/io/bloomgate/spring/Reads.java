package io.bloomgate.spring;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;

/** Counts the reads of a cache, and measures the calls of its methods, which are the misses. */
final class Reads {
    /** Called with the duration of each load in nanoseconds, and whether it succeeded. */
    @FunctionalInterface
    interface LoadListener {
        void loaded(long nanoseconds, boolean isSuccess);
    }

    final LongAdder hits = new LongAdder();
    final LongAdder misses = new LongAdder();
    private volatile LoadListener listener = (nanoseconds, isSuccess) -> {};

    void setListener(LoadListener listener) {
        this.listener = listener;
    }

    void count(boolean isHit) {
        (isHit ? hits : misses).increment();
    }

    <T> T load(Callable<T> loader) throws Exception {
        misses.increment();
        long begun = System.nanoTime();
        boolean isSuccess = false;
        try {
            T row = loader.call();
            isSuccess = true;
            return row;
        } finally {
            listener.loaded(System.nanoTime() - begun, isSuccess);
        }
    }

    <T> CompletableFuture<T> loadLater(Supplier<CompletableFuture<T>> loader) {
        misses.increment();
        long begun = System.nanoTime();
        CompletableFuture<T> loading = loader.get();
        loading.whenComplete((row, error) -> listener.loaded(System.nanoTime() - begun, error == null));
        return loading;
    }
}
