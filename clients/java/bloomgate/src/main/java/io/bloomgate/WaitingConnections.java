package io.bloomgate;

import io.bloomgate.Connection.Command;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Connections for commands that wait inside the server: BF.FETCH with WAIT, WAIT and WAITAOF. On the connection that all callers share
 * they would block all other commands.
 */
final class WaitingConnections {
    /** How long an unused connection stays open. */
    private static final long IDLE_MS = 1000;

    /** A connection to the node of a name. */
    private record Further(String name, Node node) {}

    private final Link main;
    private final List<Further> idle = new ArrayList<>();
    private final Deque<CompletableFuture<Void>> queue = new ArrayDeque<>();
    private int free;
    private boolean isClosed;

    /** `most` is how many connections wait inside the server at a time. Other callers wait in the process, or ask again. */
    WaitingConnections(Link main, int most) {
        this.main = main;
        free = most;
    }

    /** Reserves a connection for one call of `ask`; false if all are in use. */
    synchronized boolean take() {
        if (free <= 0) {
            return false;
        }
        free--;
        return true;
    }

    /** Reserves a connection, and waits for one if all are in use. */
    CompletableFuture<Void> reserve(Caller caller) {
        CompletableFuture<Void> turn = new CompletableFuture<>();
        synchronized (this) {
            if (take()) {
                return CompletableFuture.completedFuture(null);
            }
            queue.add(turn);
        }
        return caller.until(turn).whenComplete((nothing, error) -> {
            if (error != null && !turn.cancel(false)) {
                // It was this caller's turn when the call was aborted.
                release();
            }
        });
    }

    /** Ends a reservation. */
    void release() {
        CompletableFuture<Void> next;
        do {
            synchronized (this) {
                next = queue.poll();
                if (next == null) {
                    free++;
                    return;
                }
            }
        } while (!next.complete(null));
    }

    /** Sends commands on a reserved connection, and ends the reservation once the replies have arrived or the connection is closed. */
    CompletableFuture<List<Object>> ask(List<Command> commands, Link.How how, Caller caller) {
        byte[] key = commands.get(0).key();
        Further further = open(main.connection.node(key), key);
        how.finished = outcomes -> giveBack(further, !outcomes.isEmpty()
                && outcomes.stream().allMatch(outcome -> !(outcome instanceof RuntimeException) || Wire.isReply(outcome)));
        return new Link(main.client, further.node, main.pause).ask(commands, how, caller);
    }

    private synchronized Further open(String name, byte[] key) {
        for (Further one : idle) {
            if (one.name.equals(name)) {
                idle.remove(one);
                return one;
            }
        }
        return new Further(name, new Node(() -> main.connection.separate(key), main.client.connectNanos));
    }

    /** Keeps a connection for the next caller, or closes one with a reply that is not read. Ends the reservation. */
    private void giveBack(Further further, boolean isSound) {
        synchronized (this) {
            if (isSound && !isClosed) {
                idle.add(further);
                main.client.later(IDLE_MS, () -> closeIdle(further));
            } else {
                further.node.close();
            }
        }
        release();
    }

    private synchronized void closeIdle(Further further) {
        if (idle.removeIf(other -> other == further)) {
            further.node.close();
        }
    }

    synchronized void close() {
        isClosed = true;
        idle.forEach(one -> one.node.close());
        idle.clear();
    }
}
