package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One connection of Lettuce, which ends when it is lost. By itself Lettuce connects again and repeats the commands without a reply; an
 * add that arrives twice answers that the item was in, and a fetch that arrives twice waits for a lease of its own. So this closes
 * Lettuce's connection before that, and completes the commands, because Lettuce writes none that is completed.
 */
final class Wire implements Connection, RedisConnectionStateListener {
    private final StatefulRedisConnection<byte[], byte[]> connection;
    private final Set<Sent> unanswered = ConcurrentHashMap.newKeySet();
    private volatile boolean isLost;

    Wire(StatefulRedisConnection<byte[], byte[]> connection) {
        this.connection = connection;
        // The time limit of this package takes into account how long a command waits in the server.
        connection.setTimeout(Duration.ZERO);
        connection.addListener(this);
        if (!connection.isOpen()) {
            close();
        }
    }

    boolean isLost() {
        return isLost;
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        List<Sent> sent = commands.stream().map(Sent::new).toList();
        unanswered.addAll(sent);
        try {
            if (sent.size() == 1) {
                connection.dispatch(sent.get(0));
            } else if (!isLost) {
                connection.dispatch(sent);
            }
        } catch (Throwable error) {
            // An Error, too: of a version of Lettuce that lacks a method, for instance. The caller would wait for a reply.
            sent.forEach(one -> one.end(new Disconnected(commands.get(0).name() + " could not be sent: " + error, error)));
        }
        if (isLost) {
            sent.forEach(one -> one.completeExceptionally(null));
        }
        return sent.stream().map(one -> one.reply).toList();
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> lost) {
        close();
    }

    @Override
    public void close() {
        synchronized (this) {
            if (isLost) {
                return;
            }
            isLost = true;
        }
        unanswered.forEach(one -> one.completeExceptionally(null));
        // Lettuce logs a warning if its client has closed the connection already.
        if (!((RedisChannelHandler<?, ?>) connection).isClosed()) {
            connection.closeAsync();
        }
    }

    /** The name of a command. */
    private record Keyword(byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        /** Lettuce up to 6.4 has no default for this method. */
        @Override
        @Deprecated
        public String name() {
            return Keys.latin(bytes);
        }

        @Override
        public String toString() {
            return Keys.latin(bytes);
        }
    }

    /** A command on its way. */
    private final class Sent extends io.lettuce.core.protocol.Command<byte[], byte[], Object> {
        final CompletableFuture<Object> reply = new CompletableFuture<>();

        Sent(Command command) {
            super(new Keyword(command.words().get(0)), new Reply(), new CommandArgs<>(ByteArrayCodec.INSTANCE));
            for (byte[] word : command.words().subList(1, command.words().size())) {
                getArgs().add(word);
            }
        }

        @Override
        public void complete() {
            super.complete();
            CommandOutput<byte[], byte[], Object> output = getOutput();
            end(output.hasError() ? new RedisCommandExecutionException(output.getError()) : output.get());
        }

        @Override
        public boolean completeExceptionally(Throwable error) {
            super.cancel();
            end(new Disconnected("the connection to the server was lost before the reply to " + getType(), error));
            return true;
        }

        @Override
        public void cancel() {
            completeExceptionally(null);
        }

        private void end(Object result) {
            unanswered.remove(this);
            reply.complete(result);
        }

        // Lettuce keeps its commands in collections, some of which compare them.
        @Override
        public boolean equals(Object other) {
            return this == other;
        }

        @Override
        public int hashCode() {
            return System.identityHashCode(this);
        }
    }

    /** Collects a reply of any shape. */
    private static final class Reply extends CommandOutput<byte[], byte[], Object> {
        private record Open(List<Object> list, int size) {}

        private final Deque<Open> open = new ArrayDeque<>();

        Reply() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        private void put(Object value) {
            if (open.isEmpty()) {
                output = value;
            } else {
                open.peek().list.add(value);
                popComplete();
            }
        }

        private void popComplete() {
            while (!open.isEmpty() && open.peek().list.size() >= open.peek().size) {
                open.pop();
            }
        }

        @Override
        public void multi(int count) {
            if (count < 0) {
                put(null);
                return;
            }
            List<Object> list = new ArrayList<>(Math.min(count, 1 << 16));
            if (open.isEmpty()) {
                output = list;
            } else {
                open.peek().list.add(list);
            }
            open.push(new Open(list, count));
            popComplete();
        }

        @Override
        public void set(ByteBuffer bytes) {
            put(bytes == null ? null : copy(bytes));
        }

        @Override
        public void setSingle(ByteBuffer bytes) {
            set(bytes);
        }

        @Override
        public void setBigNumber(ByteBuffer bytes) {
            set(bytes);
        }

        @Override
        public void set(long integer) {
            put(integer);
        }

        @Override
        public void set(double number) {
            put(number);
        }

        @Override
        public void set(boolean value) {
            put(value);
        }

        @Override
        public void setError(ByteBuffer error) {
            if (open.isEmpty()) {
                super.setError(error);
            } else {
                put(new RedisCommandExecutionException(new String(copy(error), StandardCharsets.UTF_8)));
            }
        }

        private static byte[] copy(ByteBuffer bytes) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            return copy;
        }
    }

    /** Whether the server has sent this error. */
    static boolean isReply(Object outcome) {
        return outcome instanceof RedisCommandExecutionException || outcome instanceof BloomgateException.ModuleMissing;
    }
}
