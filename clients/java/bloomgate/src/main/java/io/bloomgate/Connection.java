package io.bloomgate;

import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * What this package needs of a client library. Replies are null, Long, Boolean, Double, byte[] and Lists of these, with a
 * RuntimeException in place of what failed: maps are lists of names and values. No command is sent twice, except to the node to which
 * a cluster redirects it.
 */
interface Connection {
    /** A command and the key that says which node of a cluster has to get it: null for any node. */
    record Command(byte[] key, List<byte[]> words) {
        String name() {
            return Keys.latin(words.get(0));
        }

        long bytes() {
            return words.stream().mapToLong(word -> word.length).sum();
        }
    }

    /** Connects to the nodes of commands, unless they are connected. Ends, or fails, once commands need not wait for a connection. */
    default CompletableFuture<?> ready(List<Command> commands) {
        return CompletableFuture.completedFuture(null);
    }

    /** Sends commands, those of one node together and in their order. Each reply is completed with a value, never exceptionally. */
    List<CompletableFuture<Object>> send(List<Command> commands);

    /** Opens a connection of its own to the node of a key, for commands that wait in the server. */
    default CompletableFuture<Wire> separate(byte[] key) {
        throw new UnsupportedOperationException();
    }

    /** Names the node of a key. */
    default String node(byte[] key) {
        return "";
    }

    default boolean isCluster() {
        return false;
    }

    /** Replaces the connections to the nodes of these commands, because one of them did not answer in time. */
    default void replace(List<Command> commands) {
        close();
    }

    /** Closes the connections. Commands without a reply fail. */
    void close();
}
