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
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Rows of a database by id, with a filter and a cache in front of them. The filter has the id of every row. {@code docs/guard.md} of the
 * project has the protocol. Thread-safe.
 *
 * <p>Ids are items of the filter, as those of {@link Filter}: texts, bytes or whole numbers. They are of the type {@code K}, which is
 * {@code Object} in a guard that gets several. Rows are of the type {@code V}, and never null: null is what a loader returns where there is no row. A {@code ttl} of null stands for that of the guard.
 */
public final class Guard<K, V> {
    /**
     * Reads the row with an id from the database that has every commit, in a transaction that begins with the call. It runs in the thread
     * that waits for the row, and in the executor of the client for a call that does not block, or where a load may go on in the
     * background. Returns null if there is no row. Callers get any error, a checked one inside of a {@link CompletionException}.
     */
    @FunctionalInterface
    public interface Loader<K, V> {
        /** Reads the row with an id, which is passed as the caller of the guard has passed it. */
        @Nullable V load(K id) throws Exception;
    }

    /** Begins to read the row with an id. What it returns is cancelled with the call; it ends with null if there is no row. */
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
    private final AtomicBoolean isChecked = new AtomicBoolean();

    private Guard(Builder<V> builder, @Nullable Loader<? super K, ? extends V> loader,
            @Nullable Loader<? super Collection<K>, ? extends Map<K, V>> loaderOfAll) {
        client = builder.client;
        reads = new Reading<>(builder);
        writes = new Writing(reads);
        this.loader = loader;
        this.loaderOfAll = loaderOfAll;
    }

    /** Returns a builder of a guard with the filter of a name. The codec converts the rows to bytes. */
    public static <V> Builder<V> builder(Bloomgate client, String filter, Codec<V> codec) {
        return new Builder<>(client, filter, codec);
    }

    /** {@link #get(Object, Loader)} with the guard's loader. */
    public Optional<V> get(K id) {
        return get(id, given(loader));
    }

    /**
     * Returns a row, or nothing if there is none. If the server fails, the database is asked and nothing is filled: errors of the server
     * are logged, not thrown.
     *
     * <p>What the loader throws is thrown, after the lease was given up, in all callers of this process that waited for it; but if an old
     * value may be served, it is. An interrupt ends the call with {@link java.util.concurrent.CancellationException}, and leaves the
     * thread interrupted.
     */
    public Optional<V> get(K id, Loader<? super K, ? extends V> loader) {
        return get(id, loader, null);
    }

    /** {@link #get(Object, Loader)} with a time to live of its own, if the row is loaded. */
    public Optional<V> get(K id, Loader<? super K, ? extends V> loader, @Nullable Duration ttl) {
        Row row = reads.row(id);
        long ttlMs = ttlMs(ttl);
        V found = Caller.block(client, caller -> reads.get(row, one(row, running(Collections.singletonList(id), () -> loader.load(id))), ttlMs, caller));
        check();
        return Optional.ofNullable(found);
    }

    /** {@link #getAsync(Object, AsyncLoader)} with the guard's loader, in the executor of the client. */
    public CompletableFuture<Optional<V>> getAsync(K id) {
        Loader<? super K, ? extends V> given = given(loader);
        return begin(id, running(Collections.singletonList(id), () -> given.load(id)), null);
    }

    /** {@link #get(Object, Loader)} without blocking. Cancelling the future gives the lease up. */
    public CompletableFuture<Optional<V>> getAsync(K id, AsyncLoader<? super K, ? extends V> loader) {
        return getAsync(id, loader, null);
    }

    /** {@link #getAsync(Object, AsyncLoader)} with a time to live of its own, if the row is loaded. */
    public CompletableFuture<Optional<V>> getAsync(K id, AsyncLoader<? super K, ? extends V> loader, @Nullable Duration ttl) {
        return begin(id, beginning(Collections.singletonList(id), () -> loader.load(id)), ttl);
    }

    private CompletableFuture<Optional<V>> begin(
            K id, Function<Caller, CompletableFuture<V>> load, @Nullable Duration ttl) {
        Row row = reads.row(id);
        long ttlMs = ttlMs(ttl);
        return Caller.begin(client, caller -> reads.get(row, one(row, load), ttlMs, caller).thenApply(found -> {
            check();
            return Optional.ofNullable(found);
        }));
    }

    /**
     * Returns a cached row that is not old, or nothing: if none is cached, if there is no such row, if another caller loads or changes it,
     * or if the server fails. It loads and waits for nothing.
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
     * Returns a row for a caller whose transaction may see other rows than the database's commits: its own changes, or an older snapshot.
     * A cached row is returned; otherwise, also if the filter answers that there is none, the loader runs in this thread. What it returns is
     * neither cached nor shared with other callers, and does not pass through the codec.
     *
     * <p>If the transaction has changed the row, call the loader yourself: the cached row may be the one before the change.
     */
    public Optional<V> getInTransaction(K id, Loader<? super K, ? extends V> loader) {
        Optional<V> cached = peek(id);
        if (cached.isPresent()) {
            return cached;
        }
        reads.count(Event.UNGUARDED, 1);
        return Optional.ofNullable(Caller.block(client, caller -> caller.<V>run(() -> loader.load(id))));
    }

    /** {@link #getAll(Collection, Loader)} with the guard's loader of many. */
    public Map<K, Optional<V>> getAll(Collection<? extends K> ids) {
        return getAll(ids, given(loaderOfAll));
    }

    /**
     * Returns rows, fetched together: each id as it was passed, with its row or nothing. The loader gets the ids that this call has to
     * load, and returns a map without those that have no row. It is called once, and again for rows that other callers were loading and
     * did not bring.
     */
    public Map<K, Optional<V>> getAll(
            Collection<? extends K> ids, Loader<? super Collection<K>, ? extends Map<K, V>> loader) {
        return getAll(ids, loader, null);
    }

    /** {@link #getAll(Collection, Loader)} with a time to live of its own, for the rows that are loaded. */
    public Map<K, Optional<V>> getAll(
            Collection<? extends K> ids, Loader<? super Collection<K>, ? extends Map<K, V>> loader, @Nullable Duration ttl) {
        long ttlMs = ttlMs(ttl);
        Map<K, Optional<V>> rows = Caller.block(client, caller ->
                many(ids, left -> running(left, () -> loader.load(left)), ttlMs, caller));
        check();
        return rows;
    }

    /** {@link #getAllAsync(Collection, AsyncLoader)} with the guard's loader of many, in the executor of the client. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(Collection<? extends K> ids) {
        Loader<? super Collection<K>, ? extends Map<K, V>> given = given(loaderOfAll);
        return beginAll(ids, left -> running(left, () -> given.load(left)), null);
    }

    /** {@link #getAll(Collection, Loader)} without blocking. Cancelling the future gives the leases up. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(
            Collection<? extends K> ids, AsyncLoader<? super Collection<K>, ? extends Map<K, V>> loader) {
        return getAllAsync(ids, loader, null);
    }

    /** {@link #getAllAsync(Collection, AsyncLoader)} with a time to live of its own, for the rows that are loaded. */
    public CompletableFuture<Map<K, Optional<V>>> getAllAsync(
            Collection<? extends K> ids, AsyncLoader<? super Collection<K>, ? extends Map<K, V>> loader, @Nullable Duration ttl) {
        return beginAll(ids, left -> beginning(left, () -> loader.load(left)), ttl);
    }

    private CompletableFuture<Map<K, Optional<V>>> beginAll(
            Collection<? extends K> ids, Function<Collection<K>, Function<Caller, CompletableFuture<Map<K, V>>>> load, @Nullable Duration ttl) {
        long ttlMs = ttlMs(ttl);
        return Caller.begin(client, caller -> many(ids, load, ttlMs, caller)
                .whenComplete((rows, error) -> check()));
    }

    /** A writer's first call, before the commit. If it throws, do not commit. With a feed it does nothing. */
    @SafeVarargs
    @SuppressWarnings("varargs")
    public final void announce(K... ids) {
        announce(rows(Arrays.asList(ids)));
    }

    private void announce(List<Row> rows) {
        Caller.block(client, caller -> writes.announce(rows, caller));
        check();
    }

    /**
     * A writer's second call, after the commit or the rollback. It is repeated for up to {@code patience} until the server answers, also
     * while its thread is interrupted. Then it throws {@link Unconfirmed}.
     *
     * <p>If the outcome of the commit is unknown, find it out before this call, or end the database's session: a commit that lands after
     * this call leaves the old row cached. With a feed it does nothing.
     */
    @SafeVarargs
    @SuppressWarnings("varargs")
    public final void confirm(K... ids) {
        confirm(rows(Arrays.asList(ids)));
    }

    private void confirm(List<Row> rows) {
        Caller.blockUninterrupted(client, caller -> writes.confirm(rows, caller));
        check();
    }

    /** {@link #announce} without blocking. */
    public CompletableFuture<Void> announceAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.announce(rows, caller));
    }

    /** {@link #confirm} without blocking. It is repeated though the future is cancelled. */
    public CompletableFuture<Void> confirmAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.confirm(rows, Caller.asynchronous(client)));
    }

    /**
     * A writer's second call if the outcome of its commit is unknown and cannot be found out: confirms the change now, and again after
     * {@code lease}. A commit that lands later than that still leaves the old row cached for up to {@code ttl}.
     */
    public CompletableFuture<Void> confirmUnknownAsync(Collection<? extends K> ids) {
        List<Row> rows = rows(ids);
        return Caller.begin(client, caller -> writes.confirmTwice(rows, Caller.asynchronous(client)));
    }

    /**
     * Announces a change of a row, runs a transaction, and confirms the change, whatever happens in it. The transaction has to end inside
     * of {@code transaction}, its outcome known. With a feed this only runs it: the follower announces each change. Returns what the
     * transaction returns; its checked exceptions are thrown inside of a {@link CompletionException}.
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
     * {@link #changedAll} for a transaction that does not block. Cancelling the future cancels the transaction, whose end is confirmed all
     * the same.
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
     * Deletes ids that never return from the filter, after their rows were deleted inside of {@code changed}. The filter needs SipHash.
     * With a feed it does nothing: the follower deletes the ids of deleted rows.
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
     * Deletes all cached rows (SCAN and UNLINK). The filter keeps its ids. A load that is under way may cache its row afterwards: this is
     * for tidying up, not in place of {@link #changed(Object, Callable)}.
     */
    public void clear() {
        Caller.block(client, writes::clear);
    }

    /**
     * Returns whether the living follower of a guard with a feed says that it deletes this guard's cache keys. Returns nothing if no
     * follower is alive. The server's user needs the permission for GET.
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

    /**
     * Reads rows. Ids that are written in the same bytes, such as 7 and "7", name one row: it is loaded by the first of them, and returned
     * under each.
     */
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

    /** Returns a load of rows that blocks. */
    private <T extends @Nullable Object> Function<Caller, CompletableFuture<T>> running(Collection<?> ids, Callable<T> load) {
        return caller -> caller.run(reads.during(rows(ids), load));
    }

    /** Returns a load of rows that begins something, and awaits that. */
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
     * Calls a function that begins something, and awaits that. The function runs in the client's executor: it may block, and Lettuce's
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

    /**
     * After the first call that the server has answered, warns if it has replicas and goes on without them: such a primary answers with
     * its old data after a failover, until somebody tells it that it is a replica now.
     */
    private void check() {
        if (!reads.hasAnswered || !isChecked.compareAndSet(false, true)) {
            return;
        }
        var info = Link.command(reads.filter, "INFO", "replication");
        reads.link.ask(List.of(info), Caller.asynchronous(client)).thenAccept(outcomes -> {
            String found = Replies.text(outcomes.get(0));
            // The server reports the number of its good replicas only if it has the setting.
            if (found.contains("role:master") && !found.contains("connected_slaves:0") && !found.contains("min_slaves_good_slaves")
                    && found.contains("connected_slaves:")) {
                reads.warnings.about("the server has replicas and min-replicas-to-write is 0: after a failover the old primary goes on "
                        + "serving old rows, and calls new ones absent, until it becomes a replica. Set min-replicas-to-write 1 in its "
                        + "configuration file", null);
            }
        });
    }

    /** The options of a guard. */
    public static final class Builder<V> {
        final Bloomgate client;
        final byte[] filter;
        final Codec<V> codec;
        long ttlMs = 60_000;
        long absentTtlMs = 10_000;
        long leaseMs = 3_000;
        long waitMs = 3_000;
        int attempts = 3;
        long failSafeMs;
        @Nullable Long softTimeoutMs;
        Predicate<? super Throwable> isFailure = error -> true;
        double beta = 1;
        boolean feed;
        long freshMs;
        long patienceMs = 30_000;
        byte @Nullable [] prefix;
        List<byte[]> announceTo = List.of();
        Durability durability;
        @Nullable BiConsumer<Event, Integer> listener;
        int replicas;
        Duration replicasTimeout = Duration.ofSeconds(1);
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

        /** Sets the time to live of the knowledge that there is no row: 10 s. */
        public Builder<V> absentTtl(Duration time) {
            absentTtlMs = Options.ABSENT_TTL.milliseconds(time);
            return this;
        }

        /** Sets how long one caller may take to load a row while the others wait: 3 s, at most an hour. */
        public Builder<V> lease(Duration time) {
            leaseMs = Options.LEASE.milliseconds(time);
            return this;
        }

        /** Sets how long a caller waits at a time for another one that loads the row: 3 s. With 0 it asks the database at once. */
        public Builder<V> wait(Duration time) {
            waitMs = Options.WAIT.milliseconds(time);
            return this;
        }

        /** Sets how often a caller waits for that long before it asks the database itself: 3. */
        public Builder<V> attempts(int number) {
            attempts = Options.ATTEMPTS.number(number);
            return this;
        }

        /**
         * Sets how long a value stays in the cache after its {@code ttl}: not at all. One caller refreshes such a value; the others get it
         * meanwhile, and everybody gets it where the load fails. Then nobody asks the database for the row before a back-off has passed;
         * callers without an old value get {@link BloomgateException.LoadFailed}.
         */
        public Builder<V> failSafe(Duration time) {
            failSafeMs = Options.FAIL_SAFE.milliseconds(time);
            return this;
        }

        /**
         * Sets for which errors of a load {@code failSafe} serves old values and begins a back-off: all exceptions. For the others, which are
         * answers of the program rather than failures of the database, the lease ends, and the error is thrown.
         */
        public Builder<V> failSafeFor(Predicate<? super Throwable> isFailure) {
            this.isFailure = isFailure;
            return this;
        }

        /**
         * Serves an old value, if there is one, when a load takes longer. The load continues in the background, so loaders run in the
         * executor of the client wherever there is an old value. {@code get} calls the executor in its own thread: one that captures
         * thread-locals there, as Spring's decorators of tasks do, passes them to the loader.
         */
        public Builder<V> softTimeout(Duration time) {
            softTimeoutMs = Options.SOFT_TIMEOUT.milliseconds(time);
            return this;
        }

        /** Multiplies how long before its end a value is renewed: 1. With 0 it is not renewed early. */
        public Builder<V> beta(double factor) {
            beta = Options.BETA.factor(factor);
            return this;
        }

        /**
         * For a table that {@code bloomgate follow} follows. The writers need no guard then: {@code changed}, {@code announce},
         * {@code confirm} and {@code forget} send nothing. No row is absent unless the follower's heartbeat exists, and a row with a write
         * in flight is waited for.
         */
        public Builder<V> feed(boolean isFed) {
            feed = isFed;
            return this;
        }

        /**
         * Sets how old an answer may be while the follower's heartbeat is missing: without a limit by default, or if 0. It is at least the
         * lease and at most an hour, and needs a feed. With a follower that is down, each row is then loaded once in this time.
         */
        public Builder<V> fresh(Duration time) {
            freshMs = Options.FRESH.milliseconds(time);
            return this;
        }

        /** Sets how long {@link Guard#confirm} is repeated: 30 s. */
        public Builder<V> patience(Duration time) {
            patienceMs = Options.PATIENCE.milliseconds(time);
            return this;
        }

        /** Sets what precedes an id in the name of its cache key: by default <code>{filter}:</code>. */
        public Builder<V> prefix(String prefix) {
            this.prefix = Items.bytes(prefix);
            return this;
        }

        /** Names filters that are being filled, to which each id is announced first. */
        public Builder<V> announceTo(String... filters) {
            announceTo = Arrays.stream(filters).map(Items::bytes).toList();
            return this;
        }

        /** Sets how many replicas must have a change before it counts (WAIT): none. */
        public Builder<V> replicas(int number) {
            replicas = number;
            return this;
        }

        /** Sets how long the replicas, or the disk, may take: 1 s. */
        public Builder<V> replicasTimeout(Duration time) {
            replicasTimeout = time;
            return this;
        }

        /** Sets whether a change must be in the append-only file on disk before it counts (WAITAOF). */
        public Builder<V> aof(boolean isAsked) {
            aof = isAsked;
            return this;
        }

        /** Calls a function with each event and a number of times, for metrics and tests. It must not block. */
        public Builder<V> listener(BiConsumer<Event, Integer> listener) {
            this.listener = listener;
            return this;
        }

        /**
         * Makes the guard. It sends nothing. A client's guards with one prefix share their cached rows, so they need equal codecs: another
         * one is refused, and needs a prefix of its own.
         */
        public <K> Guard<K, V> build() {
            return build(null, null);
        }

        /** {@link #build()} with the loader of calls that bring none of their own. */
        public <K> Guard<K, V> build(Loader<? super K, ? extends V> loader) {
            return build(loader, null);
        }

        /** {@link #build()} with the loaders of calls that bring none of their own: of one row, and of those of {@code getAll}. */
        public <K> Guard<K, V> build(
                @Nullable Loader<? super K, ? extends V> loader, @Nullable Loader<? super Collection<K>, ? extends Map<K, V>> loaderOfAll) {
            durability = new Durability(replicas, replicasTimeout, aof);
            if (feed && (!announceTo.isEmpty() || durability.isAsked())) {
                throw new IllegalArgumentException(
                        "with a feed the follower announces changes: announceTo, replicas and aof have no effect");
            }
            if (freshMs > 0 && (!feed || freshMs < leaseMs)) {
                throw new IllegalArgumentException("fresh needs feed, and is at least the lease, " + leaseMs + " ms, not " + freshMs + " ms");
            }
            client.claim(prefix != null ? prefix : Keys.cachePrefix(filter), codec);
            return new Guard<>(this, loader, loaderOfAll);
        }
    }
}
