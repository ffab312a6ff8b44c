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
 * Where the callers of one process wait for a row that another caller loads.
 *
 * <p>A caller that waits inside the server (BF.FETCH with WAIT) occupies a connection, and gets the lease if the loading caller gives
 * up. So at most one caller per row waits there; the others wait in the process until that caller has ended, and share what it shares, or
 * what the next fetch answers. They cost neither connections nor, if they are asynchronous, threads.
 *
 * <p>A guard has two sets: callers that read the database without a lease must not wait for one that still asks a hung server.
 */
final class Flights {
    /** What a flight shares: an answer to a fetch, a loaded row, an error of the server, or the failure of a load. */
    record Shared(@Nullable Fetched answer, @Nullable Throwable failure) {}

    /** One caller's interest in one row. It is active while the caller fetches the row, waits for it in the server or loads it. */
    static final class Flight {
        final Row row;
        /** When the caller's read began, by the clock of the flights. */
        private final long begun;
        /** When the fetch or the load began that `shares` is the outcome of. */
        private long asked;
        /** The token of its lease, until that is used. */
        byte @Nullable [] token;
        /** Whether there is an old value beside the lease. */
        boolean hasOld;
        /** Whether the caller could not decode the cached value. */
        boolean replaces;
        private @Nullable Shared shares;
        private @Nullable Shared given;
        private Crowd crowd = new Crowd();
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

        /** Shares the failure of a load when the flight ends: an Error as LoadFailed. */
        void fail(Throwable failure) {
            shares = new Shared(null, failure instanceof Error ? new LoadFailed(row.item, failure) : failure);
        }

        /** Becomes active: also if its call is aborted before it notices. Then the end of the flight lets the next one go on. */
        private void resume(List<Flight> woken) {
            crowd.waiting.remove(this);
            isWaiting = false;
            crowd.active++;
            woken.add(this);
        }
    }

    /** The flights of one row. While some wait, another one is active. */
    private static final class Crowd {
        int active;
        final Set<Flight> waiting = new LinkedHashSet<>();
    }

    private final Map<String, Crowd> crowds = new HashMap<>();
    private final AtomicLong clock;

    /** Makes a set. Sets with one clock can compare when their flights began. */
    Flights(AtomicLong clock) {
        this.clock = clock;
    }

    /** Begins an active flight of a read that began at a time. */
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
        Crowd crowd = crowds.putIfAbsent(flight.row.id, flight.crowd);
        flight.crowd = crowd == null ? flight.crowd : crowd;
        flight.crowd.active++;
    }

    /**
     * To call right before a fetch is sent or a load begins: the outcome may be shared with the flights that began earlier. One that
     * began later may know of a change that the outcome does not have.
     */
    void ask(Flight flight) {
        flight.asked = clock.incrementAndGet();
    }

    /**
     * Makes an active flight wait until the returned future ends. If it is the only active one of its row, it stays active, and null is
     * returned.
     */
    synchronized @Nullable CompletableFuture<Void> wait(Flight flight) {
        if (flight.isWaiting || flight.given != null) {
            return flight.wake;
        }
        if (flight.crowd.active == 1) {
            return null;
        }
        flight.crowd.active--;
        flight.crowd.waiting.add(flight);
        flight.isWaiting = true;
        flight.wake = new CompletableFuture<>();
        return flight.wake;
    }

    /** Makes a flight active that has waited for long enough. */
    synchronized void stop(Flight flight) {
        if (flight.isWaiting) {
            flight.resume(new ArrayList<>());
        }
    }

    /** Makes a waiting flight active, and those that begin later wait for it. Other active flights of its row stay active. */
    synchronized void leave(Flight flight) {
        if (flight.isWaiting) {
            flight.crowd.waiting.remove(flight);
            flight.isWaiting = false;
            crowds.remove(flight.row.id, flight.crowd);
            flight.crowd = new Crowd();
            join(flight);
        }
    }

    /** Returns once what another flight has shared with this one. */
    synchronized @Nullable Shared takeGiven(Flight flight) {
        Shared given = flight.given;
        flight.given = null;
        return given;
    }

    /**
     * Ends flights together, so that a call that waits for several rows finds all of them free. An answer is shared with those flights that
     * began before it was asked for, and an error with all that wait. If others still wait and none is active, the first of them resumes,
     * and fetches for the others.
     */
    void end(Collection<Flight> flights) {
        List<Flight> woken = new ArrayList<>();
        synchronized (this) {
            flights.forEach(flight -> end(flight, woken));
        }
        woken.forEach(other -> other.wake.complete(null));
    }

    private void end(Flight flight, List<Flight> woken) {
        if (flight.hasEnded) {
            return;
        }
        Crowd crowd = flight.crowd;
        flight.hasEnded = true;
        if (!crowd.waiting.remove(flight)) {
            crowd.active--;
        }
        Shared shares = flight.shares;
        if (shares != null && !crowd.waiting.isEmpty()) {
            boolean isError = shares.failure != null || shares.answer.error() != null;
            for (Flight other : List.copyOf(crowd.waiting)) {
                if (isError || other.begun < flight.asked) {
                    other.given = shares;
                    // An answer stays as old as it is.
                    other.asked = flight.asked;
                    other.resume(woken);
                }
            }
        }
        Iterator<Flight> first = crowd.waiting.iterator();
        if (first.hasNext() && crowd.active == 0) {
            first.next().resume(woken);
        }
        if (crowd.active == 0) {
            crowds.remove(flight.row.id, crowd);
        }
    }
}
