package io.bloomgate.spring;

import io.bloomgate.Guard;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.cache.Cache;
import org.springframework.cache.interceptor.SimpleKey;
import org.springframework.cache.support.SimpleValueWrapper;
import org.springframework.core.convert.support.DefaultConversionService;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.util.ObjectUtils;
import org.springframework.util.ReflectionUtils;
import reactor.core.scheduler.Schedulers;

/**
 * A guard as a Spring cache. Only {@link #get(Object, Callable)} and {@link #retrieve(Object, Supplier)} store values, which they load
 * under a lease. A value that the program passes may be older than a change. So {@code @Cacheable} needs {@code sync = true}, and {@code
 * put} deletes.
 *
 * <p>Inside a transaction, a cached value is returned unless the transaction has changed its key; otherwise the loader is called, and
 * nothing is cached: the transaction may see an older snapshot, or changes that are rolled back later.
 *
 * <p>A change inside a transaction is announced at once. If that fails, the transaction is rolled back. When the transaction has ended, all
 * its changes are confirmed in the background. Outside a transaction, call {@link #evict} after the commit: from then on, the old row is
 * neither returned nor cached.
 *
 * <p>Keys are ids: strings, integers and {@code byte[]}. Keys of other types are converted to text; types without a text form are refused.
 * Several arguments are joined by colons.
 */
public final class GuardCache implements Cache {
    private static final Log LOG = LogFactory.getLog(GuardCache.class);
    private static final String NOT_ANNOUNCED = "a change could not be announced";

    /** The field that contains several arguments of a method. Spring's text for them is ambiguous. */
    private static final Field PARTS = ReflectionUtils.findField(SimpleKey.class, "params");

    static {
        ReflectionUtils.makeAccessible(PARTS);
    }

    private final String name;
    private final Guard<Object, Object> guard;
    private final Trust trust;
    private final FollowerCheck follower;
    private final Reads reads = new Reads();
    private final LongAdder contradictions = new LongAdder();
    private final Set<CompletableFuture<Void>> confirmations = ConcurrentHashMap.newKeySet();

    /** Creates a cache from a guard whose filter is not trusted. */
    public GuardCache(String name, Guard<Object, Object> guard) {
        this(name, guard, Trust.OBSERVE);
    }

    /** Creates a cache from a guard. */
    public GuardCache(String name, Guard<Object, Object> guard, Trust trust) {
        this(name, guard, trust, null);
    }

    /** Creates a cache from a guard. With a feed, another guard announces changes until the follower has been seen. */
    GuardCache(String name, Guard<Object, Object> guard, Trust trust, FollowerCheck follower) {
        this.name = name;
        this.guard = guard;
        this.trust = trust;
        this.follower = follower;
    }

    @Override
    public String getName() {
        return name;
    }

    @Override
    public Guard<Object, Object> getNativeCache() {
        return guard;
    }

    /** Returns how often a method returned a row that the guard had reported absent. */
    public long contradictions() {
        return contradictions.sum();
    }

    Reads reads() {
        return reads;
    }

    /** Converts a key to an item of the filter. */
    private static Object id(Object key) {
        if (key instanceof String || key instanceof byte[] || key instanceof Long || key instanceof Integer || key instanceof Short
                || key instanceof Byte || key instanceof BigInteger) {
            return key instanceof Short || key instanceof Byte ? Long.valueOf(((Number) key).longValue()) : key;
        }
        if (key instanceof Enum<?> constant) {
            return constant.name();
        }
        if (key instanceof Date date) {
            // A date's text lacks milliseconds.
            return Long.toString(date.getTime());
        }
        if (key instanceof SimpleKey && !key.equals(SimpleKey.EMPTY)) {
            return Arrays.stream((Object[]) ReflectionUtils.getField(PARTS, key)).map(GuardCache::part).collect(Collectors.joining(":"));
        }
        if (hasText(key)) {
            return key.toString();
        }
        if (DefaultConversionService.getSharedInstance().canConvert(key.getClass(), String.class)) {
            return DefaultConversionService.getSharedInstance().convert(key, String.class);
        }
        throw new IllegalArgumentException(key.getClass().getName() + " cannot be a key: it does not override toString");
    }

    /** Escapes one of several arguments, so that different combinations have different ids. */
    private static String part(Object argument) {
        if (argument == null) {
            return "\\N";
        }
        Object id = id(argument);
        String text = id instanceof byte[] bytes ? new String(bytes, StandardCharsets.ISO_8859_1) : id.toString();
        return text.replace("\\", "\\\\").replace(":", "\\:");
    }

    private static boolean hasText(Object key) {
        Method toString = ReflectionUtils.findMethod(key.getClass(), "toString");
        return toString != null && toString.getDeclaringClass() != Object.class;
    }

    /** Returns a cached value, or null on a miss. The program's value is then not cached, because {@link #put} deletes. */
    @Override
    public ValueWrapper get(Object key) {
        return cached(id(key)).map(SimpleValueWrapper::new).orElse(null);
    }

    /** Returns a cached value, or null on a miss. The program's value is then not cached, because {@link #put} deletes. */
    @Override
    public <T> T get(Object key, Class<T> type) {
        Object value = cached(id(key)).orElse(null);
        if (value != null && type != null && !type.isInstance(value)) {
            throw new IllegalStateException("the cached value is not a " + type.getName() + ": " + value);
        }
        @SuppressWarnings("unchecked")
        T same = (T) value;
        return same;
    }

    private Optional<Object> cached(Object id) {
        Optional<Object> row = peek(id);
        reads.count(row.isPresent());
        return row;
    }

    private Optional<Object> peek(Object id) {
        return hasChanged(id) ? Optional.empty() : guard.peek(id);
    }

    /** Returns the row from the cache, or from the loader, which runs in this thread. */
    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        Object id = id(key);
        AtomicBoolean isCalled = new AtomicBoolean();
        Supplier<Object> load = () -> {
            isCalled.set(true);
            return call(loader);
        };
        try {
            Optional<Object> row = !TransactionSynchronizationManager.isActualTransactionActive() ? guard.get(id, any -> load.get())
                    : hasChanged(id) ? Optional.ofNullable(load.get()) : guard.getInTransaction(id, any -> load.get());
            if (row.isEmpty() && !isCalled.get()) {
                return absent(key, loader);
            } else if (!isCalled.get()) {
                reads.count(true);
            }
            return (T) row.orElse(null);
        } catch (LoaderException error) {
            throw new ValueRetrievalException(key, loader, error.getCause());
        }
    }

    /** Returns the caller's value for a row that the guard reported absent. */
    @SuppressWarnings("unchecked")
    private <T> T absent(Object key, Callable<T> loader) {
        CachedCall call = CachedCall.evaluating();
        if (isAbsenceTrusted(call)) {
            reads.count(true);
            return (T) none(call).orElse(null);
        }
        T row = call(loader);
        check(key, row);
        return row;
    }

    /** Returns whether the guard's absence is trusted, so that the method is not called. */
    private boolean isAbsenceTrusted(CachedCall call) {
        return trust == Trust.FILTER && (call == null || call.hasNone());
    }

    private static Optional<Object> none(CachedCall call) {
        return Optional.ofNullable(call == null ? null : call.none());
    }

    /** Counts a row that the guard reported absent, if the filter is observed. */
    private void check(Object key, Object row) {
        boolean isRow = row instanceof CharSequence || !ObjectUtils.isEmpty(row);
        if (trust == Trust.OBSERVE && isRow) {
            contradictions.increment();
            LOG.warn("the cache " + name + ": there is a row for the key " + key + ", which is not in the filter, or whose absence is cached: "
                    + "its writer does not evict it, or the filter has ids of another kind");
        }
    }

    /** Returns whether this thread's transaction may have changed a row: the cached row may be older than the change. */
    private boolean hasChanged(Object id) {
        return TransactionChanges.contain(this, id) || CachedCall.haveChanged(this, id);
    }

    private <T> T call(Callable<T> loader) {
        try {
            return reads.load(loader);
        } catch (Exception error) {
            throw new LoaderException(error);
        }
    }

    /** An exception of a loader, to distinguish it from the guard's. */
    private static final class LoaderException extends RuntimeException {
        LoaderException(Exception cause) {
            super(cause);
        }
    }

    /** Returns a future of a cached value, or null on a miss. */
    @Override
    public CompletableFuture<?> retrieve(Object key) {
        Object id = id(key);
        return cached(id).map(CompletableFuture::completedFuture).orElse(null);
    }

    /** Returns a future of the row. Outside a transaction, the loader runs in the executor of the client. */
    @Override
    public <T> CompletableFuture<T> retrieve(Object key, Supplier<CompletableFuture<T>> loader) {
        Object id = id(key);
        CachedCall call = CachedCall.evaluating();
        boolean isOptional = call != null && call.isFutureOfOptional();
        if (TransactionSynchronizationManager.isActualTransactionActive()) {
            // The loader needs the transaction of this thread.
            Optional<Object> row = peek(id);
            if (row.isEmpty()) {
                return reads.loadLater(loader);
            }
            reads.count(true);
            return CompletableFuture.completedFuture(value(row, isOptional));
        }
        AtomicBoolean isCalled = new AtomicBoolean();
        return guard.getAsync(id, any -> {
            isCalled.set(true);
            CompletableFuture<T> loaded = reads.loadLater(loader);
            return isOptional ? loaded.thenApply(ObjectUtils::unwrapOptional) : loaded;
        }).thenCompose(row -> {
            if (isCalled.get()) {
                return CompletableFuture.completedFuture(value(row, isOptional));
            } else if (row.isPresent() || isAbsenceTrusted(call)) {
                reads.count(true);
                return CompletableFuture.completedFuture(value(row.or(() -> none(call)), isOptional));
            }
            // This is a thread of Lettuce, which the loader must not block.
            return CompletableFuture.supplyAsync(() -> reads.loadLater(loader), guard.executor()).thenCompose(loading -> loading)
                    .whenComplete((found, error) -> check(key, found));
        });
    }

    @SuppressWarnings("unchecked")
    private static <T> T value(Optional<Object> row, boolean isOptional) {
        return (T) (isOptional ? row : row.orElse(null));
    }

    /** Deletes the value, like {@link #evict}; the next reader loads it. */
    @Override
    public void put(Object key, Object value) {
        evict(key);
    }

    /** Returns a cached value, or null on a miss. The program's value is then not cached. */
    @Override
    public ValueWrapper putIfAbsent(Object key, Object value) {
        return get(key);
    }

    /**
     * Announces and confirms a change. In a transaction, it announces now and confirms after the end; otherwise it does both at once, after
     * the change. Announcements in a call of an annotated method are confirmed at its end. In a non-blocking thread of Reactor, it does not
     * wait for the confirmation.
     */
    @Override
    public void evict(Object key) {
        Object id = id(key);
        CachedCall call = CachedCall.evaluating();
        if (TransactionSynchronizationManager.isSynchronizationActive()) {
            TransactionChanges.announce(this, id);
        } else if (Schedulers.isInNonBlockingThread()) {
            confirmLater(List.of(id), true);
        } else if (call == null || !call.hasAnnounced(this, id)) {
            write(writer -> writer.confirm(id));
        }
    }

    void announce(Object id) {
        write(writer -> writer.announce(id));
    }

    void checkFollower() {
        if (follower != null) {
            follower.check();
        }
    }

    /** Calls the guard that announces changes. With a feed, errors are logged: a follower that starts later fills the filter. */
    private void write(Consumer<Guard<Object, Object>> call) {
        if (follower == null) {
            call.accept(guard);
            return;
        }
        follower.check();
        try {
            call.accept(follower.writer());
        } catch (RuntimeException error) {
            follower.warn(NOT_ANNOUNCED, error);
        }
    }

    /**
     * Announces a change before it is made, as for {@code beforeInvocation = true}. It needs a transaction or a call of an annotated
     * method, which confirms the change.
     */
    @Override
    public boolean evictIfPresent(Object key) {
        CachedCall call = CachedCall.evaluating();
        if (call != null && !TransactionSynchronizationManager.isSynchronizationActive()) {
            call.announce(this, id(key));
        } else {
            needsTransaction();
            TransactionChanges.announce(this, id(key));
        }
        return true;
    }

    /** Begins to confirm changes. Errors are logged, because the callers do not wait. */
    void confirmLater(Collection<Object> ids, boolean isOutcomeKnown) {
        List<Object> all = List.copyOf(ids);
        Guard<Object, Object> writer = follower == null ? guard : follower.writer();
        CompletableFuture<Void> confirmation = isOutcomeKnown ? writer.confirmAsync(all) : writer.confirmUnknownAsync(all);
        confirmations.add(confirmation);
        confirmation.whenComplete((confirmed, error) -> {
            confirmations.remove(confirmation);
            if (error != null && follower != null) {
                follower.warn(NOT_ANNOUNCED, error);
            } else if (error != null) {
                LOG.error("the cache " + name + ": changes are not confirmed, so their rows are not cached", error);
            }
        });
    }

    boolean areChangesConfirmed() {
        return confirmations.isEmpty();
    }

    /** Waits for the confirmations in progress. */
    void awaitConfirmations() {
        CompletableFuture.allOf(confirmations.toArray(CompletableFuture[]::new)).exceptionally(error -> null).join();
    }

    private void needsTransaction() {
        if (!TransactionSynchronizationManager.isSynchronizationActive()) {
            throw new IllegalStateException("an eviction from the cache " + name + " before the change needs a transaction: "
                    + "nothing would tell the cache that the change has ended");
        }
    }

    /** Deletes all cached rows, in a transaction after its end. A load in progress may cache its row afterwards, for its time to live. */
    @Override
    public void clear() {
        if (TransactionSynchronizationManager.isSynchronizationActive()) {
            TransactionChanges.clear(this);
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
