package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.ModuleMissing;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Sends commands within the time limit. */
final class Link {
    /**
     * The maximum number and size of commands in flight. Others wait in the process, where their time limit has not begun. So a burst of
     * any size succeeds if the server answers this many in time.
     */
    private static final int MAX_COMMANDS = 500;
    private static final long MAX_BYTES = (long) Items.WINDOW_COMMANDS * Items.COMMAND_BYTES;

    /** The guard's commands. Only an older module can report a syntax error in them, because their options are fixed. */
    private static final Set<String> GUARDS = Set.of("BF.FETCH", "BF.MFETCH", "BF.FILL", "BF.CHANGED", "BF.MCHANGED");

    private final Deque<PendingCommands> queue = new ArrayDeque<>();
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

    static Command command(byte @Nullable [] key, Object... words) {
        List<byte[]> bytes = new ArrayList<>(words.length);
        for (Object word : words) {
            bytes.add(word instanceof byte[] data ? data : Keys.ascii(word.toString()));
        }
        return new Command(key, bytes);
    }

    /** Options for sending commands. */
    static final class AskOptions {
        /** The time by which the server may delay the replies, in addition to the time limit. */
        long waitMs;
        /** Whether to send these commands before other queued ones: they end leases, for which other callers wait. */
        boolean isUrgent;
        /** Returns the commands that undo the outcomes. They are sent if the caller was aborted, or the replies were late. */
        Function<List<Object>, List<Command>> undo = outcomes -> List.of();
        /** Called when the replies have arrived, or can no longer arrive. */
        Consumer<List<Object>> finished = outcomes -> {};
    }

    /**
     * Sends commands together. Ends with the outcome of each, which is its reply or a RuntimeException, and fails only if the call is
     * aborted. The time limit applies to each next reply.
     */
    CompletableFuture<List<Object>> ask(List<Command> commands, AskOptions options, Caller caller) {
        PendingCommands pending = new PendingCommands(commands, options, caller);
        caller.signal.add(pending.abort);
        synchronized (this) {
            if (!queue.isEmpty() || !reserve(pending)) {
                if (options.isUrgent) {
                    queue.addFirst(pending);
                } else {
                    queue.add(pending);
                }
                return pending.result;
            }
        }
        pending.send();
        return pending.result;
    }

    private boolean reserve(PendingCommands next) {
        if (commandsInFlight > 0 && (commandsInFlight + next.commands.size() > MAX_COMMANDS || bytesInFlight + next.bytes > MAX_BYTES)) {
            return false;
        }
        next.isReserved = true;
        commandsInFlight += next.commands.size();
        bytesInFlight += next.bytes;
        return true;
    }

    /** Sends queued commands up to the limit. */
    private void release(PendingCommands ended) {
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
        for (PendingCommands next = next(); next != null; next = next()) {
            next.send();
        }
    }

    /** Removes the first entry from the queue if the limit allows sending it. */
    private synchronized @Nullable PendingCommands next() {
        isSending = !queue.isEmpty() && reserve(queue.peek());
        return isSending ? queue.remove() : null;
    }

    /** Empties the queue, to end its calls because the server does not answer. */
    private synchronized List<PendingCommands> takeQueue() {
        List<PendingCommands> all = List.copyOf(queue);
        queue.clear();
        return all;
    }

    CompletableFuture<List<Object>> ask(List<Command> commands, Caller caller) {
        return ask(commands, new AskOptions(), caller);
    }

    /** {@link #ask} for commands that are sent before other queued ones. */
    CompletableFuture<List<Object>> askFirst(List<Command> commands, Caller caller) {
        AskOptions options = new AskOptions();
        options.isUrgent = true;
        return ask(commands, options, caller);
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

    private enum State { UNSENT, SENT, ENDED }

    /** Commands that are sent together. */
    final class PendingCommands implements TimerTask {
        final CompletableFuture<List<Object>> result = new CompletableFuture<>();
        private final List<Command> commands;
        private final AskOptions options;
        private final Caller caller;
        private final AtomicReference<State> state = new AtomicReference<>(State.UNSENT);
        private final Runnable abort = this::abort;
        private final long limitNanos;
        private final long bytes;
        private volatile @Nullable Timeout timer;
        /** The time of the last reply, or the beginning of the wait for the first reply or for a connection. */
        private volatile long lastReply;
        /** Whether it counts among the commands in flight. */
        private boolean isReserved;

        PendingCommands(List<Command> commands, AskOptions options, Caller caller) {
            this.commands = commands;
            this.options = options;
            this.caller = caller;
            limitNanos = TimeUnit.MILLISECONDS.toNanos(client.timeoutMs + options.waitMs);
            bytes = commands.stream().mapToLong(Command::bytes).sum();
        }

        /** Sends the commands once a connection is open, unless the caller has stopped waiting. */
        void send() {
            lastReply = System.nanoTime();
            startTimer(limitNanos);
            connection.ready(commands).whenComplete((nothing, error) -> {
                lastReply = System.nanoTime();
                if (!state.compareAndSet(State.UNSENT, State.SENT)) {
                    release(this);
                    return;
                }
                try {
                    await(error == null ? connection.send(commands) : failed(error));
                } catch (Throwable unsent) {
                    await(failed(unsent));
                }
            });
        }

        private List<CompletableFuture<Object>> failed(Throwable error) {
            return Collections.nCopies(commands.size(), CompletableFuture.failedFuture(error));
        }

        /** Returns false if the client is closed. */
        private boolean startTimer(long nanos) {
            try {
                timer = client.timer.newTimeout(this, nanos, TimeUnit.NANOSECONDS);
                return true;
            } catch (IllegalStateException closed) {
                return false;
            }
        }

        /** Returns the remaining wait of the caller, which is for the connection before the commands are sent. */
        private long leftNanos() {
            boolean isOpening = state.get() == State.UNSENT && !pause.isOn();
            return lastReply + (isOpening ? Math.max(limitNanos, client.connectNanos) : limitNanos) - System.nanoTime();
        }

        private void await(List<CompletableFuture<Object>> replies) {
            List<CompletableFuture<Object>> outcomes = IntStream.range(0, commands.size()).mapToObj(index ->
                    replies.get(index).handle((reply, error) -> {
                        lastReply = System.nanoTime();
                        return outcome(commands.get(index), reply, error);
                    })).toList();
            CompletableFuture.allOf(outcomes.toArray(CompletableFuture[]::new))
                    .thenRun(() -> arrived(outcomes.stream().map(CompletableFuture::join).toList()));
        }

        private void arrived(List<Object> outcomes) {
            if (outcomes.stream().anyMatch(Link::isRefusal)) {
                replaceConnections();
            }
            finish(outcomes);
            if (endWait() == State.ENDED) {
                List<Command> undoing = options.undo.apply(outcomes);
                if (!undoing.isEmpty()) {
                    askFirst(undoing, Caller.asynchronous(client));
                }
                return;
            }
            if (outcomes.stream().anyMatch(LettuceConnection::isReply)) {
                pause.end();
            }
            caller.execute(() -> result.complete(outcomes));
        }

        /** Ends the call unless replies have arrived since the last check. */
        @Override
        public void run(Timeout expired) {
            long leftNanos = leftNanos();
            if (leftNanos > 0 && state.get() != State.ENDED && startTimer(Math.min(leftNanos, limitNanos))) {
                return;
            }
            State before = endWait();
            if (before != State.ENDED) {
                pause.begin();
                caller.executeAfterTimer(() -> giveUp(before));
            }
        }

        private void giveUp(State before) {
            List<PendingCommands> unsent = takeQueue();
            replaceConnections();
            if (before == State.UNSENT) {
                finish(List.of());
            }
            timedOut("the server has not answered " + commands.get(0).name() + " in time");
            unsent.stream().filter(other -> other.endWait() != State.ENDED)
                    .forEach(other -> other.timedOut("the server has not answered other commands in time"));
        }

        private void timedOut(String message) {
            caller.executeAfterTimer(() -> result.complete(Collections.nCopies(commands.size(), new TimedOut(message))));
        }

        private void replaceConnections() {
            commands.stream().map(command -> connection.node(command.key())).distinct().forEach(Node::replace);
        }

        private void abort() {
            State before = endWait();
            if (before == State.UNSENT) {
                finish(List.of());
            }
            if (before != State.ENDED) {
                caller.execute(() -> result.completeExceptionally(new CancellationException("the call was cancelled")));
            }
        }

        /** Releases the resources of these commands once no more replies can arrive. */
        private void finish(List<Object> outcomes) {
            release(this);
            options.finished.accept(outcomes);
        }

        /** Ends the wait of the caller. Returns the state before. */
        private State endWait() {
            State before = state.getAndSet(State.ENDED);
            if (before != State.ENDED) {
                if (timer != null) {
                    timer.cancel();
                }
                caller.signal.remove(abort);
            }
            return before;
        }
    }

    /** Whether a server refuses all commands. A new connection may reach the new primary; the old connection never would. */
    private static boolean isRefusal(Object outcome) {
        String text = LettuceConnection.errorText(outcome);
        return text.startsWith("READONLY ") || text.startsWith("MASTERDOWN ") || text.startsWith("LOADING ");
    }

    /** Returns a reply, or a RuntimeException: the server's error, or the reason why no reply arrived. */
    private static @Nullable Object outcome(Command command, @Nullable Object reply, @Nullable Throwable error) {
        if (error != null) {
            Throwable cause = Caller.cause(error);
            return cause instanceof Disconnected ? cause : new Disconnected("there is no connection to the server: " + cause, cause);
        }
        String text = LettuceConnection.errorText(reply);
        if (text.contains("unknown command") && command.name().startsWith("BF.")) {
            return new ModuleMissing("the server does not know " + command.name() + ": it has not loaded the module bloomgate", (Throwable) reply);
        }
        return text.equals("ERR syntax error") && GUARDS.contains(command.name())
                ? new ModuleMissing("the server does not know the options of " + command.name()
                        + ": its module bloomgate is older than this client", (Throwable) reply)
                : reply;
    }

    /** Skips commands to a server that has not answered in time. */
    static final class Pause {
        /** How long a pause lasts. */
        static final long PAUSE_NANOS = 2_000_000_000;

        private long end;
        private volatile boolean holds;

        synchronized void begin() {
            end = System.nanoTime() + PAUSE_NANOS;
            holds = true;
        }

        void end() {
            holds = false;
        }

        /** Whether the server has not answered since it exceeded a time limit. */
        boolean isOn() {
            return holds;
        }

        /** Whether to skip the command. After a pause, one caller probes the server; the rest stay paused. */
        boolean holds() {
            if (!holds) {
                return false;
            }
            synchronized (this) {
                if (System.nanoTime() - end < 0) {
                    return holds;
                }
                begin();
                return false;
            }
        }
    }
}
