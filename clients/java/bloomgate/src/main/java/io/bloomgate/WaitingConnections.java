package io.bloomgate;

import io.bloomgate.Connection.Command;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Connections for commands that wait inside the server: BF.FETCH with WAIT, WAIT and WAITAOF. On the shared connection they would block the
 * commands of all other callers.
 */
final class WaitingConnections {
    /** How long an unused connection stays open. */
    private static final long IDLE_MS = 1000;

    private final Link main;
    private final Deque<CompletableFuture<Void>> queue = new ArrayDeque<>();
    private int free;

    /** At most `most` connections wait inside the server at a time. Other callers wait in the process, or fetch again. */
    WaitingConnections(Link main, int most) {
        this.main = main;
        free = most;
    }

    /** Reserves a connection for one call of `ask`; false if all are in use. */
    synchronized boolean tryReserve() {
        if (free <= 0) {
            return false;
        }
        free--;
        return true;
    }

    /** Reserves a connection, and waits for one if all are in use. */
    CompletableFuture<Void> reserve(Caller caller) {
        CompletableFuture<Void> permit = new CompletableFuture<>();
        synchronized (this) {
            if (tryReserve()) {
                return CompletableFuture.completedFuture(null);
            }
            queue.add(permit);
        }
        return caller.until(permit).whenComplete((nothing, error) -> {
            if (error != null && !permit.cancel(false)) {
                // The reservation was granted, but the call was aborted.
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
    CompletableFuture<List<Object>> ask(List<Command> commands, Link.AskOptions sending, Caller caller) {
        Node node = main.connection.node(commands.get(0).key());
        Node further = node.further();
        sending.finished = outcomes -> {
            if (!outcomes.isEmpty() && outcomes.stream().allMatch(LettuceConnection::isReply)) {
                node.idle.add(further);
                main.client.later(IDLE_MS, () -> {
                    if (node.idle.remove(further)) {
                        further.close();
                    }
                });
            } else {
                // The connection may have an unread reply.
                further.close();
            }
            release();
        };
        return new Link(main.client, further, main.pause).ask(commands, sending, caller);
    }
}
