package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.Connection.Command;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A connection of Lettuce, which ends when it is lost. Lettuce would reconnect and repeat the commands without a reply. A repeated add
 * would answer that the item was present, and a repeated fetch would wait for its own lease. So this class closes Lettuce's connection
 * before it reconnects, and completes the commands, because Lettuce does not write completed commands.
 */
final class LettuceConnection implements RedisConnectionStateListener {
    private final StatefulRedisConnection<byte[], byte[]> connection;
    private final Set<AsyncCommand<byte[], byte[], List<Object>>> unanswered = ConcurrentHashMap.newKeySet();
    private volatile boolean isLost;

    LettuceConnection(StatefulRedisConnection<byte[], byte[]> connection) {
        this.connection = connection;
        // This package has its own time limits, which include the wait in the server.
        connection.setTimeout(Duration.ZERO);
        connection.addListener(this);
        if (!connection.isOpen()) {
            close();
        }
    }

    /** Whether the connection is lost. Lettuce may not report connections that it closes when its client is shut down. */
    boolean isLost() {
        return isLost || !connection.isOpen();
    }

    /** Sends commands together. Their replies are as in {@link Connection}. */
    List<CompletableFuture<Object>> send(List<Command> commands) {
        List<AsyncCommand<byte[], byte[], List<Object>>> sent = commands.stream().map(LettuceConnection::prepared).toList();
        unanswered.addAll(sent);
        List<CompletableFuture<Object>> replies = sent.stream().map(this::reply).toList();
        try {
            if (sent.size() == 1) {
                connection.dispatch(sent.get(0));
            } else if (!isLost) {
                connection.dispatch(sent);
            }
        } catch (Throwable error) {
            // Errors are caught, too, such as a method that this version of Lettuce lacks. Otherwise the caller would wait for a reply.
            sent.forEach(one -> one.completeExceptionally(error));
        }
        if (isLost) {
            sent.forEach(AsyncCommand::cancel);
        }
        return replies;
    }

    private static AsyncCommand<byte[], byte[], List<Object>> prepared(Command command) {
        CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        command.words().stream().skip(1).forEach(arguments::add);
        Keyword name = new Keyword(command.words().get(0), command.name());
        return new AsyncCommand<>(new io.lettuce.core.protocol.Command<>(name, new Reply(), arguments));
    }

    private CompletableFuture<Object> reply(AsyncCommand<byte[], byte[], List<Object>> sent) {
        return sent.handle((list, error) -> {
            unanswered.remove(sent);
            if (error != null && !(error instanceof RedisCommandExecutionException)) {
                throw new Disconnected("the connection was lost before the reply to " + ((Keyword) sent.getType()).name + ": " + error, error);
            }
            Caller.markReceivesReplies();
            return error != null ? error : ((Reply) sent.getOutput()).value();
        });
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> lost) {
        close();
    }

    void close() {
        synchronized (this) {
            if (isLost) {
                return;
            }
            isLost = true;
        }
        unanswered.forEach(AsyncCommand::cancel);
        // Lettuce logs a warning if its client has closed the connection already.
        if (!((RedisChannelHandler<?, ?>) connection).isClosed()) {
            connection.closeAsync();
        }
    }

    /** The name of a command. */
    private record Keyword(byte[] getBytes, String name) implements ProtocolKeyword {
        /** Lettuce up to 6.4 has no default implementation of this method. */
        @Override
        @Deprecated
        public String name() {
            return name;
        }
    }

    /** A reply of any type. In RESP2, booleans are 1 and 0. */
    private static final class Reply extends NestedMultiOutput<byte[], byte[]> {
        private boolean isList;

        Reply() {
            super(ByteArrayCodec.INSTANCE);
        }

        Object value() {
            return isList ? get() : get().isEmpty() ? null : get().get(0);
        }

        @Override
        public void multi(int count) {
            if (count < 0) {
                set((ByteBuffer) null);
            } else {
                isList = true;
                super.multi(count);
            }
        }

        @Override
        public void set(boolean value) {
            set(value ? 1 : 0);
        }

        @Override
        public void setError(ByteBuffer error) {
            if (isList) {
                output.add(new RedisCommandExecutionException(StandardCharsets.UTF_8.decode(error).toString()));
            } else {
                super.setError(error);
            }
        }
    }

    /** Whether the server sent this reply or error. */
    static boolean isReply(Object outcome) {
        return !(outcome instanceof RuntimeException) || outcome instanceof RedisCommandExecutionException
                || outcome instanceof BloomgateException.ModuleMissing;
    }

    /** Returns the text of an error from the server, otherwise an empty string. */
    static String errorText(Object outcome) {
        return isReply(outcome) && outcome instanceof RuntimeException error ? String.valueOf(error.getMessage()) : "";
    }
}
