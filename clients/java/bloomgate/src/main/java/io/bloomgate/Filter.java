package io.bloomgate;

import io.bloomgate.BloomgateException.FilterExists;
import io.bloomgate.BloomgateException.FilterMissing;
import io.bloomgate.Connection.Command;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * A filter at a key. An item is a {@code String}, which is encoded as UTF-8, a {@code byte[]}, or a whole number ({@code Long}, {@code
 * Integer}, {@code Short}, {@code Byte}, {@link java.math.BigInteger}), which is written in decimal: 17 and "17" are one item. Other types
 * throw {@link IllegalArgumentException}. Thread-safe.
 *
 * <p>A rate is a false positive rate between 0 and 1. A capacity is the number of items that a filter holds before it grows. Batches may
 * have any size: up to 500 items or 1 MiB are sent per command, and 16 commands together. Answers have the order of the items.
 *
 * <p>Methods throw the errors of {@link BloomgateException}, or Lettuce's. An interrupt ends a call with {@link
 * java.util.concurrent.CancellationException}; a command in flight may still take effect.
 */
public final class Filter {
    private final Bloomgate client;
    private final byte[] key;
    private final boolean create;

    /** Uses the filter at a key. Adding to a missing filter creates one from the server's configuration. */
    public Filter(Bloomgate client, String key) {
        this(client, key, true);
    }

    /** Uses the filter at a key. Unless {@code create} is set, an add to a missing filter throws {@link FilterMissing}. */
    public Filter(Bloomgate client, String key, boolean create) {
        this.client = client;
        this.key = Items.bytes(key);
        this.create = create;
    }

    /** Returns the size of a filter with these options and this many items (BF.PLAN). Creates nothing. */
    public static Plan plan(Bloomgate client, double rate, long capacity, long items, CreationOptions options) {
        List<Object> words = new ArrayList<>(List.of("BF.PLAN", Options.decimal(rate), capacity));
        words.addAll(options.words());
        words.addAll(List.of("ITEMS", items));
        return Caller.block(client,
                caller -> client.link.one(Link.command(null, words.toArray()), caller).thenApply(Replies::plan));
    }

    /** Creates the filter, or throws {@link FilterExists} if the key exists. */
    public void reserve(double rate, long capacity) {
        reserve(rate, capacity, CreationOptions.defaults());
    }

    /** Creates the filter, or throws {@link FilterExists} if the key exists. */
    public void reserve(double rate, long capacity, CreationOptions options) {
        List<Object> words = new ArrayList<>(List.of(Options.decimal(rate), capacity));
        words.addAll(options.words());
        one(reply -> reply, "BF.RESERVE", words.toArray());
    }

    /** Creates the filter unless it exists, with any options. Returns whether it was created. */
    public boolean reserveIfMissing(double rate, long capacity, CreationOptions options) {
        try {
            reserve(rate, capacity, options);
            return true;
        } catch (FilterExists exists) {
            // A key of another type has the same reply: this call throws in that case.
            info();
            return false;
        }
    }

    /** Adds an item. Returns true if it is certainly new, false if it was present or is a false positive. */
    public boolean add(Object item) {
        return addAll(Collections.singletonList(item)).get(0);
    }

    /** {@link #add} without blocking. */
    public CompletableFuture<Boolean> addAsync(Object item) {
        return addAllAsync(Collections.singletonList(item)).thenApply(answers -> answers.get(0));
    }

    /**
     * Adds any number of items, and returns which were new. If a command fails, the {@link BloomgateException} has the {@linkplain
     * BloomgateException#answers() known answers}.
     */
    public List<Boolean> addAll(Iterable<?> items) {
        return Caller.block(client, batch(items, adding()));
    }

    /** {@link #addAll} without blocking. */
    public CompletableFuture<List<Boolean>> addAllAsync(Iterable<?> items) {
        return Caller.begin(client, batch(items, adding()));
    }

    /**
     * Returns false if an item is certainly not in the filter, true if it is present or a false positive. A missing filter contains no
     * items.
     */
    public boolean contains(Object item) {
        return one(Replies::truth, "BF.EXISTS", Items.bytes(item));
    }

    /** {@link #contains} without blocking. */
    public CompletableFuture<Boolean> containsAsync(Object item) {
        byte[] bytes = Items.bytes(item);
        return Caller.begin(client, caller -> send(Replies::truth, caller, "BF.EXISTS", bytes));
    }

    /** {@link #contains} for any number of items. */
    public List<Boolean> containsAll(Iterable<?> items) {
        return Caller.block(client, batch(items, List.of("BF.MEXISTS", key)));
    }

    /** {@link #containsAll} without blocking. */
    public CompletableFuture<List<Boolean>> containsAllAsync(Iterable<?> items) {
        return Caller.begin(client, batch(items, List.of("BF.MEXISTS", key)));
    }

    /** Deletes an item, and returns whether it was found. The filter needs cuckoo, the hash {@code siphash} or counters. */
    public boolean remove(Object item) {
        return one(Replies::truth, "BF.DEL", Items.bytes(item));
    }

    /** {@link #remove} without blocking. */
    public CompletableFuture<Boolean> removeAsync(Object item) {
        byte[] bytes = Items.bytes(item);
        return Caller.begin(client, caller -> send(Replies::truth, caller, "BF.DEL", bytes));
    }

    /** {@link #remove} for any number of items. */
    public List<Boolean> removeAll(Iterable<?> items) {
        return Caller.block(client, batch(items, List.of("BF.MDEL", key)));
    }

    /** {@link #removeAll} without blocking. */
    public CompletableFuture<List<Boolean>> removeAllAsync(Iterable<?> items) {
        return Caller.begin(client, batch(items, List.of("BF.MDEL", key)));
    }

    /**
     * Returns how often an item is in a cuckoo filter (from 4 on: or more) or a filter with counters (at most 15). The server refuses
     * other filters.
     */
    public long count(Object item) {
        return one(Replies::integer, "BF.COUNT", Items.bytes(item));
    }

    /** Returns the number of items, or 0 if the filter does not exist. */
    public long card() {
        return one(Replies::integer, "BF.CARD");
    }

    /** Returns the filter's capacity, size and number of items (BF.INFO). */
    public Info info() {
        return one(Replies::info, "BF.INFO");
    }

    /** Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer. */
    public Stats stats() {
        return one(Replies::stats, "BF.STATS");
    }

    /** Removes all items and keeps the options. */
    public void clear() {
        one(reply -> reply, "BF.CLEAR");
    }

    /** Deletes the key, and returns whether it existed. */
    public boolean drop() {
        return one(Replies::truth, "UNLINK");
    }

    /**
     * Fills the filter of a guard as {@code {key}~filling}, then renames it to {@code key}. Returns the number of new ids. Until the
     * rename, writers must announce to both names. If the filter loses ids, their rows are reported absent: choose the durability of
     * the batches and of the rename accordingly.
     *
     * <p>Throws {@link FilterExists} while {@code {key}~filling} exists, because another client may be filling it. After any other error
     * this key may exist: delete it and start again.
     */
    public static long fill(Bloomgate client, String key, Iterable<?> ids, double rate, long capacity,
            CreationOptions options, Durability durability) {
        return new Filling(client, Items.bytes(key), durability).fill(ids, rate, capacity, options);
    }

    private List<Object> adding() {
        return create ? List.of("BF.MADD", key) : List.of("BF.INSERT", key, "NOCREATE", "ITEMS");
    }

    private <T> T one(Function<Object, T> parse, String command, Object... words) {
        return Caller.block(client, caller -> send(parse, caller, command, words));
    }

    /** Sends a command with the key as its first argument. */
    private <T> CompletableFuture<T> send(Function<Object, T> parse, Caller caller, String command, Object... words) {
        List<Object> all = new ArrayList<>(List.of(command, key));
        Collections.addAll(all, words);
        return client.link.ask(List.of(Link.command(key, all.toArray())), caller).thenApply(outcomes -> {
            if (outcomes.get(0) instanceof RuntimeException error) {
                throw BloomgateException.named(error, key);
            }
            return parse.apply(outcomes.get(0));
        });
    }

    private Function<Caller, CompletableFuture<List<Boolean>>> batch(Iterable<?> items, List<Object> words) {
        return caller -> batch(new Items.Windows(items), words, new ArrayList<>(), caller);
    }

    /** Sends the windows of a batch one after another. */
    private CompletableFuture<List<Boolean>> batch(
            Items.Windows windows, List<Object> words, List<Boolean> answers, Caller caller) {
        if (!windows.hasNext()) {
            return CompletableFuture.completedFuture(answers);
        }
        List<List<byte[]>> window = windows.next();
        List<Command> commands = commands(key, words, window);
        return client.link.ask(commands, caller).thenCompose(outcomes -> {
            collect(window, outcomes, key, answers);
            return batch(windows, words, answers, caller);
        });
    }

    static List<Command> commands(byte[] key, List<Object> words, List<List<byte[]>> window) {
        List<Command> commands = new ArrayList<>();
        for (List<byte[]> items : window) {
            List<Object> all = new ArrayList<>(words);
            all.addAll(items);
            commands.add(Link.command(key, all.toArray()));
        }
        return commands;
    }

    /**
     * Appends the answers of a window, or throws its first error. A command that failed midway answers a shorter list, which ends with the
     * error.
     */
    static void collect(List<List<byte[]>> window, List<Object> outcomes, byte[] key, List<Boolean> answers) {
        RuntimeException failure = null;
        for (int index = 0; index < window.size(); index++) {
            Collection<Object> found = Replies.list(outcomes.get(index) instanceof RuntimeException error
                    ? List.of(error) : outcomes.get(index));
            int left = window.get(index).size();
            for (Object answer : found) {
                if (answer instanceof RuntimeException error) {
                    failure = failure == null ? error : failure;
                } else {
                    answers.add(Replies.truth(answer));
                    left--;
                }
            }
            answers.addAll(Collections.nCopies(Math.max(0, left), null));
        }
        if (failure != null) {
            RuntimeException error = BloomgateException.named(failure, key);
            throw error instanceof BloomgateException own ? own.withAnswers(answers) : error;
        }
    }
}
