package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * One connection to a server, which is opened when it is needed. One attempt is under way at a time; only one that exceeds the limit of
 * connecting is followed by another, because the address may lead to another server by then.
 */
final class Node implements Connection {
    private final Supplier<CompletableFuture<Wire>> opener;
    private final long connectNanos;
    private CompletableFuture<Wire> current;
    private long begun;
    private boolean isClosed;

    Node(Supplier<CompletableFuture<Wire>> opener, long connectNanos) {
        this.opener = opener;
        this.connectNanos = connectNanos;
    }

    @Override
    public synchronized CompletableFuture<Wire> ready(List<Command> commands) {
        if (isClosed) {
            return CompletableFuture.failedFuture(new Disconnected("the client is closed", null));
        }
        if (current == null || current.isCompletedExceptionally()
                || (current.isDone() ? current.join().isLost() : System.nanoTime() - begun > connectNanos)) {
            end();
            begun = System.nanoTime();
            current = opener.get();
        }
        return current;
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        CompletableFuture<Wire> opened = ready(commands);
        if (opened.isDone() && !opened.isCompletedExceptionally()) {
            return opened.join().send(commands);
        }
        var sent = opened.thenApply(wire -> wire.send(commands));
        return IntStream.range(0, commands.size()).mapToObj(index -> sent.thenCompose(replies -> replies.get(index))
                .exceptionally(error -> new Disconnected("there is no connection to the server", Caller.cause(error)))).toList();
    }

    /** Opens a further connection, once this one has proved that the server accepts any. */
    @Override
    public CompletableFuture<Wire> separate(byte[] key) {
        return ready(List.of()).thenCompose(wire -> opener.get());
    }

    @Override
    public synchronized void replace(List<Command> commands) {
        // An attempt in progress is kept: a second one would hang, too.
        if (current != null && current.isDone()) {
            end();
        }
    }

    private void end() {
        if (current != null) {
            current.thenAccept(Wire::close);
            current = null;
        }
    }

    @Override
    public synchronized void close() {
        isClosed = true;
        end();
    }
}
