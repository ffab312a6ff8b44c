package io.bloomgate;

import io.bloomgate.BloomgateException.Unconfirmed;
import io.bloomgate.Keys.Row;
import io.bloomgate.Reading.LoadRows;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * A cache in front of a database table, with a filter of all its ids. Ids that do not exist never reach the database, and one caller loads
 * a row that many request. {@code docs/guard.md} of the project specifies the protocol. Thread-safe.
 *
 * <p>Ids are items of the filter, as in {@link Filter}: texts, bytes or whole numbers. Their type is {@code K}, or {@code Object} for ids
 * of several types. Rows are of the type {@code V}. A loader returns null if the row does not exist. With a {@code ttl} of null, the
 * guard's {@code ttl} applies.
 */
public final class Guard<K, V> {
    /**
     * Reads a row from the primary database, in a transaction that begins with the call. It runs in the thread that waits for the row. For
     * asynchronous calls, and for loads that may continue in the background, it runs in the client's executor. Returns null if the row does
     * not exist. Callers receive its errors, checked ones inside a {@link CompletionException}.
     */
    @FunctionalInterface
    public interface Loader<K, V> {
        /** Reads the row with an id, which is passed unchanged from the caller of the guard. */
        @Nullable V load(K id) throws Exception;
    }

    /**
     * Begins to read the row with an id. The returned stage completes with null if the row does not exist, and is cancelled with the call.
     */
    @FunctionalInterface
    public interface AsyncLoader<K, V> {
        /** Begins to read the row with an id. */
        CompletionStage<? extends @Nullable V> load(K id);
    }

    private final Reading<V> reads;
    private final Writing writes;
    private final Bloomgate client;
    private final @Nullable Loader<? super K, ? extends V> loader;
    private final @Nullable Loader<? super Collection<K>, ? extends Map<K, V>> loaderOfAll;

    private Guard(Builder<V> builder, @Nullable Loader<? super K, ? extends V> loader,
            @Nullable Loader<? super Collection<K>, ? extends Map<K, V>> loaderOfAll) {
        client = builder.client;
        reads = new Reading<>(builder);
        writes = new Writing(reads);
        this.loader = loader;
        this.loaderOfAll = loaderOfAll;
    }

    /** Returns a builder of a guard with the filter at a key. The codec converts rows to bytes. */
    public static <V> Builder<V> builder(Bloomgate client, String filter, Codec<V> codec) {
        return new Builder<>(client, filter, codec);
    }

    /** {@link #get(Object, Loader)} with the guard's loader. */
    public Optional<V> get(K id) {
        return get(id, given(loader));
    }

    /**
     * Returns a row, or an empty {@code Optional} if it does not exist. If the server fails, the row is read from the database and not
     * cached: errors of the server are logged, not thrown.
     *
     * <p>If the loader throws, the lease is given up. Callers of this process that wait for the row receive the same error, unless an old
     * value is served instead. An interrupt ends the call with {@link java.util.concurrent.CancellationException}; the thread stays
     * interrupted.
     */
    public Optional<V> get(K id, Loader<? super K, ? extends V> loader) {
        return get(id, loader, null);
    }

    /** {@link #get(Object, Loader)} with a time to live for the row if it is loaded. */
    public Optional<V> get(K id, Loader<? super K, ? extends V> loader, @Nullable Duration ttl) {
        Row row = reads.row(id);
        long ttlMs = ttlMs(ttl);
        V found = Caller.block(client, caller -> reads.get(row, one(row, running(Collections.singletonList(id), () -> loader.load(id))), ttlMs, caller));
        return Optional.ofNullable(found);
    }

    /** {@link #getAsync(Object, AsyncLoader)} with the guard's loader, in the executor of the client. */
    public CompletableFuture<Optional<V>> getAsync(K id) {
        Loader<? super K, ? extends V> given = given(loader);
        return begin(id, running(Collections.singletonList(id), () -> given.load(id)), null);
    }

    /** {@link #get(Object, Loader)} without blocking. Cancelling the future gives up the lease. */
    public CompletableFuture<Optional<V>> getAsync(K id, AsyncLoader<? super K, ? extends V> loader) {
        return getAsync(id, loader, null);
    }

    /** {@link #getAsync(Object, AsyncLoader)} with a time to live for the row if it is loaded. */
    public CompletableFuture<Optional<V>> getAsync(K id, AsyncLoader<? super K, ? extends V> loader, @Nullable Duration ttl) {
        return begin(id, beginning(Collections.singletonList(id), () -> loader.load(id)), ttl);
    }

    private CompletableFuture<Optional<V>> begin(
            K id, Function<Caller, CompletableFuture<V>> load, @Nullable Duration ttl) {
        Row row = reads.row(id);
        long ttlMs = ttlMs(ttl);
        return Caller.begin(client, caller -> reads.get(row, one(row, load), ttlMs, caller).thenApply(Optional::ofNullable));
    }

    /**
     * Returns a cached row that is not old, without loading or waiting. Returns an empty {@code Optional} if the row is not cached, does
     * not exist, is loaded or changed by another caller, or if the server fails.
     */
    public Optional<V> peek(K id) {
        Row row = reads.row(id);
        return Optional.ofNullable(Caller.block(client, caller -> reads.peek(row, caller)));
    }

    /** {@link #peek} without blocking. */
    public CompletableFuture<Optional<V>> peekAsync(K id) {
        Row row = reads.row(id);
        return Caller.begin(client, caller -> reads.peek(row, caller).thenApply(Optional::ofNullable));
    }

    /**
     * Returns a row inside the caller's transaction, whose view may differ from the committed rows: it may see its own changes, or an older
     * snapshot. It returns a cached row; otherwise the loader runs in this thread, even if the filter does not contain the id. The loaded
     * row is neither cached nor shared, and is not encoded.
     *
     * <p>If the transaction has changed the row, call the loader directly: the cached row may be older than the change.
     */
    public Optional<V> getInTransaction(K id, Loader<? super K, ? extends V> loader) {
        Optional<V> cached = peek(id);
        if (cached.isPresent()) {
            return cached;
        }
        reads.count(Event.UNGUARDED, 1);
        return Optional.ofNullable(Caller.block(client, caller -> caller.<V>run(() -> loader.load(id))));
    }

    /** {@link #getAll(Collection, Loader)} with the guard's loader of several rows. */
    public Map<K, Optional<V>> getAll(Collection<? extends K> ids) {
        return getAll(ids, given(loaderOfAll));
    }

    /**
     * Returns rows by id, fetched together. An id without a row has an empty {@code Optional}. The loader returns the rows that exist; it
     * is called once with the ids that this call has to load, and again with ids whose loads by other callers did not complete.
     */
    public Map<K, Optional<V>> getAll(
            Collection<? extends K> ids, Loader<? super Collection<K>, ? extends Map<K, V>> loader) {
        return getAll(ids, loader, null);
    }

    /** {@link #getAll(Collection, Loader)} with a time to live for the rows that are loaded. */
    public Map<K, Optional<V>> getAll(
            Collection<? extends K> ids, Loader<? super Collection<K>, ? extends Map<K, V>> loader, @Nullable Duration ttl) {
        long ttlMs = ttlMs(ttl);
        return Caller.block(client, caller -> many(ids, left -> running(left, () -> loader.load(left)), ttlMs, caller));
    }

    /** {@link #getAllAsync(Collection, AsyncLoader)} with the guard's loader of several rows, in the executor of the client. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(Collection<? extends K> ids) {
        Loader<? super Collection<K>, ? extends Map<K, V>> given = given(loaderOfAll);
        return beginAll(ids, left -> running(left, () -> given.load(left)), null);
    }

    /** {@link #getAll(Collection, Loader)} without blocking. Cancelling the future gives up the leases. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(
            Collection<? extends K> ids, AsyncLoader<? super Collection<K>, ? extends Map<K, V>> loader) {
        return getAllAsync(ids, loader, null);
    }

    /** {@link #getAllAsync(Collection, AsyncLoader)} with a time to live for the rows that are loaded. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(
            Collection<? extends K> ids, AsyncLoader<? super Collection<K>, ? extends Map<K, V>> loader, @Nullable Duration ttl) {
        return beginAll(ids, left -> beginning(left, () -> loader.load(left)), ttl);
    }

    private CompletableFuture<Map<K, Optional<V>>> beginAll(
            Collection<? extends K> ids, Function<Collection<K>, Function<Caller, CompletableFuture<Map<K, V>>>> load, @Nullable Duration ttl) {
        long ttlMs = ttlMs(ttl);
        return Caller.begin(client, caller -> many(ids, load, ttlMs, caller));
    }

    /** Announces changes before their commit. If it throws, do not commit. With a feed it does nothing. */
    @SafeVarargs
    @SuppressWarnings("varargs")
    public final void announce(K... ids) {
        announce(rows(Arrays.asList(ids)));
    }

    private void announce(List<Row> rows) {
        Caller.block(client, caller -> writes.announce(rows, caller));
    }

    /**
     * Confirms changes after their commit or rollback. It repeats failed confirmations for up to {@code patience}, even if the thread is
     * interrupted, then throws {@link Unconfirmed}. With a feed it does nothing.
     *
     * <p>If the outcome of the commit is unknown, determine it before this call, or end the database session: after a commit that follows
     * this call, the old row stays cached.
     */
    @SafeVarargs
    @SuppressWarnings("varargs")
    public final void confirm(K... ids) {
        confirm(rows(Arrays.asList(ids)));
    }

    private void confirm(List<Row> rows) {
        Caller.blockUninterrupted(client, caller -> writes.confirm(rows, caller));
    }

    /** {@link #announce} without blocking. */
    public CompletableFuture<Void> announceAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.announce(rows, caller));
    }

    /** {@link #confirm} without blocking. It is repeated even if the future is cancelled. */
    public CompletableFuture<Void> confirmAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.confirm(rows, Caller.asynchronous(client)));
    }

    /**
     * Confirms changes if the outcome of their commit is unknown and cannot be determined: now, and again after {@code lease}. After a
     * later commit, the old row stays cached for up to {@code ttl}.
     */
    public CompletableFuture<Void> confirmUnknownAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.confirmTwice(rows, Caller.asynchronous(client)));
    }

    /**
     * Announces a change of a row, runs a transaction, and confirms the change, even if the transaction fails. The transaction must end
     * inside {@code transaction}, with a known outcome. With a feed, this only runs the transaction: the follower announces each change.
     * Returns the transaction's result; its checked exceptions are thrown inside a {@link CompletionException}.
     */
    public <T extends @Nullable Object> T changed(K id, Callable<T> transaction) {
        return changedAll(Collections.singletonList(id), transaction);
    }

    /** {@link #changed(Object, Callable)} for a transaction without a result. */
    public void changed(K id, Runnable transaction) {
        changedAll(Collections.singletonList(id), () -> {
            transaction.run();
            return null;
        });
    }

    /** {@link #changed(Object, Callable)} for several rows. */
    public <T extends @Nullable Object> T changedAll(Collection<? extends K> ids, Callable<T> transaction) {
        List<Row> rows = rows(ids);
        announce(rows);
        CompletableFuture<T> result = new CompletableFuture<>();
        try {
            result.complete(transaction.call());
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            result.completeExceptionally(new CancellationException("the thread was interrupted"));
        } catch (Throwable error) {
            result.completeExceptionally(error);
        }
        try {
            confirm(rows);
        } catch (Unconfirmed unconfirmed) {
            result.whenComplete((value, error) -> {
                if (error != null) {
                    unconfirmed.addSuppressed(error);
                }
            });
            throw unconfirmed;
        }
        return Caller.value(result);
    }

    /**
     * {@link #changedAll} for a transaction that does not block. Cancelling the future cancels the transaction; the change is still
     * confirmed after it ends.
     */
    public <T extends @Nullable Object> CompletableFuture<T> changedAsync(Collection<? extends K> ids, Callable<? extends CompletionStage<T>> transaction) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.announce(rows, caller).thenCompose(announced -> {
            CompletableFuture<T> result = new CompletableFuture<>();
            CompletableFuture<T> body = awaited(transaction, caller);
            body.whenComplete((value, error) -> writes.confirm(rows, Caller.asynchronous(client)).whenComplete((confirmed, unconfirmed) -> {
                if (unconfirmed != null && error != null) {
                    Caller.cause(unconfirmed).addSuppressed(error);
                }
                Caller.settle(result, value, unconfirmed != null ? unconfirmed : error);
            }));
            return result;
        }));
    }

    /**
     * Deletes ids from the filter after their rows were deleted inside {@code changed}. Deleted ids must never be used again. The filter
     * needs the hash {@code siphash}. With a feed it does nothing: the follower deletes the ids of deleted rows.
     */
    @SafeVarargs
    @SuppressWarnings("varargs")
    public final void forget(K... ids) {
        List<Row> rows = rows(Arrays.asList(ids));
        Caller.block(client, caller -> writes.forget(rows, caller));
    }

    /** {@link #forget} without blocking. */
    public CompletableFuture<Void> forgetAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.forget(rows, caller));
    }

    /**
     * Deletes all cached rows (SCAN and UNLINK). The filter keeps its ids. A load in progress may cache its row afterwards, so this does
     * not replace {@link #changed(Object, Callable)}.
     */
    public void clear() {
        Caller.block(client, writes::clear);
    }

    /**
     * Returns whether the follower's heartbeat covers this guard's cache keys, for a guard with a feed. Returns an empty {@code Optional}
     * if no follower is alive. The server's user needs permission for GET.
     */
    public Optional<Boolean> isFollowed() {
        return Optional.ofNullable(Caller.block(client, writes::isFollowed));
    }

    /** Returns the executor of the client, in which asynchronous loaders begin. */
    public Executor executor() {
        return client.executor;
    }

    /** {@link #clear} without blocking. */
    public CompletableFuture<Void> clearAsync() {
        return Caller.begin(client, writes::clear);
    }

    /** Returns how often each event has happened. */
    public Map<Event, Long> counts() {
        return reads.counts();
    }

    private LoadRows<V> one(Row row, Function<Caller, CompletableFuture<V>> load) {
        return (rows, caller) -> load.apply(caller).thenApply(value -> Collections.singletonMap(row.id, value));
    }

    /** Reads rows. Ids with equal bytes, such as 7 and "7", name one row: it is loaded by the first id, and returned for each. */
    private CompletableFuture<Map<K, Optional<V>>> many(Collection<? extends K> ids,
            Function<Collection<K>, Function<Caller, CompletableFuture<Map<K, V>>>> load, long ttlMs, Caller caller) {
        Map<K, Row> asked = new LinkedHashMap<>();
        Map<String, Row> rows = new LinkedHashMap<>();
        Map<String, K> first = new HashMap<>();
        for (K id : ids) {
            Row row = reads.row(id);
            asked.put(id, row);
            rows.putIfAbsent(row.id, row);
            first.putIfAbsent(row.id, id);
        }
        LoadRows<V> loadRows = (wanted, by) -> load.apply(wanted.stream().map(row -> first.get(row.id)).toList()).apply(by).thenApply(loaded -> {
            Map<String, V> found = new HashMap<>();
            wanted.forEach(row -> found.put(row.id, loaded.get(first.get(row.id))));
            return found;
        });
        return reads.getMany(List.copyOf(rows.values()), loadRows, ttlMs, caller).thenApply(loaded -> {
            Map<K, Optional<V>> found = new LinkedHashMap<>();
            asked.forEach((id, row) -> found.put(id, Optional.ofNullable(loaded.get(row.id))));
            return found;
        });
    }

    /** Returns a blocking load of rows. */
    private <T extends @Nullable Object> Function<Caller, CompletableFuture<T>> running(Collection<?> ids, Callable<T> load) {
        return caller -> caller.run(reads.during(rows(ids), load));
    }

    /** Returns a load of rows that calls {@code begin}, and awaits the returned stage. */
    private <T extends @Nullable Object> Function<Caller, CompletableFuture<T>> beginning(
            Collection<?> ids, Callable<? extends CompletionStage<? extends T>> load) {
        return caller -> awaited(reads.during(rows(ids), load), caller);
    }

    private List<Row> rows(Collection<?> ids) {
        return ids.stream().map(reads::row).toList();
    }

    private long ttlMs(@Nullable Duration ttl) {
        return ttl == null ? reads.options.ttlMs : Options.TTL.milliseconds(ttl);
    }

    private static <T> T given(@Nullable T loader) {
        if (loader == null) {
            throw new IllegalArgumentException("there is no loader: pass one to this call or to the guard");
        }
        return loader;
    }

    /**
     * Calls {@code begin}, and awaits the returned stage. The function runs in the client's executor, because it may block and Lettuce's
     * threads serve all callers. It is not interrupted, so that a change is never confirmed before its transaction has begun.
     */
    private <T extends @Nullable Object> CompletableFuture<T> awaited(Callable<? extends CompletionStage<? extends T>> begin, Caller caller) {
        CompletableFuture<CompletionStage<? extends T>> beginning = new CompletableFuture<>();
        client.executor.execute(() -> {
            try {
                beginning.complete(begin.call());
            } catch (Throwable error) {
                beginning.completeExceptionally(error);
            }
        });
        return beginning.thenCompose(stage -> {
            CompletableFuture<T> begun = new CompletableFuture<>();
            stage.whenComplete((value, error) -> Caller.settle(begun, value, error));
            begun.whenComplete((value, error) -> {
                if (begun.isCancelled()) {
                    stage.toCompletableFuture().cancel(true);
                }
            });
            return caller.untilCancelled(begun);
        });
    }

    /** The options of a guard. */
    public static final class Builder<V> {
        final Bloomgate client;
        final byte[] filter;
        final Codec<V> codec;
        // scripts/generate-options writes these lines.
        long ttlMs = 60_000;
        long absentTtlMs = 10_000;
        long leaseMs = 3000;
        long waitMs = 3000;
        int attempts = 3;
        long failSafeMs = 0;
        @Nullable Long softTimeoutMs;
        double beta = 1;
        long freshMs = 0;
        long patienceMs = 30_000;
        int replicas = 0;
        long replicasTimeoutMs = 1000;
        Predicate<? super Throwable> isFailure = error -> true;
        boolean feed;
        byte @Nullable [] prefix;
        List<byte[]> announceTo = List.of();
        Durability durability;
        @Nullable BiConsumer<Event, Integer> listener;
        private boolean aof;

        private Builder(Bloomgate client, String filter, Codec<V> codec) {
            this.client = client;
            this.filter = Items.bytes(filter);
            this.codec = codec;
        }

        /** Sets the time to live of a cached row, 60 s: how long readers may get an old row after a writer has died. */
        public Builder<V> ttl(Duration time) {
            ttlMs = Options.TTL.milliseconds(time);
            return this;
        }

        /** Sets the time to live of a cached absence: 10 s. */
        public Builder<V> absentTtl(Duration time) {
            absentTtlMs = Options.ABSENT_TTL.milliseconds(time);
            return this;
        }

        /** Sets how long one caller may load a row while others wait: 3 s, at most an hour. */
        public Builder<V> lease(Duration time) {
            leaseMs = Options.LEASE.milliseconds(time);
            return this;
        }

        /** Sets how long a caller waits for another caller's load at a time: 3 s. With 0 it queries the database at once. */
        public Builder<V> wait(Duration time) {
            waitMs = Options.WAIT.milliseconds(time);
            return this;
        }

        /** Sets how many times a caller waits before it queries the database: 3. */
        public Builder<V> attempts(int number) {
            attempts = Options.ATTEMPTS.number(number);
            return this;
        }

        /**
         * Sets how long a value stays cached after its time to live: by default 0. One caller refreshes such a value; in the
         * meantime, others get the old value, and every caller gets it if the load fails. The row is then not loaded again until a
         * back-off ends; callers without an old value get {@link BloomgateException.LoadFailed}.
         */
        public Builder<V> failSafe(Duration time) {
            failSafeMs = Options.FAIL_SAFE.milliseconds(time);
            return this;
        }

        /**
         * Sets the errors of a load for which {@code failSafe} serves old values and begins a back-off: by default all exceptions. Exclude
         * errors that are answers of the program, not failures of the database: for them the lease ends, and the error is thrown.
         */
        public Builder<V> failSafeFor(Predicate<? super Throwable> isFailure) {
            this.isFailure = isFailure;
            return this;
        }

        /**
         * Sets how long a caller waits for a load before it gets the old value, if one is cached. The load continues in the background, so
         * it runs in the client's executor if an old value is cached. {@code get} calls the executor in its own thread: an executor that
         * captures thread-locals there, like Spring's task decorators, passes them to the loader.
         */
        public Builder<V> softTimeout(Duration time) {
            softTimeoutMs = Options.SOFT_TIMEOUT.milliseconds(time);
            return this;
        }

        /** Scales how early values are renewed before they expire: 1. With 0, values are not renewed early. */
        public Builder<V> beta(double factor) {
            beta = Options.BETA.factor(factor);
            return this;
        }

        /**
         * For a table that is followed by {@code bloomgate follow}. Writers need no guard: {@code changed}, {@code announce}, {@code
         * confirm} and {@code forget} send nothing. Rows are reported absent only while the follower's heartbeat exists, and callers wait
         * for a row with a write in flight.
         */
        public Builder<V> feed(boolean isFed) {
            feed = isFed;
            return this;
        }

        /**
         * Limits the age of an answer while the follower's heartbeat is missing, from the lease to an hour: each row is then loaded once in
         * this time. With 0, the default, a cached value is served for its time to live. It needs a feed.
         */
        public Builder<V> fresh(Duration time) {
            freshMs = Options.FRESH.milliseconds(time);
            return this;
        }

        /** Sets how long failed confirmations are repeated ({@link Guard#confirm}): 30 s. */
        public Builder<V> patience(Duration time) {
            patienceMs = Options.PATIENCE.milliseconds(time);
            return this;
        }

        /** Sets the prefix of cache keys, by default <code>{filter}:</code>. */
        public Builder<V> prefix(String prefix) {
            this.prefix = Items.bytes(prefix);
            return this;
        }

        /** Sets the filters that are being filled, to which each id is announced first. */
        public Builder<V> announceTo(String... filters) {
            announceTo = Arrays.stream(filters).map(Items::bytes).toList();
            return this;
        }

        /** Sets how many replicas must acknowledge a change (WAIT): 0. */
        public Builder<V> replicas(int number) {
            replicas = Options.REPLICAS.number(number);
            return this;
        }

        /** Sets how long a change waits for the replicas or the disk: 1 s. */
        public Builder<V> replicasTimeout(Duration time) {
            replicasTimeoutMs = Options.REPLICAS_TIMEOUT.milliseconds(time);
            return this;
        }

        /** Sets whether the append-only file on disk must contain a change (WAITAOF). */
        public Builder<V> aof(boolean isAsked) {
            aof = isAsked;
            return this;
        }

        /** Calls a function with each event and its number of occurrences, for metrics and tests. It must not block. */
        public Builder<V> listener(BiConsumer<Event, Integer> listener) {
            this.listener = listener;
            return this;
        }

        /**
         * Creates the guard, and sends nothing. Guards of a client with one prefix share their cached rows, so they need equal codecs: a
         * guard with another codec is refused, and needs another prefix.
         */
        public <K> Guard<K, V> build() {
            return build(null, null);
        }

        /** {@link #build()} with the default loader. */
        public <K> Guard<K, V> build(Loader<? super K, ? extends V> loader) {
            return build(loader, null);
        }

        /** {@link #build()} with the default loaders of one row, and of the rows of {@code getAll}. */
        public <K> Guard<K, V> build(
                @Nullable Loader<? super K, ? extends V> loader, @Nullable Loader<? super Collection<K>, ? extends Map<K, V>> loaderOfAll) {
            durability = new Durability(replicas, Duration.ofMillis(replicasTimeoutMs), aof);
            if (feed && (!announceTo.isEmpty() || durability.isAsked())) {
                throw new IllegalArgumentException(
                        "with a feed the follower announces changes: announceTo, replicas and aof have no effect");
            }
            if (freshMs > 0 && (!feed || freshMs < leaseMs)) {
                throw new IllegalArgumentException("fresh needs feed, and must be at least the lease, " + leaseMs + " ms, not " + freshMs + " ms");
            }
            client.claim(prefix != null ? prefix : Keys.cachePrefix(filter), codec);
            return new Guard<>(this, loader, loaderOfAll);
        }
    }
}
