package io.bloomgate;

import io.bloomgate.Connection.Command;
import java.util.ArrayList;
import java.util.List;

/** Fills the filter of a guard under another name, then renames it. */
final class Filling {
    private final Bloomgate client;
    private final byte[] key;
    private final byte[] name;
    private final Durability durability;

    Filling(Bloomgate client, byte[] key, Durability durability) {
        durability.check(client.link.connection);
        this.client = client;
        this.key = key;
        this.durability = durability;
        name = Keys.fillingName(key);
    }

    long fill(Iterable<?> ids, double rate, long capacity, CreationOptions options) {
        new Filter(client, new String(name, java.nio.charset.StandardCharsets.UTF_8)).reserve(rate, capacity, options);
        // Rows that are committed after the source was opened are announced to this filter.
        Items.Windows windows = new Items.Windows(ids);
        if (!durability.isAsked()) {
            return fill(windows, client.link);
        }
        // WAIT would block the shared connection, and must be sent on the connection of the writes.
        Node node = client.link.connection.node(key).further();
        try {
            return fill(windows, new Link(client, node, client.link.pause));
        } finally {
            node.close();
        }
    }

    private long fill(Items.Windows windows, Link link) {
        long added = 0;
        while (windows.hasNext()) {
            List<List<byte[]>> window = windows.next();
            // With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may lack
            // its writes.
            List<Object> outcomes = ask(link, Filter.commands(name, List.of("BF.INSERT", name, "NOCREATE", "SYNC", "ITEMS"), window));
            List<Boolean> answers = new ArrayList<>();
            Filter.collect(window, outcomes, name, answers);
            check(durability.error(outcomes));
            added += answers.stream().filter(answer -> answer).count();
        }
        List<Object> outcomes = ask(link, List.of(Link.command(name, "RENAME", name, key)));
        if (outcomes.get(0) instanceof RuntimeException error) {
            throw BloomgateException.named(error, name);
        }
        check(durability.error(outcomes));
        return added;
    }

    private static void check(RuntimeException error) {
        if (error != null) {
            throw error;
        }
    }

    private List<Object> ask(Link link, List<Command> writes) {
        List<Command> commands = new ArrayList<>(writes);
        commands.addAll(durability.commands(name));
        Link.AskOptions sending = new Link.AskOptions();
        sending.waitMs = durability.waitMs();
        return Caller.block(client, caller -> link.ask(commands, sending, caller));
    }
}
