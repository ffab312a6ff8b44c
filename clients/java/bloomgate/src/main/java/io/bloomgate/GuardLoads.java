package io.bloomgate;

import io.bloomgate.Connection.Command;
import io.bloomgate.Flights.Flight;
import io.bloomgate.Keys.Row;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Supplier;

/** Loading rows under leases: filling them, and what happens when the database fails or is slow. */
class GuardLoads<V> extends GuardCommands<V> {
    /** The weight of the newest load in the average duration of loads. */
    private static final double SMOOTHING = 0.2;

    /** The back-off after the first failed load of a row. It doubles with each further failure. */
    private static final long BACKOFF_MS = 100;

    /** The longest back-off. */
    private static final long MOST_BACKOFF_MS = 10_000;

    /** The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten. */
    private static final int MOST_FAILING = 10_000;

    /** The most loads of a guard that continue in the background after their `softTimeout`. */
    private static final int BACKGROUND_LOADS = 64;

    /** Loads rows by their ids. Rows that it leaves out do not exist. */
    interface LoadRows<V> extends Function<Caller, CompletableFuture<Map<String, V>>> {}

    /** Returns what loads some rows. */
    interface LoaderOf<V> extends Function<List<Row>, LoadRows<V>> {}

    /** Rows to load under leases. `hasValues` says whether all of them have old values in the cache, which may be served. */
    record Loading<V>(List<Lease> leases, Collection<Flight> flights, LoaderOf<V> loader, long ttlMs, boolean hasValues) {
        List<Row> rows() {
            return leases.stream().map(Lease::row).toList();
        }

        /** Returns when the first of the reads began that need the rows. */
        long begun() {
            return flights.stream().mapToLong(flight -> flight.begun).min().orElseThrow();
        }
    }

    /** The failed loads of each row, in the order of the last failure. */
    private final Map<String, Integer> failing = new LinkedHashMap<>();
    private final AtomicInteger background = new AtomicInteger();
    private final AtomicLong clock = new AtomicLong();
    final Flights flights = new Flights(clock);
    private final Flights direct = new Flights(clock);
    final OwnLoads own = new OwnLoads();

    GuardLoads(Guard.Builder<V> options) {
        super(options);
    }

    /** Calls a function that loads some rows, and takes its duration into the average. If the call is aborted, does not wait for it. */
    <T> CompletableFuture<T> timed(Function<Caller, CompletableFuture<T>> load, int rows, Caller caller) {
        long begun = System.nanoTime();
        return load.apply(caller).whenComplete((loaded, error) -> {
            if (error == null) {
                double ms = (System.nanoTime() - begun) / 1e6;
                loadMs += (ms - loadMs) * (loadMs == 0 ? 1 : SMOOTHING);
            } else if (!caller.signal.isAborted()) {
                count(Event.LOAD_FAILED, rows);
            }
        });
    }

    /**
     * Loads rows under leases, and fills them or gives the leases up. If the load takes longer than `softTimeout`, serves the old values;
     * the load then continues in the background.
     */
    CompletableFuture<Map<String, V>> loadRows(Loading<V> loading, Caller caller) {
        if (options.softTimeoutMs == null || !loading.hasValues) {
            return loadAndFill(loading, caller);
        }
        if (background.incrementAndGet() > BACKGROUND_LOADS) {
            background.decrementAndGet();
            return backOff(loading.leases, caller).thenCompose(nothing -> serveOld(loading, null, caller));
        }
        Caller behind = Caller.asynchronous(client);
        Runnable abort = behind.signal::abort;
        caller.signal.add(abort);
        CompletableFuture<Map<String, V>> running = loadAndFill(loading, behind);
        running.whenComplete((rows, error) -> background.decrementAndGet());
        return caller.settles(running, options.softTimeoutMs)
                .thenCompose(isDone -> isDone ? running : serveOld(loading, running, caller))
                // From here on no caller waits for the load, so none can abort it.
                .whenComplete((rows, error) -> caller.signal.remove(abort));
    }

    /** Serves old values while a load runs, or instead of one. If a row has none any more, waits for the load. */
    private CompletableFuture<Map<String, V>> serveOld(
            Loading<V> loading, CompletableFuture<Map<String, V>> running, Caller caller) {
        return oldValues(loading.rows(), caller).thenCompose(old -> {
            if (old.size() == loading.leases.size()) {
                count(Event.SOFT_TIMEOUT, old.size());
                return CompletableFuture.completedFuture(old);
            }
            return running != null ? caller.until(running) : unguarded(loading.rows(), loading.loader, loading.begun(), caller);
        });
    }

    /**
     * Reads rows from the database, and fills nothing: the server does not answer, or other callers have not brought the rows in time. A
     * process runs one such load of a row at a time. Those that wait for it share the next one, which begins after their reads have begun.
     */
    CompletableFuture<Map<String, V>> unguarded(List<Row> rows, LoaderOf<V> loader, long begun, Caller caller) {
        return new DirectReads(rows, loader, begun, caller).read();
    }

    /** The rows that this thread is loading. A load that asks for one of them would wait for itself; so that call loads, and fills nothing. */
    final class OwnLoads {
        private final ThreadLocal<Set<String>> ids = ThreadLocal.withInitial(Set::of);

        boolean has(Row row) {
            return ids.get().contains(row.id);
        }

        /** Wraps a load of rows. Of an asynchronous one it sees only what its thread does before that returns. */
        <T> Callable<T> during(List<Row> rows, Callable<T> load) {
            return () -> {
                Set<String> outer = ids.get();
                Set<String> all = new HashSet<>(outer);
                rows.forEach(row -> all.add(row.id));
                ids.set(all);
                try {
                    return load.call();
                } finally {
                    if (outer.isEmpty()) {
                        ids.remove();
                    } else {
                        ids.set(outer);
                    }
                }
            };
        }

        CompletableFuture<Map<String, V>> load(List<Row> rows, LoaderOf<V> loader, Caller caller) {
            if (rows.isEmpty()) {
                return CompletableFuture.completedFuture(Map.of());
            }
            count(Event.UNGUARDED, rows.size());
            return attempt(() -> loader.apply(rows).apply(caller)).thenApply(loaded -> decodeRows(encodeRows(loaded)));
        }
    }

    /** The state of one call of unguarded. */
    private final class DirectReads {
        private final LoaderOf<V> loader;
        private final Caller caller;
        private final Map<Flight, Row> left = new LinkedHashMap<>();
        private final Map<String, V> found = new HashMap<>();

        DirectReads(List<Row> rows, LoaderOf<V> loader, long begun, Caller caller) {
            this.loader = loader;
            this.caller = caller;
            rows.forEach(row -> left.put(direct.begin(row.id, begun), row));
        }

        CompletableFuture<Map<String, V>> read() {
            left.keySet().forEach(direct::beginWait);
            return attempt(this::next).whenComplete((nothing, error) -> direct.endAll(left.keySet())).thenApply(nothing -> found);
        }

        /**
         * Loads the rows that no other caller loads, then waits for the others. It ends the flights of its own load before it waits, so
         * that two calls never wait for each other.
         */
        private CompletableFuture<Void> next() {
            List<Flight> leading = new ArrayList<>();
            List<CompletableFuture<Void>> waking = new ArrayList<>();
            for (Flight flight : List.copyOf(left.keySet())) {
                CompletableFuture<Void> wake = direct.waiting(flight);
                if (wake != null) {
                    waking.add(wake);
                } else if (flight.givenFailure() != null) {
                    count(Event.SHARED, 1);
                    throw new CompletionException(caller.shared(flight.givenFailure()));
                } else if (flight.givenAnswer() != null) {
                    count(Event.SHARED, 1);
                    found.put(left.get(flight).id, GuardLoads.this.read(flight.givenAnswer(), null).value());
                    end(List.of(flight));
                } else {
                    leading.add(flight);
                }
            }
            if (!leading.isEmpty()) {
                return load(leading).thenCompose(nothing -> next());
            }
            return waking.isEmpty() ? CompletableFuture.completedFuture(null)
                    : caller.until(CompletableFuture.anyOf(waking.toArray(CompletableFuture[]::new))).thenCompose(nothing -> next());
        }

        private CompletableFuture<Void> load(List<Flight> leading) {
            count(Event.UNGUARDED, leading.size());
            leading.forEach(direct::ask);
            return attempt(() -> loader.apply(leading.stream().map(left::get).toList()).apply(caller)).thenAccept(loaded -> {
                Map<String, byte[]> encoded = encodeRows(loaded);
                found.putAll(decodeRows(encoded));
                leading.forEach(flight -> flight.outcome = Fetched.loaded(encoded.get(left.get(flight).id)));
            }).whenComplete((nothing, error) -> {
                if (error != null && !caller.signal.isAborted()) {
                    leading.forEach(flight -> flight.failure = Caller.cause(error));
                }
                end(leading);
            });
        }

        private void end(List<Flight> flights) {
            flights.forEach(left::remove);
            direct.endAll(flights);
        }
    }

    private CompletableFuture<Map<String, V>> loadAndFill(Loading<V> loading, Caller caller) {
        List<Lease> left = new ArrayList<>(loading.leases);
        return attempt(() -> loadAndFill(loading, left, caller)).handle((rows, error) -> {
            if (error == null) {
                synchronized (failing) {
                    loading.leases.forEach(lease -> failing.remove(lease.row().id));
                }
                return CompletableFuture.completedFuture(rows);
            }
            Throwable cause = Caller.cause(error);
            if (caller.signal.isAborted()) {
                giveUp(left);
                return CompletableFuture.<Map<String, V>>failedFuture(cause);
            }
            boolean isFailure = !(cause instanceof Error) && options.isFailure.test(cause);
            return (isFailure ? backOff(left, caller) : giveUp(left, caller))
                    .thenCompose(nothing -> afterFailure(loading, cause, isFailure, caller));
        }).thenCompose(outcome -> outcome);
    }

    private CompletableFuture<Map<String, V>> loadAndFill(Loading<V> loading, List<Lease> left, Caller caller) {
        if (caller.signal.isAborted()) {
            throw new CancellationException("the call was cancelled");
        }
        return loading.loader.apply(loading.rows()).apply(caller).thenCompose(loaded -> {
            Map<String, byte[]> encoded = encodeRows(loaded);
            Map<String, V> rows = decodeRows(encoded);
            return fillAll(encoded, left, loading.ttlMs, caller).thenApply(nothing -> rows);
        });
    }

    /** Sends the fills of up to 500 rows and 1 MiB together, and the next ones after their replies. */
    private CompletableFuture<Void> fillAll(Map<String, byte[]> encoded, List<Lease> left, long ttlMs, Caller caller) {
        int size = 0;
        long bytes = 0;
        for (; size < Math.min(BATCH, left.size()); size++) {
            byte[] row = encoded.get(left.get(size).row().id);
            bytes += row == null ? 0 : row.length;
            if (size > 0 && bytes > Items.COMMAND_BYTES) {
                break;
            }
        }
        if (size == 0) {
            return CompletableFuture.completedFuture(null);
        }
        List<Lease> part = List.copyOf(left.subList(0, size));
        left.subList(0, size).clear();
        List<Command> fills = part.stream().map(lease -> fillWith(lease, encoded.get(lease.row().id), ttlMs)).toList();
        // If the call is aborted, what the server refuses is given up all the same.
        return caller.until(sendFills(part, fills, Caller.asynchronous(client)))
                .thenCompose(nothing -> fillAll(encoded, left, ttlMs, caller));
    }

    private CompletableFuture<Map<String, V>> afterFailure(Loading<V> loading, Throwable cause, boolean isFailure, Caller caller) {
        CompletableFuture<Map<String, V>> looking = loading.hasValues && isFailure
                ? oldValues(loading.rows(), caller) : CompletableFuture.completedFuture(Map.of());
        return looking.thenApply(old -> {
            if (old.size() == loading.leases.size()) {
                count(Event.STALE_SERVED, old.size());
                warnings.about("rows could not be loaded, and their old values were served", cause);
                return old;
            }
            loading.flights.forEach(flight -> flight.failure = cause);
            throw new CompletionException(cause);
        });
    }

    /**
     * Fetches values that may be served though they are old. The values that were fetched before a load do not qualify: a row may have
     * been changed during the load, and then its value has been deleted.
     */
    private CompletableFuture<Map<String, V>> oldValues(List<Row> rows, Caller caller) {
        return fetch(rows, Fetching.ANY, caller).thenCompose(found -> {
            Map<String, V> old = new HashMap<>();
            List<Lease> unneeded = new ArrayList<>();
            for (int index = 0; index < rows.size(); index++) {
                Fetched one = found.get(index);
                if (one.error() != null || one.word() == Event.WAIT) {
                    continue;
                }
                Answer<V> answer = read(one, null);
                if (answer.token() != null) {
                    unneeded.add(new Lease(rows.get(index), answer.token()));
                }
                if (answer.isReadable()) {
                    old.put(rows.get(index).id, answer.value());
                }
            }
            return giveUp(unneeded, caller).thenApply(nothing -> old);
        });
    }

    /**
     * Ends the leases of rows whose load has failed. With `failSafe`, nobody gets another lease for them before a back-off has passed. It
     * doubles with each failure. A server that does not know BACKOFF ends the leases only.
     */
    private CompletableFuture<Void> backOff(List<Lease> leases, Caller caller) {
        if (options.failSafeMs == 0 || leases.isEmpty()) {
            return giveUp(leases, caller);
        }
        List<Command> commands = leases.stream()
                .map(lease -> fill(lease, "GIVEUP", "BACKOFF", nextBackoffMs(lease.row().id))).toList();
        return link.askFirst(commands, caller).thenCompose(outcomes -> {
            List<Lease> refused = new ArrayList<>();
            for (int index = 0; index < outcomes.size(); index++) {
                if (outcomes.get(index) instanceof RuntimeException error) {
                    warnings.about("the server has refused a back-off", error);
                    refused.add(leases.get(index));
                }
            }
            return giveUp(refused, caller);
        });
    }

    /** Counts a failed load of a row, and returns how long nobody may try again. */
    private long nextBackoffMs(String id) {
        synchronized (failing) {
            Integer before = failing.remove(id);
            int failures = before == null ? 0 : before;
            failing.put(id, failures + 1);
            if (failing.size() > MOST_FAILING) {
                Iterator<String> oldest = failing.keySet().iterator();
                oldest.next();
                oldest.remove();
            }
            return Math.min(MOST_BACKOFF_MS, BACKOFF_MS << Math.min(failures, 16));
        }
    }

    /** Begins some steps: what they throw is the failure of the returned future. */
    static <T> CompletableFuture<T> attempt(Supplier<CompletableFuture<T>> steps) {
        try {
            return steps.get();
        } catch (Throwable error) {
            return CompletableFuture.failedFuture(error);
        }
    }
}
