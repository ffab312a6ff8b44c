package io.bloomgate;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A connection to a server, which is one node, or to a cluster. No command is sent twice, except after a redirection. */
interface Connection {
    /** A command, and the key that selects the node of a cluster; null for any node. */
    record Command(byte @Nullable [] key, List<byte[]> words) {
        String name() {
            return Keys.latin(words.get(0));
        }

        long bytes() {
            return words.stream().mapToLong(word -> word.length).sum();
        }
    }

    /** Connects to the nodes of commands. Ends once commands can be sent without waiting; fails if all connections fail. */
    CompletableFuture<?> ready(List<Command> commands);

    /**
     * Sends commands, grouped by node and in their order. Replies are null, Long, Double, byte[] and Lists of these. Maps are lists of
     * names and values. An error of the server is a RuntimeException in the reply. A lost reply fails its future.
     */
    List<CompletableFuture<Object>> send(List<Command> commands);

    /** Returns the node that owns a key's slot. */
    Node node(byte @Nullable [] key);

    /** Closes the connections. Commands without a reply fail. */
    void close();
}
