package io.bloomgate;

import io.bloomgate.BloomgateException.LoadFailed;
import io.bloomgate.Keys.Row;
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
 * Coalesces the fetches of a process: callers wait here for a row that another caller loads.
 *
 * <p>A caller that waits inside the server (BF.FETCH with WAIT) occupies a connection, and gets the lease if the loading caller gives up.
 * So at most one caller per row waits there. Others wait in the process until that caller is done, and share its outcome or the outcome of
 * the next fetch. They occupy no connection and, if they are asynchronous, no thread.
 *
 * <p>A guard has two sets: callers that load without a lease must not wait for a caller that probes a hung server.
 */
final class Flights {
    /** The outcome that a flight shares: an answer to a fetch, a loaded row, an error of the server, or the failure of a load. */
    record Shared(@Nullable Fetched answer, @Nullable Throwable failure) {}

    /** One caller's interest in one row. It is active while the caller fetches the row, waits for it in the server or loads it. */
    static final class Flight {
        final Row row;
        /** The beginning of the caller's read, by the clock of the flights. */
        private final long begun;
        /** The beginning of the fetch or load whose outcome is in `shares`. */
        private long asked;
        /** The token of its lease, until the token is used. */
        byte @Nullable [] token;
        /** Whether the answer had an old value with the lease. */
        boolean hasOld;
        /** Whether the caller could not decode the cached value. */
        boolean replaces;
        private @Nullable Shared shares;
        private @Nullable Shared given;
        private RowFlights rowFlights = new RowFlights();
        private boolean isWaiting;
        private boolean hasEnded;
        private @Nullable CompletableFuture<Void> wake;

        private Flight(Row row, long begun) {
            this.row = row;
            this.begun = begun;
        }

        /** Shares an answer when the flight ends. */
        void share(Fetched answer) {
            shares = new Shared(answer, null);
        }

        /** Shares the failure of a load when the flight ends. An Error is wrapped in LoadFailed. */
        void fail(Throwable failure) {
            shares = new Shared(null, failure instanceof Error ? new LoadFailed(row.item, failure) : failure);
        }

        /** Makes the flight active. If its call is aborted before it notices, the end of the flight resumes the next one. */
        private void resume(List<Flight> resumed) {
            rowFlights.waiting.remove(this);
            isWaiting = false;
            rowFlights.active++;
            resumed.add(this);
        }
    }

    /** The flights of one row. While flights wait, another flight is active. */
    private static final class RowFlights {
        int active;
        final Set<Flight> waiting = new LinkedHashSet<>();
    }

    private final Map<String, RowFlights> rows = new HashMap<>();
    private final AtomicLong clock;

    /** Creates a set. Sets with the same clock can compare the beginnings of their flights. */
    Flights(AtomicLong clock) {
        this.clock = clock;
    }

    /** Begins an active flight of a read that began at {@code begun}. */
    Flight begin(Row row, long begun) {
        Flight flight = new Flight(row, begun);
        synchronized (this) {
            join(flight);
        }
        return flight;
    }

    /** Begins a flight that waits, unless it is the only active one of its row. */
    synchronized Flight beginWait(Row row, long begun) {
        Flight flight = begin(row, begun);
        wait(flight);
        return flight;
    }

    private void join(Flight flight) {
        RowFlights rowFlights = rows.putIfAbsent(flight.row.id, flight.rowFlights);
        flight.rowFlights = rowFlights == null ? flight.rowFlights : rowFlights;
        flight.rowFlights.active++;
    }

    /**
     * Must be called right before a fetch is sent or a load begins: the outcome may be shared with flights that began earlier. A later
     * flight may know of a change that the outcome lacks.
     */
    void ask(Flight flight) {
        flight.asked = clock.incrementAndGet();
    }

    /** Makes an active flight wait until the returned future completes. The only active flight of a row stays active; null is returned. */
    synchronized @Nullable CompletableFuture<Void> wait(Flight flight) {
        if (flight.isWaiting || flight.given != null) {
            return flight.wake;
        }
        if (flight.rowFlights.active == 1) {
            return null;
        }
        flight.rowFlights.active--;
        flight.rowFlights.waiting.add(flight);
        flight.isWaiting = true;
        flight.wake = new CompletableFuture<>();
        return flight.wake;
    }

    /** Ends the wait of a flight, which becomes active. */
    synchronized void stop(Flight flight) {
        if (flight.isWaiting) {
            flight.resume(new ArrayList<>());
        }
    }

    /** Makes a waiting flight active; later flights wait for it. Other active flights of its row stay active. */
    synchronized void detach(Flight flight) {
        if (flight.isWaiting) {
            flight.rowFlights.waiting.remove(flight);
            flight.isWaiting = false;
            rows.remove(flight.row.id, flight.rowFlights);
            flight.rowFlights = new RowFlights();
            join(flight);
        }
    }

    /** Returns and removes the outcome that another flight has shared with this one. */
    synchronized @Nullable Shared takeGiven(Flight flight) {
        Shared given = flight.given;
        flight.given = null;
        return given;
    }

    /**
     * Ends flights together, so that a call that waits for several rows can fetch all of them. An answer is shared with flights that began
     * before its fetch, and an error with all waiting flights. If flights still wait for a row without an active flight, the first of them
     * resumes, and fetches for the others.
     */
    void end(Collection<Flight> flights) {
        List<Flight> resumed = new ArrayList<>();
        synchronized (this) {
            flights.forEach(flight -> end(flight, resumed));
        }
        resumed.forEach(other -> other.wake.complete(null));
    }

    private void end(Flight flight, List<Flight> resumed) {
        if (flight.hasEnded) {
            return;
        }
        RowFlights rowFlights = flight.rowFlights;
        flight.hasEnded = true;
        if (!rowFlights.waiting.remove(flight)) {
            rowFlights.active--;
        }
        Shared shares = flight.shares;
        if (shares != null && !rowFlights.waiting.isEmpty()) {
            boolean isError = shares.failure != null || shares.answer.error() != null;
            for (Flight other : List.copyOf(rowFlights.waiting)) {
                if (isError || other.begun < flight.asked) {
                    other.given = shares;
                    // The shared answer keeps the time of its fetch.
                    other.asked = flight.asked;
                    other.resume(resumed);
                }
            }
        }
        Iterator<Flight> first = rowFlights.waiting.iterator();
        if (first.hasNext() && rowFlights.active == 0) {
            first.next().resume(resumed);
        }
        if (rowFlights.active == 0) {
            rows.remove(flight.row.id, rowFlights);
        }
    }
}
