package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import io.bloomgate.Keys.FeedKeys;
import io.bloomgate.Keys.Row;
import java.lang.System.Logger.Level;
import java.lang.System.Logger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/** Fetches rows (BF.FETCH, BF.MFETCH), and fills them or ends their leases (BF.FILL). */
class Fetching<V> {
    static final CompletableFuture<Void> DONE = CompletableFuture.completedFuture(null);

    /** The server's default LEASE, which need not be sent. */
    private static final long DEFAULT_LEASE_MS = 3000;

    /** The largest share by which times to live are shortened at random, so that rows filled together do not expire together. */
    private static final double JITTER = 0.1;

    /** The answer to a fetch that is not sent during a pause. */
    private static final RuntimeException PAUSED = new TimedOut("a moment ago, the server did not answer in time, or refused a fill");

    /** A row and the token of its lease. */
    record Lease(Row row, byte[] token) {}

    /** A decoded answer: a row, or null if the row does not exist. */
    record Decoded<V>(@Nullable V row) {}

    final Bloomgate client;
    final Link link;
    final WaitingConnections waiting;
    final byte[] filter;
    final byte[] prefix;
    final Guard.Builder<V> options;
    final @Nullable FeedKeys feed;
    final Warnings warnings = new Warnings();
    private final LongAdder[] counts = new LongAdder[Event.values().length];
    /** The options of every fetch. */
    private final List<byte[]> words = new ArrayList<>();
    /**
     * The time until which no row is fetched, after the server has refused BF.FILL: without permission to end leases, each reader would
     * wait for the lease of the one before it.
     */
    private volatile long forbiddenUntil = System.nanoTime();

    Fetching(Guard.Builder<V> options) {
        this.options = options;
        client = options.client;
        filter = options.filter;
        link = client.link;
        waiting = client.waiting;
        prefix = options.prefix != null ? options.prefix : Keys.cachePrefix(filter);
        feed = options.feed ? new FeedKeys(filter) : null;
        Arrays.setAll(counts, index -> new LongAdder());
        addOption("LEASE", options.leaseMs == DEFAULT_LEASE_MS ? 0 : options.leaseMs);
        addOption("STALE", options.failSafeMs);
        addOption("RENEW", Math.round(options.beta * 100));
        if (feed != null) {
            Collections.addAll(words, Keys.ascii("WHILE"), feed.heartbeat, Keys.ascii("UNLESS"), feed.inFlight);
        }
        addOption("FRESH", options.freshMs);
    }

    private void addOption(String name, long value) {
        if (value > 0) {
            Collections.addAll(words, Keys.ascii(name), Keys.ascii(Long.toString(value)));
        }
    }

    static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    Map<Event, Long> counts() {
        Map<Event, Long> found = new TreeMap<>();
        for (Event event : Event.values()) {
            found.put(event, counts[event.ordinal()].sum());
        }
        return found;
    }

    void count(Event event, int number) {
        counts[event.ordinal()].add(number);
        if (options.listener != null) {
            options.listener.accept(event, number);
        }
    }

    void failed(RuntimeException error) {
        count(Event.ERRORS, 1);
        warnings.warn("the server could not be queried", error);
    }

    Row row(Object id) {
        return new Row(id, prefix);
    }

    /**
     * Fetches rows. Ends with an answer or an error for each. If the call is aborted, the leases in the replies are given up. With
     * `waitMs`, one row is fetched on a reserved connection.
     */
    CompletableFuture<List<Fetched>> fetch(List<Row> rows, long waitMs, Caller caller, Object... further) {
        if (System.nanoTime() - forbiddenUntil < 0 || link.pause.holds()) {
            if (waitMs > 0) {
                waiting.release();
            }
            return CompletableFuture.completedFuture(Collections.nCopies(rows.size(), Fetched.failed(PAUSED)));
        }
        Link.AskOptions sending = new Link.AskOptions();
        sending.waitMs = waitMs;
        sending.undo = outcomes -> {
            List<Fetched> answers = answers(outcomes, rows.size());
            List<Command> commands = new ArrayList<>();
            for (int index = 0; index < answers.size(); index++) {
                if (answers.get(index).token() != null) {
                    commands.add(fill(new Lease(rows.get(index), answers.get(index).token()), "GIVEUP"));
                }
            }
            return commands;
        };
        List<Command> commands = fetches(rows, further);
        return (waitMs > 0 ? waiting.ask(commands, sending, caller) : link.ask(commands, sending, caller)).thenApply(outcomes -> {
            List<Fetched> answers = answers(outcomes, rows.size());
            for (Fetched answer : answers) {
                if (answer.error() != null) {
                    failed(answer.error());
                } else {
                    count(answer.word(), 1);
                }
            }
            return answers;
        });
    }

    /** Returns a BF.FETCH for one row, or a BF.MFETCH for up to 500 rows each. */
    private List<Command> fetches(List<Row> rows, Object... further) {
        List<Command> commands = new ArrayList<>(1);
        if (rows.size() == 1) {
            List<Object> fetch = new ArrayList<>(words.size() + further.length + 4);
            Collections.addAll(fetch, "BF.FETCH", filter, rows.get(0).item, rows.get(0).cacheKey);
            fetch.addAll(words);
            Collections.addAll(fetch, further);
            commands.add(Link.command(filter, fetch.toArray()));
            return commands;
        }
        for (List<Row> part : parts(rows)) {
            List<Object> fetch = new ArrayList<>(List.of("BF.MFETCH", filter));
            fetch.addAll(words);
            Collections.addAll(fetch, further);
            fetch.add("ITEMS");
            part.forEach(row -> Collections.addAll(fetch, row.item, row.cacheKey));
            commands.add(Link.command(filter, fetch.toArray()));
        }
        return commands;
    }

    private static List<Fetched> answers(List<Object> outcomes, int rows) {
        if (rows == 1) {
            return List.of(Fetched.parse(outcomes.get(0)));
        }
        List<Fetched> answers = new ArrayList<>(rows);
        for (Object outcome : outcomes) {
            spread(outcome, Math.min(Items.COMMAND_ITEMS, rows - answers.size())).forEach(one -> answers.add(Fetched.parse(one)));
        }
        return answers;
    }

    /** Returns an answer for each row of a command, or the command's error for each. */
    static List<Object> spread(@Nullable Object outcome, int rows) {
        if (outcome instanceof List<?> && Replies.list(outcome).size() == rows) {
            return Replies.list(outcome);
        }
        return Collections.nCopies(rows, outcome instanceof RuntimeException ? outcome
                : new IllegalStateException("the server has sent " + Replies.text(outcome) + " for a batch"));
    }

    /** Splits a list into parts of up to 500 elements. */
    static <T> List<List<T>> parts(List<T> all) {
        List<List<T>> parts = new ArrayList<>();
        for (int start = 0; start < all.size(); start += Items.COMMAND_ITEMS) {
            parts.add(all.subList(start, Math.min(start + Items.COMMAND_ITEMS, all.size())));
        }
        return parts;
    }

    private Command fill(Lease lease, Object... rest) {
        List<Object> fill = new ArrayList<>();
        Collections.addAll(fill, "BF.FILL", filter, lease.row.item, lease.row.cacheKey, lease.token);
        Collections.addAll(fill, rest);
        return Link.command(filter, fill.toArray());
    }

    /** Sends BF.FILLs together, even if the call is aborted. */
    private CompletableFuture<List<Object>> ask(List<Command> fills) {
        return link.askFirst(fills, Caller.asynchronous(client)).thenApply(outcomes -> {
            if (outcomes.stream().anyMatch(outcome -> LettuceConnection.errorText(outcome).startsWith("NOPERM"))) {
                forbiddenUntil = System.nanoTime() + Link.Pause.PAUSE_NANOS;
            }
            return outcomes;
        });
    }

    /** Ends leases, so that other callers may load. */
    CompletableFuture<Void> giveUp(Collection<Lease> leases, Object... words) {
        if (leases.isEmpty()) {
            return DONE;
        }
        Object[] rest = new Object[words.length + 1];
        rest[0] = "GIVEUP";
        System.arraycopy(words, 0, rest, 1, words.length);
        return ask(leases.stream().map(lease -> fill(lease, rest)).toList()).thenAccept(outcomes -> {});
    }

    /** Fills rows, up to 500 rows and 1 MiB at a time. Stops if the server does not answer. */
    CompletableFuture<Void> fillAll(List<Lease> leases, Map<String, byte[]> rows, long ttlMs) {
        int size = 0;
        for (long bytes = 0; size < Math.min(Items.COMMAND_ITEMS, leases.size()); size++) {
            byte[] row = rows.get(leases.get(size).row.id);
            bytes += row == null ? 0 : row.length;
            if (size > 0 && bytes > Items.COMMAND_BYTES) {
                break;
            }
        }
        List<Lease> others = leases.subList(size, leases.size());
        return fillPart(leases.subList(0, size), rows, ttlMs).thenCompose(nothing -> {
            if (!link.pause.isOn() && !others.isEmpty()) {
                return fillAll(others, rows, ttlMs);
            }
            others.forEach(lease -> failed(PAUSED));
            return DONE;
        });
    }

    /** Fills one part. The server ends the lease of a fill that it refuses. A lease whose connection was lost is given up. */
    private CompletableFuture<Void> fillPart(List<Lease> leases, Map<String, byte[]> rows, long ttlMs) {
        return ask(leases.stream().map(lease -> {
            byte[] row = rows.get(lease.row.id);
            double share = 1 - JITTER * ThreadLocalRandom.current().nextDouble();
            long px = Math.max(1, Math.round((row == null ? options.absentTtlMs : ttlMs) * share));
            return row == null ? fill(lease, "NONE", "PX", px) : fill(lease, "VALUE", row, "PX", px + options.failSafeMs);
        }).toList()).thenCompose(outcomes -> {
            List<Lease> lost = new ArrayList<>();
            for (int index = 0; index < outcomes.size(); index++) {
                if (outcomes.get(index) instanceof RuntimeException error) {
                    failed(error);
                    if (error instanceof Disconnected) {
                        lost.add(leases.get(index));
                    }
                } else {
                    count(outcomes.get(index) == null ? Event.LEASE_LOST : Event.FILLED, 1);
                }
            }
            return giveUp(lost);
        });
    }

    /** Decodes an answer with a value or `absent`. Returns null for other answers, or if the codec fails. */
    @Nullable Decoded<V> decode(Fetched found) {
        if (found.value() == null) {
            return found.word() == Event.ABSENT ? new Decoded<>(null) : null;
        }
        try {
            return new Decoded<>(options.codec.decode(found.value()));
        } catch (Exception error) {
            count(Event.UNDECODABLE, 1);
            warnings.warn("a cached value could not be decoded, and is replaced", error);
            return null;
        }
    }

    interface Conversion<A, B> {
        B of(A row) throws Exception;
    }

    static <A, B> Map<String, B> converted(Map<String, A> rows, Conversion<A, B> conversion) {
        Map<String, B> found = new HashMap<>();
        rows.forEach((id, row) -> {
            try {
                found.put(id, row == null ? null : conversion.of(row));
            } catch (RuntimeException error) {
                throw error;
            } catch (Exception error) {
                throw new CompletionException(error);
            }
        });
        return found;
    }

    /** Warnings of a guard that continues without its server, at most one of each kind per minute. */
    static final class Warnings {
        private static final Logger LOGGER = System.getLogger("io.bloomgate");
        private static final long WARN_INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);

        private final Map<String, Long> last = new ConcurrentHashMap<>();

        void warn(String problem, @Nullable Throwable error) {
            long now = System.nanoTime();
            Long kept = last.merge(problem, now, (before, after) -> after - before < WARN_INTERVAL_NANOS ? before : after);
            if (kept == now) {
                LOGGER.log(Level.WARNING, error == null ? problem : problem + ": " + error, (Throwable) null);
            }
        }
    }
}
