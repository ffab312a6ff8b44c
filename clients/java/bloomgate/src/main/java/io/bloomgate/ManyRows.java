package io.bloomgate;

import io.bloomgate.Flights.Flight;
import io.bloomgate.GuardCommands.Answer;
import io.bloomgate.GuardCommands.Fetching;
import io.bloomgate.GuardCommands.Lease;
import io.bloomgate.GuardLoads.LoadRows;
import io.bloomgate.GuardLoads.Loading;
import io.bloomgate.Keys.Row;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * One call of getAll. Ids that are written in the same bytes, such as 7 and "7", name one row: it is loaded by the first of them, and
 * returned under each.
 */
final class ManyRows<I, V> {
    private final GuardSteps<V> guard;
    private final Function<Collection<I>, Function<Caller, CompletableFuture<Map<I, V>>>> loadAll;
    private final long ttlMs;
    private final Caller caller;
    private final Map<I, Row> asked = new LinkedHashMap<>();
    /** The first id of each row. */
    private final Map<String, I> first = new LinkedHashMap<>();
    private final Map<String, V> rows = new HashMap<>();
    private final long begun;
    private final List<Row> unguarded = new ArrayList<>();
    /** The rows that have an old value in the cache. */
    private final Set<String> old = new HashSet<>();

    ManyRows(GuardSteps<V> guard, Collection<? extends I> ids,
            Function<Collection<I>, Function<Caller, CompletableFuture<Map<I, V>>>> loadAll, long ttlMs, Caller caller) {
        this.guard = guard;
        this.loadAll = loadAll;
        this.ttlMs = ttlMs;
        this.caller = caller;
        begun = guard.flights.now();
        for (I id : ids) {
            Row row = guard.row(id);
            asked.put(id, row);
            first.putIfAbsent(row.id, id);
        }
    }

    CompletableFuture<Map<I, Optional<V>>> get() {
        long deadline = GuardSteps.nowMs() + guard.options.waitMs;
        List<Row> own = first.values().stream().map(asked::get).filter(guard.own::has).toList();
        List<Row> wanted = first.values().stream().map(asked::get).filter(row -> !guard.own.has(row)).toList();
        return guard.own.load(own, this::loading, caller).thenAccept(rows::putAll)
                .thenCompose(nothing -> fetchAll(wanted)).thenCompose(left -> waitForAll(left, deadline)).thenCompose(left -> {
            unguarded.addAll(left);
            if (unguarded.isEmpty()) {
                return CompletableFuture.completedFuture(null);
            }
            return guard.unguarded(unguarded, this::loading, begun, caller).thenAccept(rows::putAll);
        }).thenApply(nothing -> {
            Map<I, Optional<V>> found = new LinkedHashMap<>();
            asked.forEach((id, row) -> found.put(id, Optional.ofNullable(rows.get(row.id))));
            return found;
        });
    }

    /** Waits for the rows that others load, one after another: by the time the first is there, most of the others are, too. */
    private CompletableFuture<List<Row>> waitForAll(List<Row> left, long deadline) {
        if (left.isEmpty() || GuardSteps.nowMs() >= deadline) {
            return CompletableFuture.completedFuture(left);
        }
        return waitFor(left.get(0), deadline)
                .thenCompose(nothing -> fetchAll(left.subList(1, left.size())))
                .thenCompose(rest -> waitForAll(rest, deadline));
    }

    /** The state of one call of fetchAll. */
    private final class Fetches {
        final Map<Row, Flight> flights = new IdentityHashMap<>();
        final List<Lease> leases = new ArrayList<>();
        final List<Row> waiting = new ArrayList<>();
    }

    /** Fetches rows, and loads those whose leases it gets. Ends with the rows that other callers load. */
    private CompletableFuture<List<Row>> fetchAll(List<Row> wanted) {
        Fetches all = new Fetches();
        wanted.forEach(row -> all.flights.put(row, guard.flights.begin(row.id)));
        return GuardLoads.attempt(() -> fetchParts(wanted, all).thenCompose(nothing -> {
            // Only those with a lease will bring a row: nobody in this process has to wait for the other flights.
            Set<Row> leased = new HashSet<>();
            all.leases.forEach(lease -> leased.add(lease.row()));
            for (Row row : List.copyOf(all.flights.keySet())) {
                if (!leased.contains(row)) {
                    guard.flights.end(all.flights.remove(row));
                }
            }
            List<Lease> leases = List.copyOf(all.leases);
            all.leases.clear();
            return loadLeased(leases, all.flights.values());
        })).whenComplete((nothing, error) -> {
            guard.giveUp(all.leases);
            all.flights.values().forEach(guard.flights::end);
        }).thenApply(nothing -> all.waiting);
    }

    private CompletableFuture<Void> fetchParts(List<Row> wanted, Fetches all) {
        return GuardCommands.inParts(wanted, part -> fetchPart(part, false, all)
                .thenCompose(unreadable -> fetchPart(unreadable, true, all)).thenAccept(all.waiting::addAll));
    }

    /**
     * Fetches some rows together, and sorts them by their answers. Ends with the rows whose cached values could not be decoded, to be
     * fetched again with `replace`.
     */
    private CompletableFuture<List<Row>> fetchPart(List<Row> part, boolean replace, Fetches all) {
        if (part.isEmpty()) {
            return CompletableFuture.completedFuture(List.of());
        }
        part.forEach(row -> guard.flights.ask(all.flights.get(row)));
        return guard.fetch(part, replace ? Fetching.REPLACE : Fetching.PLAIN, caller).thenCompose(found -> {
            List<Row> unreadable = new ArrayList<>();
            List<Lease> unneeded = new ArrayList<>();
            for (int index = 0; index < part.size(); index++) {
                Row row = part.get(index);
                Fetched one = found.get(index);
                Flight flight = all.flights.get(row);
                if (one.error() != null) {
                    unguarded.add(row);
                    flight.outcome = one;
                    continue;
                }
                if (one.word() == Event.WAIT) {
                    all.waiting.add(row);
                    continue;
                }
                Answer<V> answer = guard.read(one, null);
                if (answer.isReadable() && (replace || answer.token() == null)) {
                    rows.put(row.id, answer.value());
                    flight.outcome = one.withoutToken();
                    if (answer.token() != null) {
                        // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                        unneeded.add(new Lease(row, answer.token()));
                    }
                } else if (answer.token() != null) {
                    all.leases.add(new Lease(row, answer.token()));
                    if (answer.isReadable()) {
                        old.add(row.id);
                    }
                } else {
                    unreadable.add(row);
                }
            }
            return guard.giveUp(unneeded, caller).thenApply(nothing -> unreadable);
        });
    }

    /** Waits for a row that another caller loads, and loads it if that caller does not bring it. */
    private CompletableFuture<Void> waitFor(Row row, long deadline) {
        Flight flight = guard.flights.begin(row.id);
        return GuardLoads.attempt(() -> guard.fetchRow(row, flight, deadline, caller).thenCompose(answer -> {
            if (answer == null) {
                unguarded.add(row);
            } else if (answer.token() != null) {
                if (answer.isReadable()) {
                    old.add(row.id);
                }
                return loadLeased(List.of(new Lease(row, answer.token())), List.of(flight));
            } else {
                rows.put(row.id, answer.value());
            }
            return CompletableFuture.<Void>completedFuture(null);
        })).whenComplete((nothing, error) -> guard.flights.end(flight));
    }

    /** Loads rows under leases and fills them. */
    private CompletableFuture<Void> loadLeased(List<Lease> leases, Collection<Flight> flights) {
        if (leases.isEmpty()) {
            return CompletableFuture.completedFuture(null);
        }
        boolean hasValues = leases.stream().allMatch(lease -> old.contains(lease.row().id));
        return guard.loadRows(new Loading<>(leases, List.copyOf(flights), this::loading, ttlMs, hasValues), caller)
                .thenAccept(rows::putAll);
    }

    private LoadRows<V> loading(List<Row> wanted) {
        List<I> ids = wanted.stream().map(row -> first.get(row.id)).toList();
        return by -> guard.timed(loadAll.apply(ids), ids.size(), by).thenApply(loaded -> {
            Map<String, V> found = new HashMap<>();
            for (int index = 0; index < ids.size(); index++) {
                found.put(wanted.get(index).id, loaded.get(ids.get(index)));
            }
            return found;
        });
    }
}
