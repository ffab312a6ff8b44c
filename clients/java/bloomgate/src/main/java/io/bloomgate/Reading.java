package io.bloomgate;

import io.bloomgate.BloomgateException.LoadFailed;
import io.bloomgate.Flights.Flight;
import io.bloomgate.Flights.Shared;
import io.bloomgate.Keys.Row;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Reads rows through the guard (docs/guard.md of the project): waits for other callers, loads rows, and serves old values if the database
 * fails or is slow.
 */
final class Reading<V> extends Fetching<V> {
    /** The pause before a row is fetched again if the server cannot block another caller. */
    private static final long REPEAT_MS = 100;

    /** The maximum number of a guard's loads that continue in the background after their `softTimeout`. */
    private static final int BACKGROUND_LOADS = 64;

    /** After this time another caller also loads a row without a lease, so that a hung query does not block its row forever. */
    private static final long LOST_MS = 60_000;

    /** Loads rows by their ids. Omitted rows do not exist. */
    @FunctionalInterface
    interface LoadRows<V> {
        CompletableFuture<Map<String, V>> load(List<Row> rows, Caller caller);
    }

    /** Loaded rows encoded, and decoded again, so that every caller gets the value that the cache would return. */
    private record Loaded<V>(Map<String, byte[]> encoded, Map<String, V> rows) {}

    private final AtomicLong clock = new AtomicLong();
    private final Flights flights = new Flights(clock);
    private final Flights direct = new Flights(clock);
    private final AtomicInteger background = new AtomicInteger();
    /**
     * The rows that a thread is loading. A call for one of them inside the load would wait for itself, so it loads the row and fills
     * nothing.
     */
    private final ThreadLocal<Set<String>> loading = ThreadLocal.withInitial(Set::of);

    Reading(Guard.Builder<V> options) {
        super(options);
    }

    /** One call of get or getAll. */
    private final class Call {
        final LoadRows<V> load;
        final long ttlMs;
        final Caller caller;
        final long begun = clock.incrementAndGet();
        final long begunMs = nowMs();
        /** The rows that the call's thread is loading. */
        final Set<String> inside = loading.get();
        final Map<String, V> found = new HashMap<>();
        /** The rows for which the server failed, or whose loads by other callers did not complete in time. */
        final List<Row> unsettled = new ArrayList<>(0);
        /** The flights of the loads of these rows without leases. */
        @Nullable List<Flight> directly;

        Call(LoadRows<V> load, long ttlMs, Caller caller) {
            this.load = load;
            this.ttlMs = ttlMs;
            this.caller = caller;
        }

        List<Flight> directly() {
            if (directly == null) {
                directly = unsettled.stream().map(row -> direct.beginWait(row, begun)).toList();
            }
            return directly;
        }
    }

    /** Reads a row. */
    CompletableFuture<V> get(Row row, LoadRows<V> load, long ttlMs, Caller caller) {
        Call call = new Call(load, ttlMs, caller);
        CompletableFuture<Void> done = call.inside.contains(row.id) ? loadOwn(List.of(row), call)
                : read(row, call.begunMs + options.attempts * options.waitMs, call, true).thenCompose(nothing -> loadDirectly(call));
        return done.thenApply(nothing -> call.found.get(row.id));
    }

    /** Reads rows by their ids. */
    CompletableFuture<Map<String, V>> getMany(List<Row> rows, LoadRows<V> load, long ttlMs, Caller caller) {
        Call call = new Call(load, ttlMs, caller);
        List<Row> own = rows.stream().filter(row -> call.inside.contains(row.id)).toList();
        List<Row> others = rows.stream().filter(row -> !call.inside.contains(row.id)).toList();
        return loadOwn(own, call).thenCompose(nothing -> readMany(others, call.begunMs + options.waitMs, call))
                .thenCompose(nothing -> loadDirectly(call)).thenApply(nothing -> call.found);
    }

    private CompletableFuture<Void> readMany(List<Row> rows, long deadline, Call call) {
        return readAll(rows, call).thenCompose(waiting -> {
            if (waiting.isEmpty() || nowMs() >= deadline) {
                call.unsettled.addAll(waiting);
                return DONE;
            }
            // By the time the first row is loaded, most of the others are, too.
            return read(waiting.get(0), deadline, call, false)
                    .thenCompose(nothing -> readMany(waiting.subList(1, waiting.size()), deadline, call));
        });
    }

    /** Returns a row that is cached and not old, or null. */
    CompletableFuture<V> peek(Row row, Caller caller) {
        return fetch(List.of(row), 0, caller).thenApply(found -> {
            Fetched one = found.get(0);
            if (one.token() != null) {
                giveUp(List.of(new Lease(row, one.token())));
            }
            Decoded<V> known = one.word() == Event.HIT ? decode(one) : null;
            return known == null ? null : known.row();
        });
    }

    /** Reads a row, and waits until the deadline for a caller that loads it. */
    private CompletableFuture<Void> read(Row row, long deadline, Call call, boolean isLast) {
        List<Flight> flight = List.of(flights.begin(row, call.begun));
        return Caller.attempt(() -> fetchFor(flight, 0, call.caller).thenCompose(found -> settle(flight.get(0), found.get(0), deadline, call)))
                .whenComplete((nothing, error) -> end(flight, call, isLast && error == null));
    }

    private CompletableFuture<Void> settle(Flight flight, Fetched found, long deadline, Call call) {
        return settle(List.of(flight), List.of(found), call).thenCompose(waiting -> {
            long leftMs = deadline - nowMs();
            if (waiting.isEmpty() || leftMs <= 0) {
                call.unsettled.addAll(waiting);
                return DONE;
            }
            return await(flight, leftMs, call.caller).thenCompose(next -> settle(flight, next, deadline, call));
        });
    }

    /** Reads rows. Ends with those that other callers load. */
    private CompletableFuture<List<Row>> readAll(List<Row> rows, Call call) {
        if (rows.isEmpty()) {
            return CompletableFuture.completedFuture(rows);
        }
        List<Flight> all = rows.stream().map(row -> flights.begin(row, call.begun)).toList();
        return Caller.attempt(() -> fetchFor(all, 0, call.caller).thenCompose(found -> settle(all, found, call)))
                .whenComplete((waiting, error) -> end(all, call, error == null && waiting.isEmpty()));
    }

    /** Fetches the rows of flights, and stores the tokens in the flights. */
    private CompletableFuture<List<Fetched>> fetchFor(List<Flight> all, long waitMs, Caller caller, Object... words) {
        all.forEach(flights::ask);
        return fetch(rows(all), waitMs, caller, words).thenApply(answers -> {
            for (int index = 0; index < answers.size(); index++) {
                all.get(index).token = answers.get(index).token();
            }
            return answers;
        });
    }

    private CompletableFuture<Fetched> fetchFor(Flight flight, Caller caller, Object... words) {
        return fetchFor(List.of(flight), 0, caller, words).thenApply(answers -> answers.get(0));
    }

    private static List<Row> rows(List<Flight> all) {
        return all.size() == 1 ? List.of(all.get(0).row) : all.stream().map(flight -> flight.row).toList();
    }

    /**
     * Ends flights, and their remaining leases. If the server failed for some rows, the call first begins to load them, so that waiting
     * callers resume and share its load.
     */
    private void end(Collection<Flight> all, Call call, boolean isLast) {
        if (isLast) {
            call.directly();
        }
        giveUp(takeLeases(all));
        flights.end(all);
    }

    private static List<Lease> takeLeases(Collection<Flight> all) {
        List<Lease> leases = new ArrayList<>(0);
        for (Flight flight : all) {
            if (flight.token != null) {
                leases.add(new Lease(flight.row, flight.token));
                flight.token = null;
            }
        }
        return leases;
    }

    /**
     * Stores the rows of answers, and loads the rows with leases. Fetches rows again whose values cannot be decoded. Ends with the rows
     * that other callers load.
     */
    private CompletableFuture<List<Row>> settle(List<Flight> all, List<Fetched> answers, Call call) {
        List<Row> waiting = new ArrayList<>(0);
        List<Flight> unreadable = sort(all, answers, waiting, call);
        CompletableFuture<Void> sorted = unreadable.isEmpty() ? DONE : fetchFor(unreadable, 0, call.caller, "REPLACE")
                .thenAccept(again -> sort(unreadable, again, waiting, call));
        return sorted.thenCompose(nothing -> {
            List<Flight> leased = all.stream().filter(flight -> flight.token != null).toList();
            if (leased.isEmpty()) {
                return CompletableFuture.completedFuture(waiting);
            }
            // Only flights with a lease will load a row, so no caller in this process needs to wait for the others.
            flights.end(all.stream().filter(flight -> flight.token == null).toList());
            return new Loading(leased, call).run().thenApply(loaded -> {
                call.found.putAll(loaded);
                return waiting;
            });
        });
    }

    /**
     * Stores the rows of answers, and adds the rows that other callers load to `waiting`. Returns the flights whose values cannot be
     * decoded.
     */
    private List<Flight> sort(List<Flight> all, List<Fetched> answers, List<Row> waiting, Call call) {
        List<Flight> unreadable = new ArrayList<>(0);
        for (int index = 0; index < all.size(); index++) {
            Flight flight = all.get(index);
            Fetched one = answers.get(index);
            Decoded<V> known = decode(one);
            if (one.error() != null) {
                call.unsettled.add(flight.row);
                flight.share(one);
            } else if (known != null && (flight.token == null || flight.replaces)) {
                call.found.put(flight.row.id, known.row());
                flight.share(one.withoutToken());
                // Another caller has replaced the value.
                giveUp(takeLeases(List.of(flight)));
            } else if (flight.token != null) {
                flight.hasOld = known != null;
            } else if (one.word() == Event.HIT && !flight.replaces) {
                flight.replaces = true;
                unreadable.add(flight);
            } else {
                waiting.add(flight.row);
            }
        }
        return unreadable;
    }

    /**
     * Waits for the holder of the lease, in this process or inside the server. Ends with the outcome that another caller shares, or with
     * the server's answer. If all waiting connections are in use, it pauses.
     */
    private CompletableFuture<Fetched> await(Flight flight, long leftMs, Caller caller) {
        CompletableFuture<Void> resumed = flights.wait(flight);
        if (resumed != null) {
            // A timer may fire a millisecond early; this call would then wait again.
            return caller.settles(resumed, leftMs + 1).thenCompose(hasEnded -> {
                flights.stop(flight);
                Shared given = flights.takeGiven(flight);
                return given == null ? fetchFor(flight, caller) : CompletableFuture.completedFuture(answer(given, caller));
            });
        }
        Object[] replace = flight.replaces ? new Object[] {"REPLACE"} : new Object[0];
        if (!waiting.tryReserve()) {
            return caller.pause(Math.min(REPEAT_MS, leftMs)).thenCompose(nothing -> fetchFor(flight, caller, replace));
        }
        long waitMs = Math.min(options.waitMs, leftMs);
        long begun = nowMs();
        List<Object> words = new ArrayList<>(List.of(replace));
        Collections.addAll(words, "WAIT", waitMs, "BACKOFF");
        return fetchFor(List.of(flight), waitMs, caller, words.toArray()).thenCompose(found -> {
            Fetched one = found.get(0);
            if (one.word() == Event.FAILED) {
                var failed = new LoadFailed(flight.row.item, null);
                flight.fail(failed);
                throw failed;
            }
            // CLIENT UNBLOCK ended the wait.
            long restMs = one.word() == Event.WAIT ? Math.min(REPEAT_MS, waitMs) - (nowMs() - begun) : 0;
            return restMs <= 0 ? CompletableFuture.completedFuture(one) : caller.pause(restMs).thenApply(nothing -> one);
        });
    }

    /** Returns the answer that another caller shared, or throws its failure. */
    private Fetched answer(Shared given, Caller caller) {
        count(Event.SHARED, 1);
        if (given.failure() != null) {
            throw new CompletionException(caller.shared(given.failure()));
        }
        return given.answer();
    }

    /** Loads and converts rows. Does not wait for them if the call is aborted. */
    private CompletableFuture<Loaded<V>> load(List<Row> rows, LoadRows<V> load, Caller caller) {
        return Caller.attempt(() -> {
            if (caller.signal.isAborted()) {
                throw new CancellationException("the call was cancelled");
            }
            return load.load(rows, caller);
        }).thenApply(found -> {
            Map<String, byte[]> encoded = converted(found, options.codec::encode);
            return new Loaded<>(encoded, converted(encoded, options.codec::decode));
        }).whenComplete((loaded, error) -> {
            if (error != null && !caller.signal.isAborted()) {
                count(Event.LOAD_FAILED, rows.size());
            }
        });
    }

    /** A load of rows under leases. Each is filled or given up. */
    private final class Loading {
        private final List<Flight> flights;
        private final List<Row> rows;
        private final List<Lease> leases;
        private final Call call;
        /** Whether all rows have old values, which are served if the load fails. */
        private volatile boolean servesOld;

        Loading(List<Flight> flights, Call call) {
            this.flights = flights;
            this.call = call;
            rows = rows(flights);
            leases = takeLeases(flights);
            servesOld = flights.stream().allMatch(flight -> flight.hasOld);
        }

        /** Runs the load. If it exceeds `softTimeout`, serves the old values, and the load continues in the background. */
        CompletableFuture<Map<String, V>> run() {
            Caller caller = call.caller;
            if (options.softTimeoutMs == null || !servesOld) {
                return loadAndFill(caller);
            }
            if (background.incrementAndGet() > BACKGROUND_LOADS) {
                background.decrementAndGet();
                return caller.until(backOff()).thenCompose(nothing -> serveOld(null));
            }
            Caller backgroundCaller = Caller.asynchronous(client);
            Runnable abort = backgroundCaller.signal::abort;
            caller.signal.add(abort);
            CompletableFuture<Map<String, V>> running = loadAndFill(backgroundCaller);
            running.whenComplete((loaded, error) -> background.decrementAndGet());
            return caller.settles(running, options.softTimeoutMs).thenCompose(isDone -> isDone ? running : serveOld(running))
                    // From now on no caller waits for the load, so it can no longer be aborted.
                    .whenComplete((loaded, error) -> caller.signal.remove(abort));
        }

        /** Serves old values while a load runs, or instead of it. Waits for the load if a row's old value has expired or was deleted. */
        private CompletableFuture<Map<String, V>> serveOld(@Nullable CompletableFuture<Map<String, V>> running) {
            servesOld = false;
            return oldValues(rows, call.caller).thenCompose(old -> {
                if (old != null) {
                    count(Event.SOFT_TIMEOUT, old.size());
                    return CompletableFuture.completedFuture(old);
                }
                return running != null ? call.caller.until(running) : loadDirectly(rows.stream().map(row -> direct.beginWait(row, call.begun)).toList(), call)
                        .thenApply(nothing -> Map.of());
            });
        }

        private CompletableFuture<Map<String, V>> loadAndFill(Caller caller) {
            return load(rows, call.load, caller).handle((loaded, error) -> {
                if (error != null) {
                    return afterFailure(Caller.cause(error), caller);
                }
                flights.forEach(flight -> flight.share(Fetched.loaded(loaded.encoded.get(flight.row.id))));
                // If the call is aborted, the fills continue.
                return caller.until(fillAll(leases, loaded.encoded, call.ttlMs)).thenApply(nothing -> loaded.rows);
            }).thenCompose(outcome -> outcome);
        }

        private CompletableFuture<Map<String, V>> afterFailure(Throwable cause, Caller caller) {
            if (caller.signal.isAborted()) {
                giveUp(leases);
                return CompletableFuture.failedFuture(cause);
            }
            boolean isFailure = !(cause instanceof Error) && options.isFailure.test(cause);
            return caller.until(isFailure ? backOff() : giveUp(leases))
                    .thenCompose(nothing -> isFailure && servesOld ? oldValues(rows, caller) : CompletableFuture.completedFuture(null))
                    .thenApply(old -> {
                        if (old == null) {
                            flights.forEach(flight -> flight.fail(cause));
                            throw new CompletionException(cause);
                        }
                        count(Event.STALE_SERVED, old.size());
                        warnings.warn("rows could not be loaded, and their old values were served", cause);
                        return old;
                    });
        }

        /** Ends the leases. With `failSafe`, the server grants no lease for these rows until a back-off ends. */
        private CompletableFuture<Void> backOff() {
            return options.failSafeMs > 0 ? giveUp(leases, "BACKOFF") : giveUp(leases);
        }
    }

    /**
     * Fetches cached values that may be old. Ends with null unless all rows have a value. Values that were fetched before a load must not
     * be used: a row may have changed during the load, which deletes its value.
     */
    private CompletableFuture<Map<String, V>> oldValues(List<Row> rows, Caller caller) {
        return fetch(rows, 0, caller, "PEEK").thenApply(found -> {
            Map<String, V> old = new HashMap<>();
            for (int index = 0; index < rows.size(); index++) {
                Decoded<V> known = decode(found.get(index));
                if (known == null) {
                    return null;
                }
                old.put(rows.get(index).id, known.row());
            }
            return old;
        });
    }

    private CompletableFuture<Void> loadOwn(List<Row> rows, Call call) {
        if (rows.isEmpty()) {
            return DONE;
        }
        count(Event.UNGUARDED, rows.size());
        return load(rows, call.load, call.caller).thenAccept(loaded -> call.found.putAll(loaded.rows));
    }

    private CompletableFuture<Void> loadDirectly(Call call) {
        return call.unsettled.isEmpty() ? DONE : loadDirectly(call.directly(), call);
    }

    /**
     * Loads rows without leases, and fills nothing: the server does not answer, or other callers' loads did not complete in time. A process
     * runs one such load of a row at a time. Callers that arrive during it share the next one.
     */
    private CompletableFuture<Void> loadDirectly(List<Flight> all, Call call) {
        return Caller.attempt(() -> loadFree(all, call)).whenComplete((nothing, error) -> direct.end(all));
    }

    /**
     * Loads the rows that no other caller loads, then waits for the others. It ends its own flights before it waits, so that two calls
     * never wait for each other. Two loads may need each other's rows, so a call inside a load waits only as long as one wait.
     */
    private CompletableFuture<Void> loadFree(List<Flight> left, Call call) {
        List<Flight> free = new ArrayList<>();
        List<Flight> waiting = new ArrayList<>();
        List<CompletableFuture<Void>> resuming = new ArrayList<>();
        for (Flight flight : left) {
            Shared given = direct.takeGiven(flight);
            CompletableFuture<Void> resumed = given == null ? direct.wait(flight) : null;
            if (given != null) {
                Map<String, byte[]> shared = Collections.singletonMap(flight.row.id, answer(given, call.caller).value());
                call.found.putAll(converted(shared, options.codec::decode));
                direct.end(List.of(flight));
            } else if (resumed == null) {
                free.add(flight);
            } else {
                waiting.add(flight);
                resuming.add(resumed);
            }
        }
        if (!free.isEmpty()) {
            return loadUnguarded(free, call).thenCompose(nothing -> loadFree(waiting, call));
        }
        if (waiting.isEmpty()) {
            return DONE;
        }
        CompletableFuture<?> any = CompletableFuture.anyOf(resuming.toArray(CompletableFuture[]::new));
        return call.caller.settles(any, call.inside.isEmpty() ? LOST_MS : Math.min(LOST_MS, options.waitMs)).thenCompose(hasEnded -> {
            if (!hasEnded) {
                waiting.forEach(direct::detach);
            }
            return loadFree(waiting, call);
        });
    }

    private CompletableFuture<Void> loadUnguarded(List<Flight> free, Call call) {
        count(Event.UNGUARDED, free.size());
        free.forEach(direct::ask);
        return load(rows(free), call.load, call.caller).whenComplete((loaded, error) -> {
            if (error == null) {
                call.found.putAll(loaded.rows);
                free.forEach(flight -> flight.share(Fetched.loaded(loaded.encoded.get(flight.row.id))));
            } else if (!call.caller.signal.isAborted()) {
                free.forEach(flight -> flight.fail(Caller.cause(error)));
            }
            direct.end(free);
        }).thenAccept(loaded -> {});
    }

    /** Wraps a load of rows, to record them while it runs. For an asynchronous load, they are recorded only until the function returns. */
    <T> Callable<T> during(List<Row> rows, Callable<T> load) {
        return () -> {
            Set<String> outer = loading.get();
            Set<String> all = new HashSet<>(outer);
            rows.forEach(row -> all.add(row.id));
            loading.set(all);
            try {
                return load.call();
            } finally {
                if (outer.isEmpty()) {
                    loading.remove();
                } else {
                    loading.set(outer);
                }
            }
        };
    }
}
