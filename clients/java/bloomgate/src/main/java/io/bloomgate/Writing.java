package io.bloomgate;

import io.bloomgate.BloomgateException.Unconfirmed;
import io.bloomgate.Connection.Command;
import io.bloomgate.Keys.FeedKeys;
import io.bloomgate.Keys.Row;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Announces and confirms changes of rows (docs/guard.md of the project). With a feed it does nothing: the follower announces each change.
 */
final class Writing {
    /** The pause before a confirmation is repeated. */
    private static final long REPEAT_MS = 100;

    private final Fetching<?> guard;
    private final Link link;
    private final byte[] filter;
    private final Durability durability;

    Writing(Fetching<?> guard) {
        this.guard = guard;
        link = guard.link;
        filter = guard.filter;
        durability = guard.options.durability;
        durability.check(link.connection);
    }

    /** Announces changes before their commit. Fails with the first error. */
    CompletableFuture<Void> announce(List<Row> rows, Caller caller) {
        return change(rows, caller).thenAccept(outcomes -> outcomes.stream().filter(Objects::nonNull).findFirst().ifPresent(failure -> {
            throw failure;
        }));
    }

    /** Confirms changes after their commit. Repeated for up to `patience` until the server has answered for every row. */
    CompletableFuture<Void> confirm(List<Row> rows, Caller caller) {
        return confirm(rows, Fetching.nowMs() + guard.options.patienceMs, caller);
    }

    private CompletableFuture<Void> confirm(List<Row> rows, long deadline, Caller caller) {
        return change(rows, caller).thenCompose(outcomes -> {
            List<Row> left = new ArrayList<>();
            RuntimeException failure = null;
            for (int index = 0; index < outcomes.size(); index++) {
                if (outcomes.get(index) != null) {
                    left.add(rows.get(index));
                    failure = failure == null ? outcomes.get(index) : failure;
                }
            }
            if (failure == null) {
                return Fetching.DONE;
            }
            guard.failed(failure);
            if (Fetching.nowMs() >= deadline) {
                throw new Unconfirmed(left.stream().map(row -> row.item).toList(), failure);
            }
            return caller.pause(REPEAT_MS).thenCompose(nothing -> confirm(left, deadline, caller));
        });
    }

    /** Confirms a change now, and once more after a lease. */
    CompletableFuture<Void> confirmTwice(List<Row> rows, Caller caller) {
        return confirm(rows, caller).handle((nothing, error) -> error).thenCompose(error -> guard.feed != null
                ? Fetching.DONE : caller.pause(guard.options.leaseMs).thenCompose(nothing -> confirm(rows, caller)));
    }

    /** Announces a change of each row, first to the filters that are being filled. Ends with an error or null for each row. */
    private CompletableFuture<List<RuntimeException>> change(List<Row> rows, Caller caller) {
        List<RuntimeException> all = new ArrayList<>();
        return inParts(rows, part -> sendChanges(part, caller).thenAccept(found -> {
            RuntimeException lost = durability.error(found);
            List<RuntimeException> outcomes = new ArrayList<>(Collections.nCopies(part.size(), lost));
            for (Object reply : durability.isAsked() ? found.subList(0, found.size() - 1) : found) {
                List<Object> answers = part.size() == 1 ? Collections.singletonList(reply) : Fetching.spread(reply, part.size());
                for (int row = 0; row < part.size(); row++) {
                    if (outcomes.get(row) == null && answers.get(row) instanceof RuntimeException error) {
                        outcomes.set(row, error);
                    }
                }
            }
            all.addAll(outcomes);
        })).thenApply(nothing -> all);
    }

    private CompletableFuture<List<Object>> sendChanges(List<Row> rows, Caller caller) {
        List<byte[]> filters = new ArrayList<>(guard.options.announceTo);
        filters.add(filter);
        List<Command> commands = new ArrayList<>();
        for (byte[] name : filters) {
            List<Object> words = new ArrayList<>(rows.size() == 1 ? List.of("BF.CHANGED", name) : List.of("BF.MCHANGED", name, "ITEMS"));
            rows.forEach(row -> Collections.addAll(words, row.item, row.cacheKey));
            commands.add(Link.command(name, words.toArray()));
        }
        if (!durability.isAsked()) {
            return link.ask(commands, caller);
        }
        // WAIT blocks its connection until the replicas have the change.
        commands.addAll(durability.commands(filter));
        Link.AskOptions sending = new Link.AskOptions();
        sending.waitMs = durability.waitMs();
        return guard.waiting.reserve(caller).thenCompose(nothing -> guard.waiting.ask(commands, sending, caller));
    }

    /** Runs a step for each part of the rows, one after another. Does nothing with a feed. */
    private CompletableFuture<Void> inParts(List<Row> rows, Function<List<Row>, CompletableFuture<Void>> step) {
        CompletableFuture<Void> done = Fetching.DONE;
        for (List<Row> part : Fetching.parts(guard.feed != null ? List.of() : rows)) {
            done = done.thenCompose(nothing -> step.apply(part));
        }
        return done;
    }

    /** Deletes the ids of rows from the filter. Fails with the first error. */
    CompletableFuture<Void> forget(List<Row> rows, Caller caller) {
        return inParts(rows, part -> {
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

    /** Returns whether the follower's heartbeat covers this guard's cache keys, or null if no follower is alive. */
    CompletableFuture<Boolean> isFollowed(Caller caller) {
        if (guard.feed == null) {
            throw new IllegalStateException("this guard has no feed");
        }
        return link.one(Link.command(guard.feed.heartbeat, "GET", guard.feed.heartbeat), caller)
                .thenApply(value -> value == null ? null : FeedKeys.deletes(Keys.latin((byte[]) value), Keys.latin(guard.prefix)));
    }

    /** Deletes the keys with the prefix, except the follower's. */
    CompletableFuture<Void> clear(Caller caller) {
        String pattern = Keys.latin(guard.prefix).replaceAll("([*?\\[\\]^\\\\-])", "\\\\$1") + "*";
        return clear(Keys.ascii(pattern), Keys.ascii("0"), caller);
    }

    private CompletableFuture<Void> clear(byte[] pattern, byte[] cursor, Caller caller) {
        return link.one(Link.command(guard.prefix, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000), caller).thenCompose(reply -> {
            List<Object> words = new ArrayList<>(List.of("UNLINK"));
            for (Object key : Replies.list(Replies.list(reply).get(1))) {
                if (guard.feed == null || !guard.feed.own((byte[]) key)) {
                    words.add(key);
                }
            }
            byte[] next = (byte[]) Replies.list(reply).get(0);
            CompletableFuture<?> deleted = words.size() == 1 ? Fetching.DONE : link.one(Link.command(guard.prefix, words.toArray()), caller);
            return deleted.thenCompose(nothing -> Replies.text(next).equals("0") ? Fetching.DONE : clear(pattern, next, caller));
        });
    }
}
