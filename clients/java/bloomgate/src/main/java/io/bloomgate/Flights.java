package io.bloomgate;

import io.bloomgate.BloomgateException.LoadFailed;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Where the callers of one process wait for a row that another caller loads.
 *
 * <p>A caller that waits inside the server (BF.FETCH with WAIT) occupies a connection, and gets the lease if the loading caller gives
 * up. So at most one caller per row waits there; the others wait in the process until that caller has ended, and share what the next
 * fetch answers. They cost neither connections nor, if they are asynchronous, threads.
 *
 * <p>A guard has two sets: callers that read the database without a lease must not wait for one that still asks a hung server.
 */
final class Flights {
    /** One caller's interest in one row. It is active while the caller fetches the row, waits for it in the server or loads it. */
    static final class Flight {
        private final String id;
        /** When the caller's read began, by the clock of the flights. */
        final long begun;
        /** The number of the fetch that `outcome` answers. */
        private long asked;
        /** What ends the caller's call: an answer to a fetch or the server's error. */
        @Nullable Fetched outcome;
        /** The failure of the caller's load. */
        @Nullable Throwable failure;
        private boolean isActive = true;
        private @Nullable CompletableFuture<Void> wake;
        /** What another caller has shared. */
        private @Nullable Fetched givenAnswer;
        private @Nullable Throwable givenFailure;

        private Flight(String id, long begun) {
            this.id = id;
            this.begun = begun;
        }

        @Nullable Fetched givenAnswer() {
            return givenAnswer;
        }

        @Nullable Throwable givenFailure() {
            return givenFailure;
        }
    }

    /** The flights of one row. While some wait, another one is active. */
    private static final class OfRow {
        int active;
        final Set<Flight> waiting = new LinkedHashSet<>();

        void activate(Flight flight) {
            waiting.remove(flight);
            flight.isActive = true;
            active++;
        }
    }

    private final Map<String, OfRow> rows = new HashMap<>();
    private final AtomicLong clock;

    /** Makes a set. Sets with one clock can compare when their flights began. */
    Flights(AtomicLong clock) {
        this.clock = clock;
    }

    long now() {
        return clock.incrementAndGet();
    }

    /** Begins an active flight of a read that begins now. */
    Flight begin(String id) {
        return begin(id, now());
    }

    /** Begins an active flight of a read that has begun earlier. */
    synchronized Flight begin(String id, long begun) {
        rows.computeIfAbsent(id, key -> new OfRow()).active++;
        return new Flight(id, begun);
    }

    /**
     * To call right before a fetch is sent or a load begins: the answer may be shared with the flights that began earlier. One that
     * began later may know of a change that the answer does not have.
     */
    synchronized void ask(Flight flight) {
        flight.asked = now();
    }

    /**
     * Ends a flight. An answer is shared with those flights that began before it was asked for, and a failure with all that wait, an Error
     * as LoadFailed; after an error of the server all resume without an answer. If others still wait and none is active, the first of
     * them resumes, and fetches for the others.
     */
    void end(Flight flight) {
        endAll(List.of(flight));
    }

    /** Ends flights of several rows together, so that a call that waits for them finds all of them free. */
    void endAll(Collection<Flight> flights) {
        List<Flight> woken = new ArrayList<>();
        synchronized (this) {
            flights.forEach(flight -> end(flight, woken));
        }
        // Those that were woken are active from here on, though their calls may be aborted before they notice: then the end of the
        // flight lets the next one go on.
        woken.forEach(other -> other.wake.complete(null));
    }

    private void end(Flight flight, List<Flight> woken) {
        OfRow row = rows.get(flight.id);
        if (flight.isActive) {
            flight.isActive = false;
            row.active--;
        } else {
            row.waiting.remove(flight);
        }
        if (flight.failure != null || flight.outcome != null) {
            share(flight, row, woken);
        }
        Iterator<Flight> first = row.waiting.iterator();
        if (first.hasNext() && row.active == 0) {
            woken.add(first.next());
            row.activate(woken.get(woken.size() - 1));
        }
        if (row.active == 0) {
            rows.remove(flight.id);
        }
    }

    private static void share(Flight flight, OfRow row, List<Flight> woken) {
        Throwable failure = flight.failure instanceof Error
                ? new LoadFailed(Keys.ascii(flight.id), flight.failure) : flight.failure;
        for (Flight other : List.copyOf(row.waiting)) {
            if (failure != null) {
                other.givenFailure = failure;
            } else if (flight.outcome.error() == null) {
                if (other.begun > flight.asked) {
                    continue;
                }
                other.givenAnswer = flight.outcome;
                other.asked = flight.asked;
            }
            row.activate(other);
            woken.add(other);
        }
    }

    /**
     * Makes an active flight wait until the returned future ends. If it is the only active one of its row, it stays active, and null is
     * returned.
     */
    synchronized @Nullable CompletableFuture<Void> beginWait(Flight flight) {
        OfRow row = rows.get(flight.id);
        if (row.active == 1) {
            return null;
        }
        flight.isActive = false;
        flight.givenAnswer = null;
        flight.givenFailure = null;
        row.active--;
        row.waiting.add(flight);
        flight.wake = new CompletableFuture<>();
        return flight.wake;
    }

    /** Returns what wakes a waiting flight, or null if it is active. */
    synchronized @Nullable CompletableFuture<Void> waiting(Flight flight) {
        return flight.isActive ? null : flight.wake;
    }

    /** Makes a flight active again that was woken, or that has waited for long enough. */
    synchronized void endWait(Flight flight) {
        if (!flight.isActive) {
            rows.get(flight.id).activate(flight);
        }
    }
}
