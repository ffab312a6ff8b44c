package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** One server, and the connection that all commands to it share, except those that wait there. It is opened when it is needed. */
final class Node implements Connection {
    private final Supplier<CompletableFuture<Wire>> opener;
    private CompletableFuture<Wire> current;
    private boolean isClosed;

    Node(Supplier<CompletableFuture<Wire>> opener) {
        this.opener = opener;
    }

    private synchronized CompletableFuture<Wire> wire() {
        if (isClosed) {
            return CompletableFuture.failedFuture(new Disconnected("the client is closed", null));
        }
        if (current == null || current.isCompletedExceptionally() || current.isDone() && current.join().isLost()) {
            current = opener.get();
        }
        return current;
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        CompletableFuture<Wire> opened = wire();
        if (opened.isDone() && !opened.isCompletedExceptionally()) {
            return opened.join().send(commands);
        }
        List<CompletableFuture<Object>> replies = new ArrayList<>();
        commands.forEach(command -> replies.add(new CompletableFuture<>()));
        opened.whenComplete((wire, error) -> {
            if (error != null) {
                var refused = new Disconnected("there is no connection to the server", Caller.cause(error));
                replies.forEach(reply -> reply.complete(refused));
                return;
            }
            List<CompletableFuture<Object>> sent = wire.send(commands);
            for (int index = 0; index < sent.size(); index++) {
                CompletableFuture<Object> reply = replies.get(index);
                sent.get(index).thenAccept(reply::complete);
            }
        });
        return replies;
    }

    @Override
    public CompletableFuture<Wire> separate(byte[] key) {
        return opener.get();
    }

    @Override
    public void replace(List<Command> commands) {
        CompletableFuture<Wire> slow;
        synchronized (this) {
            slow = current;
            current = null;
        }
        if (slow != null) {
            slow.thenAccept(Wire::close);
        }
    }

    @Override
    public void close() {
        synchronized (this) {
            isClosed = true;
        }
        replace(List.of());
    }
}
