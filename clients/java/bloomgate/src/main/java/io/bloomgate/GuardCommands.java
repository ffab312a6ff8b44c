package io.bloomgate;

import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import io.bloomgate.Keys.FeedKeys;
import io.bloomgate.Keys.Row;
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
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** The commands of one guard, and what their replies mean: what reading one row, reading many and writing have in common. */
class GuardCommands<V> {
    /** The most ids that are sent together. */
    static final int BATCH = 500;

    /** The longest STALE that BF.FETCH accepts, 2^61. Every value with a time to live has less than this left. */
    private static final long ANY_AGE = 1L << 61;

    /** Times to live are shortened by up to this share, at random: rows that are filled together do not expire together. */
    private static final double JITTER = 0.1;

    /** Renewals of faster loads may come together: they are over soon. */
    private static final double SLOW_LOAD_MS = 50;

    /** The answer to a fetch that is not sent. */
    private static final RuntimeException PAUSED = new TimedOut("the server has not answered in time, or not allowed a fill, a moment ago");

    /** A row and the token of its lease. */
    record Lease(Row row, byte[] token) {}

    /**
     * What a caller may do with a row: use the value, which is null if there is no row; with a token load the row, where the value is
     * what may be served if that fails. `isReadable` is false where no value is cached, or none that the codec can decode.
     */
    record Answer<V>(@Nullable V value, byte @Nullable [] token, boolean isReadable) {}

    /** How rows are fetched. */
    enum Fetching {
        PLAIN,
        /** Asks for the lease to replace a value that cannot be decoded. */
        REPLACE,
        /** An old value is as good as another. */
        ANY,
        /** For a caller that does not load under a lease: one that is granted ends after a millisecond. */
        PEEK
    }

    final Bloomgate client;
    final Link link;
    final WaitingConnections waiting;
    final byte[] filter;
    final byte[] prefix;
    final Guard.Builder<V> options;
    final @Nullable FeedKeys feed;
    final Warnings warnings = new Warnings();
    private final LongAdder[] counts = new LongAdder[Event.values().length];
    private final @Nullable BiConsumer<Event, Integer> listener;
    volatile boolean hasAnswered;
    /** Until when no row is fetched: the user may not end leases (BF.FILL), and each reader would wait for the end of the one before it. */
    private volatile long forbiddenUntil = System.nanoTime();
    /** The average duration of loads. */
    volatile double loadMs;

    GuardCommands(Guard.Builder<V> options) {
        this.options = options;
        client = options.client;
        filter = options.filter;
        link = client.link;
        waiting = client.waiting;
        prefix = options.prefix != null ? options.prefix : Keys.cachePrefix(filter);
        feed = options.feed ? new FeedKeys(filter) : null;
        listener = options.listener;
        Arrays.setAll(counts, index -> new LongAdder());
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
        if (listener != null) {
            listener.accept(event, number);
        }
    }

    void failed(RuntimeException error) {
        count(Event.ERRORS, 1);
        warnings.about("the server could not be asked", error);
    }

    Row row(Object id) {
        return new Row(id, prefix);
    }

    /**
     * Returns the STALE of a fetch: one caller refreshes a value with less than this to live.
     *
     * <p>A value with less than `failSafe` left is due. Before that, it is renewed with a probability that grows as its end approaches,
     * and the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache Stampede Prevention",
     * VLDB 2015, figure 3.
     */
    private long staleMs() {
        double early = loadMs * options.beta;
        if (early > 0) {
            early *= -Math.log(1 - ThreadLocalRandom.current().nextDouble());
        }
        return Math.min(ANY_AGE, options.failSafeMs + Math.round(early));
    }

    private long staleMs(Fetching how) {
        return switch (how) {
            case PLAIN -> staleMs();
            case REPLACE -> ANY_AGE;
            case ANY -> 0;
            case PEEK -> options.failSafeMs;
        };
    }

    private List<Object> fetchWords(long staleMs, Fetching how) {
        List<Object> words = new ArrayList<>(16);
        words.add("LEASE");
        words.add(how == Fetching.PEEK ? 1 : options.leaseMs);
        if (staleMs > 0) {
            words.add("STALE");
            words.add(staleMs);
        }
        if (feed != null) {
            Collections.addAll(words, "WHILE", feed.heartbeat, "UNLESS", feed.inFlight);
            if (options.freshMs > 0) {
                Collections.addAll(words, "FRESH", options.freshMs);
            }
        }
        return words;
    }

    private Command fetchCommand(Row row, Fetching how, Object... rest) {
        List<Object> words = new ArrayList<>(16);
        Collections.addAll(words, "BF.FETCH", filter, row.item, row.cacheKey);
        words.addAll(fetchWords(staleMs(how), how));
        Collections.addAll(words, rest);
        return Link.command(filter, words.toArray());
    }

    /**
     * Fetches rows: ends with an answer or an error for each. If the call is aborted, the leases in the replies are given up.
     *
     * <p>Several rows are one BF.MFETCH, or a few. `replace` needs BF.FETCH: STALE with the longest time gives one caller a token for
     * any value with a time to live; a value without one, which is never stale, gets one first. Deleting the value instead would not be
     * safe: every caller that has seen it would delete what the first of them has filled since.
     *
     * <p>An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would overwrite
     * them. Such a row is read from the database.
     */
    CompletableFuture<List<Fetched>> fetch(List<Row> rows, Fetching how, Caller caller) {
        if (feed != null && rows.stream().anyMatch(feed::own)) {
            List<Row> others = rows.stream().filter(row -> !feed.own(row)).toList();
            var refused = new IllegalArgumentException("the cache key of an id is a key of the follower");
            failed(refused);
            return fetch(others, how, caller).thenApply(found -> {
                Map<String, Fetched> byId = new HashMap<>();
                for (int index = 0; index < found.size(); index++) {
                    byId.put(others.get(index).id, found.get(index));
                }
                return rows.stream().map(row -> byId.getOrDefault(row.id, Fetched.failed(refused))).toList();
            });
        }
        if (rows.isEmpty()) {
            return CompletableFuture.completedFuture(List.of());
        }
        CompletableFuture<List<Fetched>> found;
        if (System.nanoTime() - forbiddenUntil < 0 || link.pause.holds()) {
            return CompletableFuture.completedFuture(Collections.nCopies(rows.size(), Fetched.failed(PAUSED)));
        } else if (rows.size() > 1 && how != Fetching.REPLACE) {
            found = fetchTogether(rows, how, caller);
        } else {
            found = fetchEach(rows, how, caller);
        }
        return found.thenApply(this::counted);
    }

    /** Fetches a row on a reserved connection, where the caller waits inside the server. */
    CompletableFuture<Fetched> fetchWaiting(Row row, long waitMs, Caller caller) {
        if (link.pause.holds()) {
            waiting.release();
            return CompletableFuture.completedFuture(Fetched.failed(PAUSED));
        }
        Link.How how = new Link.How();
        how.waitMs = waitMs;
        how.undo = outcomes -> unneeded(List.of(row), parsed(outcomes));
        return waiting.ask(List.of(fetchCommand(row, Fetching.PLAIN, "WAIT", waitMs)), how, caller)
                .thenApply(outcomes -> counted(parsed(outcomes)).get(0));
    }

    private static List<Fetched> parsed(List<Object> outcomes) {
        return outcomes.stream().map(Fetched::parse).toList();
    }

    private List<Fetched> counted(List<Fetched> answers) {
        for (Fetched answer : answers) {
            if (answer.error() != null) {
                failed(answer.error());
            } else {
                hasAnswered = true;
                count(answer.word(), 1);
            }
        }
        return answers;
    }

    /** Sends one BF.MFETCH, or a few. */
    private CompletableFuture<List<Fetched>> fetchTogether(List<Row> rows, Fetching how, Caller caller) {
        Map<Long, List<Row>> groups = how == Fetching.PLAIN ? staleGroups(rows) : Map.of(staleMs(how), rows);
        List<Command> commands = new ArrayList<>();
        List<Row> order = new ArrayList<>();
        List<Integer> sizes = new ArrayList<>();
        groups.forEach((staleMs, group) -> {
            List<Object> words = new ArrayList<>(List.of("BF.MFETCH", filter));
            words.addAll(fetchWords(staleMs, how));
            words.add("ITEMS");
            for (Row row : group) {
                words.add(row.item);
                words.add(row.cacheKey);
            }
            commands.add(Link.command(filter, words.toArray()));
            order.addAll(group);
            sizes.add(group.size());
        });
        Link.How sending = new Link.How();
        sending.undo = outcomes -> unneeded(order, parsed(spread(outcomes, sizes)));
        return link.ask(commands, sending, caller).thenApply(outcomes -> {
            List<Fetched> answers = parsed(spread(outcomes, sizes));
            Map<Row, Fetched> byRow = new HashMap<>();
            for (int index = 0; index < order.size(); index++) {
                byRow.put(order.get(index), answers.get(index));
            }
            return rows.stream().map(byRow::get).toList();
        });
    }

    /** Returns an answer for each row of some commands, which themselves may have failed. */
    static List<Object> spread(List<Object> outcomes, List<Integer> sizes) {
        List<Object> answers = new ArrayList<>();
        for (int index = 0; index < outcomes.size(); index++) {
            int size = sizes.get(index);
            if (outcomes.get(index) instanceof List<?> found && found.size() == size) {
                answers.addAll(found);
            } else {
                RuntimeException error = outcomes.get(index) instanceof RuntimeException failed ? failed
                        : new IllegalStateException("the server has sent " + Replies.text(outcomes.get(index)) + " for a batch");
                answers.addAll(Collections.nCopies(size, error));
            }
        }
        return answers;
    }

    /**
     * Returns rows by the STALE of their fetch. If all rows of a batch shared what is drawn for their renewal, a large number would renew
     * all that expire soon, at once. So slow loads are drawn for each row, and rows with similar numbers are fetched together.
     */
    private Map<Long, List<Row>> staleGroups(List<Row> rows) {
        if (loadMs * options.beta < SLOW_LOAD_MS) {
            return Map.of(staleMs(), rows);
        }
        Map<Integer, List<Row>> bySize = new TreeMap<>();
        Map<Integer, Long> drawn = new HashMap<>();
        for (Row row : rows) {
            long staleMs = staleMs();
            int size = 64 - Long.numberOfLeadingZeros(staleMs - options.failSafeMs);
            bySize.computeIfAbsent(size, key -> new ArrayList<>()).add(row);
            drawn.merge(size, staleMs, Long::sum);
        }
        Map<Long, List<Row>> groups = new TreeMap<>();
        bySize.forEach((size, group) ->
                groups.computeIfAbsent(drawn.get(size) / group.size(), key -> new ArrayList<>()).addAll(group));
        return groups;
    }

    /** Sends a BF.FETCH for each row, all together. */
    private CompletableFuture<List<Fetched>> fetchEach(List<Row> rows, Fetching how, Caller caller) {
        List<Command> commands = new ArrayList<>();
        for (Row row : rows) {
            if (how == Fetching.REPLACE) {
                commands.add(Link.command(row.cacheKey, "PEXPIRE", row.cacheKey, options.ttlMs, "NX"));
            }
            commands.add(fetchCommand(row, how));
        }
        Link.How sending = new Link.How();
        sending.undo = outcomes -> unneeded(rows, parsed(fetched(outcomes, how)));
        return link.ask(commands, sending, caller).thenApply(outcomes -> parsed(fetched(outcomes, how)));
    }

    /** Leaves the replies of PEXPIRE out. */
    private static List<Object> fetched(List<Object> outcomes, Fetching how) {
        if (how != Fetching.REPLACE) {
            return outcomes;
        }
        List<Object> fetched = new ArrayList<>();
        for (int index = 1; index < outcomes.size(); index += 2) {
            fetched.add(outcomes.get(index));
        }
        return fetched;
    }

    /** Returns the commands that give up the leases in some answers. */
    private List<Command> unneeded(List<Row> rows, List<Fetched> answers) {
        List<Command> commands = new ArrayList<>();
        for (int index = 0; index < answers.size(); index++) {
            if (answers.get(index).token() != null) {
                commands.add(fill(new Lease(rows.get(index), answers.get(index).token()), "GIVEUP"));
            }
        }
        return commands;
    }

    Command fill(Lease lease, Object... rest) {
        List<Object> words = new ArrayList<>();
        Collections.addAll(words, "BF.FILL", filter, lease.row.item, lease.row.cacheKey, lease.token);
        Collections.addAll(words, rest);
        return Link.command(filter, words.toArray());
    }

    /** Returns loaded rows as they are cached. */
    Map<String, byte[]> encodeRows(Map<String, V> rows) {
        return converted(rows, options.codec::encode);
    }

    /** Returns loaded rows as callers get them: as everybody gets them who finds them in the cache. */
    Map<String, V> decodeRows(Map<String, byte[]> encoded) {
        return converted(encoded, options.codec::decode);
    }

    private interface Conversion<A, B> {
        B of(A row) throws Exception;
    }

    private static <A, B> Map<String, B> converted(Map<String, A> rows, Conversion<A, B> conversion) {
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

    Command fillWith(Lease lease, byte @Nullable [] bytes, long ttlMs) {
        double share = 1 - JITTER * ThreadLocalRandom.current().nextDouble();
        if (bytes == null) {
            return fill(lease, "NONE", "PX", Math.max(1, Math.round(options.absentTtlMs * share)));
        }
        return fill(lease, "VALUE", bytes, "PX", Math.max(1, Math.round(ttlMs * share)) + options.failSafeMs);
    }

    /** Takes a step for each part of a list, of up to 500 elements, one after another. */
    static <T> CompletableFuture<Void> inParts(List<T> all, Function<List<T>, CompletableFuture<?>> step) {
        if (all.isEmpty()) {
            return CompletableFuture.completedFuture(null);
        }
        List<T> part = all.subList(0, Math.min(BATCH, all.size()));
        return step.apply(part).thenCompose(nothing -> inParts(all.subList(part.size(), all.size()), step));
    }

    private static boolean isForbidden(Object outcome) {
        return outcome instanceof RuntimeException error && String.valueOf(error.getMessage()).startsWith("NOPERM");
    }

    /** Ends leases, so that other callers may load. Nobody has to wait for the reply. */
    CompletableFuture<Void> giveUp(Collection<Lease> leases) {
        return leases.isEmpty() ? CompletableFuture.completedFuture(null) : giveUp(leases, Caller.asynchronous(client));
    }

    CompletableFuture<Void> giveUp(Collection<Lease> leases, Caller caller) {
        if (leases.isEmpty()) {
            return CompletableFuture.completedFuture(null);
        }
        List<Command> commands = leases.stream().map(lease -> fill(lease, "GIVEUP")).toList();
        return link.askFirst(commands, caller).thenAccept(outcomes -> {
            if (outcomes.stream().anyMatch(GuardCommands::isForbidden)) {
                forbiddenUntil = System.nanoTime() + Pause.PAUSE_NANOS;
            }
        });
    }

    /**
     * Sends the fills of some leases together. Gives up what the server refuses, because it is out of memory for instance: nobody should
     * wait until those leases end. A server that does not answer is not asked again.
     */
    CompletableFuture<Void> sendFills(List<Lease> leases, List<Command> fills, Caller caller) {
        return link.askFirst(fills, caller).thenCompose(outcomes -> {
            List<Lease> refused = new ArrayList<>();
            for (int index = 0; index < outcomes.size(); index++) {
                if (outcomes.get(index) instanceof RuntimeException error) {
                    failed(error);
                    if (!(error instanceof TimedOut)) {
                        refused.add(leases.get(index));
                    }
                } else {
                    count(outcomes.get(index) == null ? Event.LEASE_LOST : Event.FILLED, 1);
                }
            }
            return giveUp(refused, caller);
        });
    }

    /** Decodes the value of a reply other than `wait`. `undecodable` is a value that the codec has failed on already, or null. */
    Answer<V> read(Fetched found, byte @Nullable [] undecodable) {
        if (found.word() == Event.ABSENT) {
            return new Answer<>(null, null, true);
        }
        if (found.value() != null && !Arrays.equals(found.value(), undecodable)) {
            try {
                return new Answer<>(options.codec.decode(found.value()), found.token(), true);
            } catch (Exception error) {
                count(Event.UNDECODABLE, 1);
                warnings.about("a cached value could not be decoded, and is replaced", error);
            }
        }
        return new Answer<>(null, found.token(), false);
    }
}
