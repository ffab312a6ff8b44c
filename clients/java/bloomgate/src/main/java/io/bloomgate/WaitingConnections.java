package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Connections for commands that wait inside the server: BF.FETCH with WAIT, WAIT and WAITAOF. On the connection that all callers share
 * they would block all other commands.
 */
final class WaitingConnections {
    /** How long a connection that nobody uses stays open. */
    private static final long IDLE_MS = 1000;

    private record Idle(String node, Wire wire) {}

    private final Link main;
    private final List<Idle> idle = new ArrayList<>();
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
            if (free > 0) {
                free--;
                return CompletableFuture.completedFuture(null);
            }
            queue.add(turn);
        }
        CompletableFuture<Void> reserved = new CompletableFuture<>();
        caller.until(turn).whenComplete((nothing, error) -> {
            if (error != null && !turn.cancel(false)) {
                // It was this caller's turn when the call was aborted.
                release();
            }
            Caller.settle(reserved, nothing, error);
        });
        return reserved;
    }

    /** Ends a reservation. */
    void release() {
        for (;;) {
            CompletableFuture<Void> next;
            synchronized (this) {
                next = queue.poll();
                if (next == null) {
                    free++;
                    return;
                }
            }
            if (next.complete(null)) {
                return;
            }
        }
    }

    /** Sends commands on a reserved connection, and ends the reservation once the replies have arrived. */
    CompletableFuture<List<Object>> ask(List<Command> commands, Link.How how, Caller caller) {
        String node = main.connection.node(commands.get(0).key());
        CompletableFuture<Wire> opening = open(node, commands.get(0).key());
        CompletableFuture<List<Object>> result = new CompletableFuture<>();
        caller.settles(opening, main.client.timeoutMs).whenComplete((hasOpened, aborted) -> {
            if (aborted == null && hasOpened) {
                opening.whenComplete((wire, error) -> {
                    if (error == null) {
                        send(node, wire, commands, how, caller).whenComplete((o, e) -> Caller.settle(result, o, e));
                    } else {
                        release();
                        var refused = new Disconnected("there is no connection to the server", Caller.cause(error));
                        result.complete(Collections.nCopies(commands.size(), refused));
                    }
                });
                return;
            }
            opening.whenComplete((late, error) -> giveBack(node, late, true));
            if (aborted != null) {
                result.completeExceptionally(Caller.cause(aborted));
            } else {
                main.pause.begin();
                var late = new TimedOut("the server has accepted no connection in time");
                result.complete(Collections.nCopies(commands.size(), late));
            }
        });
        return result;
    }

    private CompletableFuture<List<Object>> send(
            String node, Wire wire, List<Command> commands, Link.How how, Caller caller) {
        how.finished = outcomes -> giveBack(node, wire, outcomes.stream().noneMatch(WaitingConnections::isUnsound));
        return new Link(main.client, wire, main.pause).ask(commands, how, caller);
    }

    private static boolean isUnsound(Object outcome) {
        return outcome instanceof RuntimeException && !Wire.isReply(outcome);
    }

    private CompletableFuture<Wire> open(String node, byte[] key) {
        synchronized (this) {
            for (Iterator<Idle> each = idle.iterator(); each.hasNext();) {
                Idle one = each.next();
                if (one.wire.isLost()) {
                    each.remove();
                } else if (one.node.equals(node)) {
                    each.remove();
                    return CompletableFuture.completedFuture(one.wire);
                }
            }
        }
        return main.connection.separate(key);
    }

    /** Keeps a connection for the next caller, or closes one that is not sound. Ends the reservation. */
    private void giveBack(String node, Wire wire, boolean isSound) {
        boolean isKept = false;
        if (wire != null) {
            Idle one = new Idle(node, wire);
            synchronized (this) {
                if (isSound && !isClosed) {
                    idle.add(one);
                    isKept = true;
                }
            }
            if (isKept) {
                CompletableFuture.delayedExecutor(IDLE_MS, TimeUnit.MILLISECONDS, main.client.executor)
                        .execute(() -> closeIdle(one));
            } else {
                wire.close();
            }
        }
        release();
    }

    private void closeIdle(Idle one) {
        boolean isIdle;
        synchronized (this) {
            isIdle = idle.removeIf(other -> other == one);
        }
        if (isIdle) {
            one.wire.close();
        }
    }

    void close() {
        List<Idle> left;
        synchronized (this) {
            isClosed = true;
            left = List.copyOf(idle);
            idle.clear();
        }
        left.forEach(one -> one.wire.close());
    }
}
