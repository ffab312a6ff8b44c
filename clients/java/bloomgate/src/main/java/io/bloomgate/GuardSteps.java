package io.bloomgate;

import io.bloomgate.BloomgateException.LoadFailed;
import io.bloomgate.BloomgateException.Unconfirmed;
import io.bloomgate.Connection.Command;
import io.bloomgate.Flights.Flight;
import io.bloomgate.Keys.FeedKeys;
import io.bloomgate.Keys.Row;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** The guard's protocol (docs/guard.md of the project): reading one row, and writing. */
final class GuardSteps<V> extends GuardLoads<V> {
    /** The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for. */
    private static final long REPEAT_MS = 100;

    private final Durability durability;

    GuardSteps(Guard.Builder<V> options) {
        super(options);
        durability = options.durability;
        durability.check(link.connection);
    }

    static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    /** Reads a row. `load` reads it from the database: null is no row. */
    CompletableFuture<V> get(Row row, Function<Caller, CompletableFuture<V>> load, long ttlMs, Caller caller) {
        long deadline = nowMs() + options.attempts * options.waitMs;
        LoaderOf<V> loader = rows -> by -> timed(load, 1, by).thenApply(value -> Collections.singletonMap(row.id, value));
        if (own.has(row)) {
            return own.load(List.of(row), loader, caller).thenApply(rows -> rows.get(row.id));
        }
        Flight flight = flights.begin(row.id);
        return attempt(() -> fetchRow(row, flight, deadline, caller).thenCompose(answer -> {
            if (answer == null || answer.token() == null) {
                return CompletableFuture.completedFuture(answer);
            }
            List<Lease> leases = List.of(new Lease(row, answer.token()));
            return loadRows(new Loading<>(leases, List.of(flight), loader, ttlMs, answer.isReadable()), caller)
                    .thenApply(rows -> new Answer<>(rows.get(row.id), null, true));
        })).whenComplete((answer, error) -> flights.end(flight)).thenCompose(answer -> {
            if (answer != null) {
                return CompletableFuture.completedFuture(answer.value());
            }
            // The server does not answer, or another caller loads the row and takes too long: ask the database, fill nothing.
            return unguarded(List.of(row), loader, flight.begun, caller).thenApply(rows -> rows.get(row.id));
        });
    }

    /** Returns a cached row, which is not old, or null. */
    CompletableFuture<V> peek(Row row, Caller caller) {
        return fetch(List.of(row), Fetching.PEEK, caller).thenApply(found -> {
            Fetched one = found.get(0);
            if (one.token() != null) {
                // It ends by itself, but callers that look often would hold leases most of the time.
                giveUp(List.of(new Lease(row, one.token())));
            }
            return one.word() == Event.HIT ? read(one, null).value() : null;
        });
    }

    /** Confirms a change now, and once more after a lease. */
    CompletableFuture<Void> confirmTwice(List<Row> rows, Caller caller) {
        return confirm(rows, caller).handle((nothing, error) -> error).thenCompose(error -> feed != null
                ? CompletableFuture.completedFuture(null) : caller.pause(options.leaseMs).thenCompose(nothing -> confirm(rows, caller)));
    }

    /** Fetches a row until the answer is final. Ends with null if the server fails, or nobody brings the row in time. */
    CompletableFuture<Answer<V>> fetchRow(Row row, Flight flight, long deadline, Caller caller) {
        return new OneRow(row, flight, deadline, caller).fetch();
    }

    /** The state of one call of fetchRow. */
    private final class OneRow {
        private final Row row;
        private final Flight flight;
        private final long deadline;
        private final Caller caller;
        private byte @Nullable [] undecodable;
        private boolean replace;
        private int waits;
        private int earlyEnds;

        OneRow(Row row, Flight flight, long deadline, Caller caller) {
            this.row = row;
            this.flight = flight;
            this.deadline = deadline;
            this.caller = caller;
        }

        CompletableFuture<Answer<V>> fetch() {
            flights.ask(flight);
            return GuardSteps.this.fetch(List.of(row), replace ? Fetching.REPLACE : Fetching.PLAIN, caller)
                    .thenCompose(found -> examine(found.get(0)));
        }

        private CompletableFuture<Answer<V>> examine(Fetched found) {
            if (found.error() != null) {
                flight.outcome = found;
                return CompletableFuture.completedFuture(null);
            }
            if (found.word() != Event.WAIT) {
                Answer<V> answer = read(found, undecodable);
                if (found.word() == Event.STALE && answer.isReadable() && replace) {
                    // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                    flight.outcome = found.withoutToken();
                    return giveUp(List.of(new Lease(row, found.token())), caller)
                            .thenApply(nothing -> new Answer<>(answer.value(), null, true));
                }
                if (answer.token() != null || answer.isReadable()) {
                    if (answer.token() == null) {
                        flight.outcome = found.withoutToken();
                    }
                    return CompletableFuture.completedFuture(answer);
                }
                undecodable = found.value();
                if (!replace) {
                    replace = true;
                    return fetch();
                }
            }
            long leftMs = deadline - nowMs();
            waits++;
            if (leftMs <= 0 && waits >= options.attempts) {
                return CompletableFuture.completedFuture(null);
            }
            replace = false;
            return await(leftMs, found.word() == Event.HIT).thenCompose(next -> next == null ? fetch() : examine(next));
        }

        /**
         * Waits for the caller that holds the lease: in this process, or else inside the server. Ends with what another caller shares, or
         * what the server answers, or with null. A server that has a value cached makes nobody wait for another; then, and if all waiting
         * connections are in use, it pauses.
         */
        private CompletableFuture<Fetched> await(long leftMs, boolean isCached) {
            if (leftMs <= 0) {
                return CompletableFuture.completedFuture(null);
            }
            CompletableFuture<Void> woken = flights.beginWait(flight);
            if (woken != null) {
                // A timer may end a millisecond early, and this call would wait once more.
                return caller.settles(woken, leftMs + 1).thenApply(hasEnded -> {
                    flights.endWait(flight);
                    if (flight.givenAnswer() != null || flight.givenFailure() != null) {
                        count(Event.SHARED, 1);
                    }
                    if (flight.givenFailure() != null) {
                        throw new CompletionException(caller.shared(flight.givenFailure()));
                    }
                    return flight.givenAnswer();
                });
            }
            if (isCached || !waiting.take()) {
                return caller.pause(Math.min(REPEAT_MS, leftMs)).thenApply(nothing -> null);
            }
            long waitMs = Math.min(options.waitMs, leftMs);
            long begun = nowMs();
            flights.ask(flight);
            return fetchWaiting(row, waitMs, caller).thenCompose(found -> {
                long waitedMs = nowMs() - begun;
                if (found.word() != Event.WAIT || waitedMs >= waitMs / 2) {
                    earlyEnds = 0;
                    return CompletableFuture.completedFuture(found);
                }
                // A caller that waits for a lease waits for all of waitMs. A back-off is answered earlier, and CLIENT UNBLOCK ends a wait.
                earlyEnds++;
                if (options.failSafeMs > 0 && earlyEnds > 1) {
                    flight.failure = new LoadFailed(row.item, null);
                    throw new CompletionException(flight.failure);
                }
                return caller.pause(Math.max(1, REPEAT_MS - waitedMs)).thenApply(nothing -> found);
            });
        }
    }

    /** A writer's first call: fails with the first error. With a feed, the follower makes the writers' calls. */
    CompletableFuture<Void> announce(List<Row> rows, Caller caller) {
        return change(feed != null ? List.of() : rows, caller).thenAccept(outcomes -> {
            for (RuntimeException trouble : outcomes) {
                if (trouble != null) {
                    throw trouble;
                }
            }
        });
    }

    /** A writer's second call: repeated until the server has answered for every row, for up to `patience`. */
    CompletableFuture<Void> confirm(List<Row> rows, Caller caller) {
        return feed != null ? CompletableFuture.completedFuture(null) : confirm(rows, nowMs() + options.patienceMs, caller);
    }

    private CompletableFuture<Void> confirm(List<Row> rows, long deadline, Caller caller) {
        return change(rows, caller).thenCompose(outcomes -> {
            List<Row> left = new ArrayList<>();
            RuntimeException trouble = null;
            for (int index = 0; index < rows.size(); index++) {
                if (outcomes.get(index) != null) {
                    left.add(rows.get(index));
                    trouble = trouble == null ? outcomes.get(index) : trouble;
                }
            }
            if (trouble == null) {
                return CompletableFuture.completedFuture(null);
            }
            failed(trouble);
            if (nowMs() >= deadline) {
                throw new Unconfirmed(left.stream().map(row -> row.item).toList(), trouble);
            }
            return caller.pause(REPEAT_MS).thenCompose(nothing -> confirm(left, deadline, caller));
        });
    }

    /** Announces a change of each row, to the filters that are being filled first. Ends with an error or null for each. */
    private CompletableFuture<List<RuntimeException>> change(List<Row> rows, Caller caller) {
        List<RuntimeException> all = new ArrayList<>();
        return inParts(rows, part -> changePart(part, caller).thenAccept(outcomes -> {
            hasAnswered |= outcomes.get(outcomes.size() - 1) == null;
            all.addAll(outcomes);
        })).thenApply(nothing -> all);
    }

    private CompletableFuture<List<RuntimeException>> changePart(List<Row> rows, Caller caller) {
        List<byte[]> filters = new ArrayList<>(options.announceTo);
        filters.add(filter);
        boolean isBatch = rows.size() > 1;
        return sendChanges(rows, filters, isBatch, caller).thenApply(found -> {
            RuntimeException lost = durability.error(found);
            List<Object> replies = durability.isAsked() ? found.subList(0, found.size() - 1) : found;
            // The answers of each filter, in the order of the rows.
            List<Object> each = isBatch ? spread(replies, Collections.nCopies(filters.size(), rows.size())) : replies;
            List<RuntimeException> outcomes = new ArrayList<>(Collections.nCopies(rows.size(), lost));
            for (int index = 0; index < each.size(); index++) {
                int row = index % rows.size();
                if (outcomes.get(row) == null && each.get(index) instanceof RuntimeException error) {
                    outcomes.set(row, error);
                }
            }
            return outcomes;
        });
    }

    private CompletableFuture<List<Object>> sendChanges(
            List<Row> rows, List<byte[]> filters, boolean isBatch, Caller caller) {
        List<Command> commands = new ArrayList<>();
        for (byte[] name : filters) {
            if (isBatch) {
                List<Object> words = new ArrayList<>(List.of("BF.MCHANGED", name, "ITEMS"));
                rows.forEach(row -> Collections.addAll(words, row.item, row.cacheKey));
                commands.add(Link.command(name, words.toArray()));
            } else {
                rows.forEach(row -> commands.add(Link.command(name, "BF.CHANGED", name, row.item, row.cacheKey)));
            }
        }
        if (!durability.isAsked()) {
            return link.ask(commands, caller);
        }
        // WAIT blocks its connection until the replicas have the change.
        commands.addAll(durability.commands(filter));
        Link.How how = new Link.How();
        how.waitMs = durability.waitMs();
        return waiting.reserve(caller).thenCompose(nothing -> waiting.ask(commands, how, caller));
    }

    /** Deletes rows' ids from the filter: fails with the first error. */
    CompletableFuture<Void> forget(List<Row> rows, Caller caller) {
        return inParts(feed != null ? List.of() : rows, part -> {
            List<Object> words = new ArrayList<>(List.of("BF.MDEL", filter));
            part.forEach(row -> words.add(row.item));
            return link.one(Link.command(filter, words.toArray()), caller).thenAccept(reply -> {
                for (Object answer : Replies.list(reply)) {
                    if (answer instanceof RuntimeException error) {
                        throw error;
                    }
                }
            });
        });
    }

    /** Returns whether the living follower deletes the cache keys of this guard, or null if none is alive. */
    CompletableFuture<Boolean> isFollowed(Caller caller) {
        if (feed == null) {
            throw new IllegalStateException("this guard has no feed");
        }
        return link.one(Link.command(feed.heartbeat, "GET", feed.heartbeat), caller)
                .thenApply(value -> value == null ? null : FeedKeys.deletes(Keys.latin((byte[]) value), Keys.latin(prefix)));
    }

    /** Deletes the keys with the prefix, except those of the follower. */
    CompletableFuture<Void> clear(Caller caller) {
        String pattern = Keys.latin(prefix).replaceAll("([*?\\[\\]^\\\\-])", "\\\\$1") + "*";
        return clear(Keys.ascii(pattern), Keys.ascii("0"), caller);
    }

    private CompletableFuture<Void> clear(byte[] pattern, byte[] cursor, Caller caller) {
        return link.one(Link.command(prefix, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000), caller).thenCompose(reply -> {
            List<Object> words = new ArrayList<>(List.of("UNLINK"));
            for (Object key : Replies.list(Replies.list(reply).get(1))) {
                if (feed == null || !feed.own((byte[]) key)) {
                    words.add(key);
                }
            }
            byte[] next = (byte[]) Replies.list(reply).get(0);
            CompletableFuture<Object> deleted = words.size() == 1 ? CompletableFuture.completedFuture(null)
                    : link.one(Link.command(prefix, words.toArray()), caller);
            return deleted.thenCompose(nothing -> Replies.text(next).equals("0")
                    ? CompletableFuture.completedFuture(null) : clear(pattern, next, caller));
        });
    }
}
