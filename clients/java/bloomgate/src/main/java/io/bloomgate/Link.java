package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.ModuleMissing;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Function;

/** Sends commands within the time limit. */
final class Link {
    /**
     * The most commands, and the most bytes of them, that are sent and unanswered at a time. Others wait in the process, where their time
     * limit has not begun: a burst of any size is answered in time by a server that answers this much in time.
     */
    private static final int MOST_COMMANDS = 500;
    private static final long MOST_BYTES = (long) Items.WINDOW_COMMANDS * Items.COMMAND_BYTES;

    private final Deque<Asking> queue = new ArrayDeque<>();
    private int commandsInFlight;
    private long bytesInFlight;
    private boolean isSending;
    final Bloomgate client;
    final Connection connection;
    final Pause pause;

    Link(Bloomgate client, Connection connection, Pause pause) {
        this.client = client;
        this.connection = connection;
        this.pause = pause;
    }

    static Command command(byte[] key, Object... words) {
        List<byte[]> bytes = new ArrayList<>(words.length);
        for (Object word : words) {
            bytes.add(word instanceof byte[] data ? data : Keys.ascii(word.toString()));
        }
        return new Command(key, bytes);
    }

    /** How to send some commands. */
    static final class How {
        /** For how long the server may withhold the replies, beyond the time limit. */
        long waitMs;
        /** Whether these commands precede others that wait to be sent: they end leases, whose time passes. */
        boolean isUrgent;
        /**
         * Returns the commands that undo the outcomes. They are sent if the caller does not get the outcomes, because it was aborted or
         * the replies came too late.
         */
        Function<List<Object>, List<Command>> undo = outcomes -> List.of();
        /** Is called when the replies have arrived, or can no longer arrive. */
        Consumer<List<Object>> finished = outcomes -> {};
    }

    /**
     * Sends commands together. Ends with the outcome of each, which is its reply or a RuntimeException, and fails only if the call is
     * aborted. The time limit is that of the next reply.
     */
    CompletableFuture<List<Object>> ask(List<Command> commands, How how, Caller caller) {
        if (caller.signal.isAborted()) {
            how.finished.accept(List.of());
            return CompletableFuture.failedFuture(new CancellationException("the call was cancelled"));
        }
        Asking asking = new Asking(commands, how, caller);
        caller.signal.add(asking.abort);
        synchronized (this) {
            if (!queue.isEmpty() || !reserve(asking)) {
                if (how.isUrgent) {
                    queue.addFirst(asking);
                } else {
                    queue.add(asking);
                }
                return asking.result;
            }
        }
        asking.send();
        return asking.result;
    }

    private boolean reserve(Asking next) {
        if (commandsInFlight > 0 && (commandsInFlight + next.commands.size() > MOST_COMMANDS || bytesInFlight + next.bytes > MOST_BYTES)) {
            return false;
        }
        next.isReserved = true;
        commandsInFlight += next.commands.size();
        bytesInFlight += next.bytes;
        return true;
    }

    /** Sends what waits, as far as there is room. */
    private void release(Asking ended) {
        synchronized (this) {
            if (ended.isReserved) {
                ended.isReserved = false;
                commandsInFlight -= ended.commands.size();
                bytesInFlight -= ended.bytes;
            }
            if (isSending) {
                return;
            }
            isSending = true;
        }
        for (;;) {
            Asking next;
            synchronized (this) {
                next = queue.peek();
                if (next == null || !reserve(next)) {
                    isSending = false;
                    return;
                }
                queue.remove();
            }
            next.send();
        }
    }

    /** Ends what waits: the server does not answer. */
    private List<Asking> takeQueue() {
        synchronized (this) {
            List<Asking> all = List.copyOf(queue);
            queue.clear();
            return all;
        }
    }

    CompletableFuture<List<Object>> ask(List<Command> commands, Caller caller) {
        return ask(commands, new How(), caller);
    }

    /** The same for commands that precede others. */
    CompletableFuture<List<Object>> askFirst(List<Command> commands, Caller caller) {
        How how = new How();
        how.isUrgent = true;
        return ask(commands, how, caller);
    }

    /** Sends one command. Fails with its error. */
    CompletableFuture<Object> one(Command command, Caller caller) {
        return ask(List.of(command), caller).thenApply(outcomes -> {
            if (outcomes.get(0) instanceof RuntimeException error) {
                throw error;
            }
            return outcomes.get(0);
        });
    }

    /** Some commands that were sent together. */
    private final class Asking {
        final CompletableFuture<List<Object>> result = new CompletableFuture<>();
        private final List<Command> commands;
        private final How how;
        private final Caller caller;
        private final AtomicBoolean hasLeft = new AtomicBoolean();
        private final AtomicBoolean hasFinished = new AtomicBoolean();
        private final Runnable abort = this::abort;
        private final long limitNanos;
        private final long bytes;
        private volatile CompletableFuture<Void> timer;
        private volatile long lastReply;
        private volatile boolean isSent;
        /** Whether it counts among the commands under way. */
        private boolean isReserved;

        Asking(List<Command> commands, How how, Caller caller) {
            this.commands = commands;
            this.how = how;
            this.caller = caller;
            limitNanos = TimeUnit.MILLISECONDS.toNanos(client.timeoutMs + how.waitMs);
            bytes = commands.stream().mapToLong(Command::bytes).sum();
        }

        /** Sends the commands once there is a connection. */
        void send() {
            try {
                CompletableFuture<?> opened = connection.ready(commands);
                if (!opened.isDone()) {
                    startTimer(pause.isOn() ? limitNanos : Math.max(limitNanos, client.connectNanos));
                }
                opened.whenComplete((nothing, error) -> dispatch());
            } catch (Throwable error) {
                fail(error);
            }
        }

        private void startTimer(long nanos) {
            CompletableFuture<Void> before = timer;
            timer = new CompletableFuture<Void>().completeOnTimeout(null, nanos, TimeUnit.NANOSECONDS);
            timer.thenRun(this::expire);
            if (before != null) {
                before.cancel(false);
            }
        }

        /** Sends the commands, unless the caller has gone. */
        private void dispatch() {
            if (hasLeft.get()) {
                finish(List.of());
                return;
            }
            try {
                isSent = true;
                lastReply = System.nanoTime();
                startTimer(limitNanos);
                await(connection.send(commands));
            } catch (Throwable error) {
                fail(error);
            }
        }

        private void fail(Throwable error) {
            arrived(Collections.nCopies(commands.size(), new Disconnected("there is no connection to the server: " + error, error)));
        }

        private void await(List<CompletableFuture<Object>> replies) {
            if (replies.size() == 1) {
                replies.get(0).thenAccept(reply -> arrived(Collections.singletonList(outcome(commands.get(0), reply))));
                return;
            }
            replies.forEach(reply -> reply.thenRun(() -> lastReply = System.nanoTime()));
            CompletableFuture.allOf(replies.toArray(CompletableFuture[]::new)).thenRun(() -> {
                List<Object> outcomes = new ArrayList<>();
                for (int index = 0; index < commands.size(); index++) {
                    outcomes.add(outcome(commands.get(index), replies.get(index).join()));
                }
                arrived(outcomes);
            });
        }

        private void arrived(List<Object> outcomes) {
            if (outcomes.stream().anyMatch(Link::isRefusal)) {
                connection.replace(commands);
            }
            finish(outcomes);
            if (!leave()) {
                List<Command> undoing = how.undo.apply(outcomes);
                if (!undoing.isEmpty()) {
                    askFirst(undoing, Caller.asynchronous(client));
                }
                return;
            }
            for (Object outcome : outcomes) {
                if (!(outcome instanceof RuntimeException) || Wire.isReply(outcome)) {
                    pause.end();
                    break;
                }
            }
            caller.execute(() -> result.complete(outcomes));
        }

        /** Ends the call, unless replies have arrived meanwhile. */
        private void expire() {
            long leftNanos = isSent ? lastReply + limitNanos - System.nanoTime() : 0;
            if (leftNanos > 0) {
                if (!hasLeft.get()) {
                    startTimer(leftNanos);
                }
            } else if (leave()) {
                pause.begin();
                List<Asking> unsent = takeQueue();
                connection.replace(commands);
                finishUnsent();
                timedOut("the server has not answered " + commands.get(0).name() + " in time");
                unsent.stream().filter(Asking::leave).forEach(other -> other.timedOut("the server has not answered other commands in time"));
            }
        }

        private void timedOut(String message) {
            List<Object> outcomes = Collections.nCopies(commands.size(), new TimedOut(message));
            try {
                // The JDK has one thread for all timers: the caller's steps must not run in it.
                client.executor.execute(() -> caller.execute(() -> result.complete(outcomes)));
            } catch (RejectedExecutionException closed) {
                caller.execute(() -> result.complete(outcomes));
            }
        }

        private void abort() {
            if (leave()) {
                finishUnsent();
                caller.execute(() -> result.completeExceptionally(new CancellationException("the call was cancelled")));
            }
        }

        /** Gives up what these commands occupy: once, when no reply can arrive any more. */
        private void finish(List<Object> outcomes) {
            release(this);
            if (hasFinished.compareAndSet(false, true)) {
                how.finished.accept(outcomes);
            }
        }

        private void finishUnsent() {
            if (!isSent) {
                finish(List.of());
            }
        }

        private boolean leave() {
            if (!hasLeft.compareAndSet(false, true)) {
                return false;
            }
            if (timer != null) {
                timer.cancel(false);
            }
            caller.signal.remove(abort);
            return true;
        }
    }

    /** Whether a server refuses all commands. A new connection may find the new primary, where an old one that still runs never would. */
    private static boolean isRefusal(Object outcome) {
        String text = Wire.isReply(outcome) ? String.valueOf(((RuntimeException) outcome).getMessage()) : "";
        return text.startsWith("READONLY ") || text.startsWith("MASTERDOWN ") || text.startsWith("LOADING ");
    }

    private static Object outcome(Command command, Object reply) {
        if (reply instanceof RuntimeException error && command.name().startsWith("BF.")
                && String.valueOf(error.getMessage()).contains("unknown command")) {
            return new ModuleMissing(
                    "the server does not know " + command.name() + ": it has not loaded the module bloomgate", error);
        }
        return reply;
    }
}
