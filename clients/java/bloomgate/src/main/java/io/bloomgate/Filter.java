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
 * A filter in a server. An item is a {@code String}, which is encoded as UTF-8, a {@code byte[]}, or a whole number ({@code Long},
 * {@code Integer}, {@code Short}, {@code Byte}, {@link java.math.BigInteger}), which is written in decimal: 17 and "17" are the same
 * item. Other items are refused with {@link IllegalArgumentException}. Thread-safe.
 *
 * <p>Every method throws the errors of {@link BloomgateException} where they apply, or else Lettuce's. An interrupt ends a call with
 * {@link java.util.concurrent.CancellationException}; what it has sent may take effect.
 */
public final class Filter {
    private final Bloomgate client;
    private final byte[] key;
    private final boolean create;

    /**
     * Uses the filter at a key. Adding to a missing filter creates one from the server's configuration.
     *
     * @param client the server
     * @param key the key
     */
    public Filter(Bloomgate client, String key) {
        this(client, key, true);
    }

    /**
     * Uses the filter at a key.
     *
     * @param client the server
     * @param key the key
     * @param create with false, an add to a missing filter throws {@link FilterMissing} instead of creating one
     */
    public Filter(Bloomgate client, String key, boolean create) {
        this.client = client;
        this.key = Items.bytes(key);
        this.create = create;
    }

    /**
     * Returns the size of a filter with these options once it has some items (BF.PLAN). Creates nothing.
     *
     * @param client the server
     * @param rate the false positive rate, between 0 and 1
     * @param capacity the number of items for which the filter has room before it grows
     * @param items how many items it will have
     * @param options how it is created
     * @return the plan
     */
    public static Plan plan(Bloomgate client, double rate, long capacity, long items, CreationOptions options) {
        List<Object> words = new ArrayList<>(List.of("BF.PLAN", Options.decimal(rate), capacity));
        words.addAll(options.words());
        words.addAll(List.of("ITEMS", items));
        return Caller.block(client,
                caller -> client.link.one(Link.command(null, words.toArray()), caller).thenApply(Replies::plan));
    }

    /**
     * Creates the filter.
     *
     * @param rate the false positive rate, between 0 and 1
     * @param capacity the number of items for which the filter has room before it grows
     * @throws FilterExists if the key exists
     */
    public void reserve(double rate, long capacity) {
        reserve(rate, capacity, CreationOptions.defaults());
    }

    /**
     * Creates the filter with further options.
     *
     * @param rate the false positive rate, between 0 and 1
     * @param capacity the number of items for which the filter has room before it grows
     * @param options how it is created
     * @throws FilterExists if the key exists
     */
    public void reserve(double rate, long capacity, CreationOptions options) {
        List<Object> words = new ArrayList<>(List.of(Options.decimal(rate), capacity));
        words.addAll(options.words());
        one(reply -> reply, "BF.RESERVE", words.toArray());
    }

    /**
     * Creates the filter unless it exists; one that exists is left unchanged.
     *
     * @param rate the false positive rate, between 0 and 1
     * @param capacity the number of items for which the filter has room before it grows
     * @param options how it is created
     * @return whether the filter was created
     */
    public boolean reserveIfMissing(double rate, long capacity, CreationOptions options) {
        try {
            reserve(rate, capacity, options);
            return true;
        } catch (FilterExists exists) {
            // The reply is the same for a key of another type: this throws then.
            info();
            return false;
        }
    }

    /**
     * Adds an item.
     *
     * @param item the item
     * @return true if it is certainly new, false if it was in or is a false positive
     */
    public boolean add(Object item) {
        return addAll(Collections.singletonList(item)).get(0);
    }

    /**
     * Adds an item.
     *
     * @param item the item
     * @return true if it is certainly new, false if it was in or is a false positive
     */
    public CompletableFuture<Boolean> addAsync(Object item) {
        return addAllAsync(Collections.singletonList(item)).thenApply(answers -> answers.get(0));
    }

    /**
     * Adds any number of items, 500 or 1 MiB in each command and 16 commands together. A {@link BloomgateException} has the
     * {@linkplain BloomgateException#answers() answers} so far.
     *
     * @param items the items
     * @return the answers in the order of the items
     */
    public List<Boolean> addAll(Iterable<?> items) {
        return batch(items, adding());
    }

    /**
     * Adds any number of items.
     *
     * @param items the items
     * @return the answers in the order of the items
     */
    public CompletableFuture<List<Boolean>> addAllAsync(Iterable<?> items) {
        return batchAsync(items, adding());
    }

    /**
     * Looks an item up.
     *
     * @param item the item
     * @return false if it is certainly not in the filter, true if it is or is a false positive; a missing filter has no items
     */
    public boolean contains(Object item) {
        return one(Replies::truth, "BF.EXISTS", Items.bytes(item));
    }

    /**
     * Looks an item up.
     *
     * @param item the item
     * @return false if it is certainly not in the filter, true if it is or is a false positive; a missing filter has no items
     */
    public CompletableFuture<Boolean> containsAsync(Object item) {
        byte[] bytes = Items.bytes(item);
        return Caller.begin(client, caller -> send(Replies::truth, caller, "BF.EXISTS", bytes));
    }

    /**
     * Looks any number of items up.
     *
     * @param items the items
     * @return the answers in the order of the items
     */
    public List<Boolean> containsAll(Iterable<?> items) {
        return batch(items, List.of("BF.MEXISTS", key));
    }

    /**
     * Looks any number of items up.
     *
     * @param items the items
     * @return the answers in the order of the items
     */
    public CompletableFuture<List<Boolean>> containsAllAsync(Iterable<?> items) {
        return batchAsync(items, List.of("BF.MEXISTS", key));
    }

    /**
     * Deletes an item from a filter with SipHash or counters.
     *
     * @param item the item
     * @return whether it was found
     */
    public boolean remove(Object item) {
        return one(Replies::truth, "BF.DEL", Items.bytes(item));
    }

    /**
     * Deletes any number of items from a filter with SipHash or counters.
     *
     * @param items the items
     * @return the answers in the order of the items
     */
    public List<Boolean> removeAll(Iterable<?> items) {
        return batch(items, List.of("BF.MDEL", key));
    }

    /**
     * Counts an item in a filter with counters.
     *
     * @param item the item
     * @return how often it is in, at most 15
     */
    public long count(Object item) {
        return one(Replies::integer, "BF.COUNT", Items.bytes(item));
    }

    /**
     * Returns the number of items.
     *
     * @return the number; 0 if there is no filter
     */
    public long card() {
        return one(Replies::integer, "BF.CARD");
    }

    /**
     * Returns the filter's capacity, size and number of items.
     *
     * @return the fields of BF.INFO
     */
    public Info info() {
        return one(Replies::info, "BF.INFO");
    }

    /**
     * Returns the filter's kind, fill and current error rate. The server reads at most 1 MiB of each layer.
     *
     * @return the fields of BF.STATS
     */
    public Stats stats() {
        return one(Replies::stats, "BF.STATS");
    }

    /** Empties the filter, and keeps its options. */
    public void clear() {
        one(reply -> reply, "BF.CLEAR");
    }

    /**
     * Deletes the key.
     *
     * @return whether it existed
     */
    public boolean drop() {
        return one(Replies::truth, "UNLINK");
    }

    /**
     * Fills the filter of a guard as {@code {key}~filling}, and renames it to {@code key} once every id is in it. Writers that are
     * active meanwhile have to announce to both names.
     *
     * <p>If this throws, {@code {key}~filling} may be left: delete it and begin again. As long as it exists, {@link FilterExists} is
     * thrown, because another client may be filling it.
     *
     * @param client the server
     * @param key the name of the filter
     * @param ids every id of the table
     * @param rate the false positive rate
     * @param capacity the number of items for which the filter has room before it grows
     * @param options how the filter is created
     * @param durability whether each batch and the new name must survive a failover or a restart: a filter that lost ids denies their
     *     rows
     * @return how many ids were new
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

    /** Sends a command whose first argument is the key. */
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

    private List<Boolean> batch(Iterable<?> items, List<Object> words) {
        Items.Windows windows = new Items.Windows(items);
        return Caller.block(client, caller -> batch(windows, words, new ArrayList<>(), caller));
    }

    private CompletableFuture<List<Boolean>> batchAsync(Iterable<?> items, List<Object> words) {
        Items.Windows windows = new Items.Windows(items);
        return Caller.begin(client, caller -> batch(windows, words, new ArrayList<>(), caller));
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
     * Adds the answers of a window to those before, or throws its first error. A command that failed midway answers a shorter list,
     * whose last element is the error.
     */
    static void collect(List<List<byte[]>> window, List<Object> outcomes, byte[] key, List<Boolean> answers) {
        RuntimeException trouble = null;
        for (int index = 0; index < window.size(); index++) {
            Collection<Object> found = Replies.list(outcomes.get(index) instanceof RuntimeException error
                    ? List.of(error) : outcomes.get(index));
            int left = window.get(index).size();
            for (Object answer : found) {
                if (answer instanceof RuntimeException error) {
                    trouble = trouble == null ? error : trouble;
                } else {
                    answers.add(Replies.truth(answer));
                    left--;
                }
            }
            answers.addAll(Collections.nCopies(Math.max(0, left), null));
        }
        if (trouble != null) {
            RuntimeException error = BloomgateException.named(trouble, key);
            throw error instanceof BloomgateException own ? own.withAnswers(answers) : error;
        }
    }
}
