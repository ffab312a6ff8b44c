package io.bloomgate;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** What sends commands: a server, which is one node, or a cluster. No command is sent twice, except where a cluster redirects it. */
interface Connection {
    /** A command and the key that says which node of a cluster has to get it: null for any node. */
    record Command(byte @Nullable [] key, List<byte[]> words) {
        String name() {
            return Keys.latin(words.get(0));
        }

        long bytes() {
            return words.stream().mapToLong(word -> word.length).sum();
        }
    }

    /** Connects to the nodes of commands, unless they are connected. Ends once commands need not wait; fails if none can be sent. */
    CompletableFuture<?> ready(List<Command> commands);

    /**
     * Sends commands, those of one node together and in their order. Replies are null, Long, Double, byte[] and Lists of these, with a
     * RuntimeException in place of what the server refuses: maps are lists of names and values. A reply that is lost fails.
     */
    List<CompletableFuture<Object>> send(List<Command> commands);

    /** Returns the node of a key. */
    Node node(byte @Nullable [] key);

    /** Closes the connections. Commands without a reply fail. */
    void close();
}
