package io.bloomgate;

import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * A connection to a server, which is opened on demand. At most one attempt is in progress; if it exceeds the time limit for connecting,
 * another begins, because the address may then belong to another server.
 */
final class Node implements Connection {
    private final Supplier<CompletableFuture<LettuceConnection>> opener;
    private final long connectNanos;
    /** Idle additional connections for later callers. */
    final Set<Node> idle = ConcurrentHashMap.newKeySet();
    private @Nullable CompletableFuture<LettuceConnection> current;
    private long begun;

    Node(Supplier<CompletableFuture<LettuceConnection>> opener, long connectNanos) {
        this.opener = opener;
        this.connectNanos = connectNanos;
    }

    @Override
    public synchronized CompletableFuture<LettuceConnection> ready(List<Command> commands) {
        if (current == null || current.isCompletedExceptionally()
                || (current.isDone() ? current.join().isLost() : System.nanoTime() - begun > connectNanos)) {
            if (current != null && !current.isDone()) {
                current.thenAccept(LettuceConnection::close);
            }
            begun = System.nanoTime();
            current = opener.get();
        }
        return current;
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        CompletableFuture<LettuceConnection> opened = ready(commands);
        if (opened.isDone() && !opened.isCompletedExceptionally()) {
            return opened.join().send(commands);
        }
        var sent = opened.thenApply(wire -> wire.send(commands));
        return IntStream.range(0, commands.size()).mapToObj(index -> sent.thenCompose(replies -> replies.get(index))).toList();
    }

    @Override
    public Node node(byte @Nullable [] key) {
        return this;
    }

    /** Returns an additional connection to the server: an idle one, or a new one, which is opened after this connection has succeeded. */
    Node further() {
        for (Node one : idle) {
            if (idle.remove(one)) {
                return one;
            }
        }
        return new Node(() -> ready(List.of()).thenCompose(wire -> opener.get()), connectNanos);
    }

    /**
     * Closes a connection whose server refuses commands or does not answer. Keeps an attempt in progress, because a second one would hang,
     * too.
     */
    void replace() {
        end(false);
    }

    @Override
    public void close() {
        end(true);
        idle.forEach(Node::close);
    }

    private void end(boolean isLast) {
        CompletableFuture<LettuceConnection> ended;
        synchronized (this) {
            if (current == null || !isLast && !current.isDone()) {
                return;
            }
            ended = current;
            current = null;
        }
        // Closed without the lock, because callers of commands without a reply continue in this thread.
        ended.thenAccept(LettuceConnection::close);
    }
}
