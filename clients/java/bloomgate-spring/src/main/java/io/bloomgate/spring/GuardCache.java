package io.bloomgate.spring;

import io.bloomgate.Guard;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.springframework.cache.Cache;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * A guard as a Spring cache. A value gets into it only through {@link #get(Object, Callable)} and {@link #retrieve(Object, Supplier)}, which
 * load it under a lease: nobody knows whether a change has overtaken another one. So {@code @Cacheable} needs {@code sync = true}, and
 * {@code put} deletes.
 *
 * <p>Inside of a transaction, a change is announced at once, before the commit, where an error rolls back; and confirmed when the
 * transaction has ended. Outside, {@link #evict} follows a change that was committed: from then on, no reader gets or caches the old row.
 *
 * <p>Keys are ids: texts, whole numbers, {@code byte[]} and {@link UUID}. A null value is the knowledge that there is no row.
 */
public final class GuardCache implements Cache {
    private final String name;
    private final Guard<Object> guard;

    /** Makes a guard a cache. */
    public GuardCache(String name, Guard<Object> guard) {
        this.name = name;
        this.guard = guard;
    }

    @Override
    public String getName() {
        return name;
    }

    @Override
    public Guard<Object> getNativeCache() {
        return guard;
    }

    /** Returns a key as an item of the filter, which refuses keys of other types. */
    private static Object id(Object key) {
        return key instanceof UUID ? key.toString() : key;
    }

    private IllegalStateException needsLoader() {
        return new IllegalStateException("the cache " + name + " stores only what it has loaded itself: use @Cacheable(sync = true), "
                + "or get with a loader");
    }

    /** Throws: without a loader nothing could be cached. */
    @Override
    public ValueWrapper get(Object key) {
        throw needsLoader();
    }

    /** Throws: without a loader nothing could be cached. */
    @Override
    public <T> T get(Object key, Class<T> type) {
        throw needsLoader();
    }

    /** Returns the row: from the cache, or from the loader, which runs in this thread. */
    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        try {
            return (T) guard.get(id(key), any -> {
                try {
                    return loader.call();
                } catch (Exception error) {
                    throw new LoaderException(error);
                }
            }).orElse(null);
        } catch (LoaderException error) {
            throw new ValueRetrievalException(key, loader, error.getCause());
        }
    }

    /** What a loader has thrown, apart from what the guard throws. */
    private static final class LoaderException extends RuntimeException {
        LoaderException(Exception cause) {
            super(cause);
        }
    }

    /** Throws: without a loader nothing could be cached. */
    @Override
    public CompletableFuture<?> retrieve(Object key) {
        throw needsLoader();
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> CompletableFuture<T> retrieve(Object key, Supplier<CompletableFuture<T>> loader) {
        return guard.getAsync(id(key), any -> loader.get()).thenApply(row -> (T) row.orElse(null));
    }

    /** Deletes the value, as {@link #evict} does: the next reader loads it. */
    @Override
    public void put(Object key, Object value) {
        evict(key);
    }

    /** Throws: the cache cannot tell whether there is a value. */
    @Override
    public ValueWrapper putIfAbsent(Object key, Object value) {
        throw new UnsupportedOperationException("the cache " + name + " stores only what it has loaded itself");
    }

    /** Announces and confirms a change: in a transaction now and after its end, or else at once, after the change. */
    @Override
    public void evict(Object key) {
        if (!TransactionSynchronizationManager.isSynchronizationActive()) {
            guard.confirm(id(key));
            return;
        }
        announce(key);
    }

    /**
     * The eviction of {@code beforeInvocation = true}, which precedes the change. It needs a transaction, or else nothing would confirm the
     * change.
     */
    @Override
    public boolean evictIfPresent(Object key) {
        needsTransaction();
        announce(key);
        return true;
    }

    private void announce(Object key) {
        guard.announce(id(key));
        afterCompletion(() -> guard.confirm(id(key)));
    }

    private void needsTransaction() {
        if (!TransactionSynchronizationManager.isSynchronizationActive()) {
            throw new IllegalStateException("an eviction from the cache " + name + " before the change needs a transaction: "
                    + "nothing would tell the cache that the change has ended");
        }
    }

    private static void afterCompletion(Runnable task) {
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
            @Override
            public void afterCompletion(int status) {
                task.run();
            }
        });
    }

    /**
     * Deletes all cached rows: in a transaction after its end. A load that is under way meanwhile may cache its row afterwards, for its time
     * to live.
     */
    @Override
    public void clear() {
        if (TransactionSynchronizationManager.isSynchronizationActive()) {
            afterCompletion(guard::clear);
        } else {
            guard.clear();
        }
    }

    /** Deletes all cached rows for {@code allEntries} with {@code beforeInvocation = true}, which needs a transaction. */
    @Override
    public boolean invalidate() {
        needsTransaction();
        clear();
        return true;
    }
}
