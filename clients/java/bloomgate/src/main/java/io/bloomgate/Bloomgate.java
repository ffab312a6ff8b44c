package io.bloomgate;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.netty.util.HashedWheelTimer;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A client of a server or a cluster, for filters and guards. They share one connection per node, which is opened on demand, and a few more
 * for callers that wait inside the server. Thread-safe.
 *
 * <p>The Lettuce client provides the address, passwords, TLS, Sentinel and the topology of a cluster. Its settings for reconnecting have no
 * effect here: the next command opens a new connection. A command whose connection is lost fails: no command is sent twice.
 */
public final class Bloomgate implements AutoCloseable {
    final long timeoutMs;
    final long connectNanos;
    final Executor executor;
    /** The timer of commands' time limits. The timer of Lettuce's client would stop with that client. */
    final HashedWheelTimer timer = new HashedWheelTimer(task -> daemon(task, "bloomgate-timer"));
    private final Supplier<? extends AbstractRedisClient> lettuce;
    final Link link;
    final WaitingConnections waiting;
    private final Runnable shutdown;
    private volatile boolean isClosed;
    private @Nullable AbstractRedisClient cluster;
    private @Nullable RedisClient nodes;
    private final Map<String, Codec<?>> codecs = new ConcurrentHashMap<>();

    private Bloomgate(Builder builder) {
        timeoutMs = Options.TIMEOUT.milliseconds(builder.timeout);
        executor = builder.executor != null ? builder.executor : Executors.newCachedThreadPool(task -> daemon(task, "bloomgate"));
        connectNanos = TimeUnit.MILLISECONDS.toNanos(Options.CONNECT_TIMEOUT.milliseconds(builder.connectTimeout));
        lettuce = builder.client;
        AbstractRedisClient first = lettuce.get();
        Connection connection;
        if (first instanceof RedisClusterClient) {
            connection = new Cluster(lettuce, uri -> new Node(() -> open(uri), connectNanos));
        } else if (first instanceof RedisClient) {
            connection = new Node(() -> open(builder.uri), connectNanos);
        } else {
            throw new IllegalArgumentException("a RedisClient or a RedisClusterClient is needed");
        }
        shutdown = builder.uri != null ? first::shutdownAsync : () -> {};
        link = new Link(this, connection, new Link.Pause());
        waiting = new WaitingConnections(link, Options.WAITING_CONNECTIONS.number(builder.waitingConnections));
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Opens a connection to an address, or to the address of Lettuce's client for null. */
    private CompletableFuture<LettuceConnection> open(@Nullable RedisURI uri) {
        try {
            if (isClosed) {
                throw new BloomgateException.Disconnected("the client is closed", null);
            }
            RedisClient client = connecting();
            if (uri == null) {
                // Lettuce opens connections to its client's own address in a call that blocks.
                return CompletableFuture.supplyAsync(() -> new LettuceConnection(client.connect(ByteArrayCodec.INSTANCE)), executor);
            }
            RedisURI limited = RedisURI.builder(uri).withTimeout(Duration.ofNanos(connectNanos)).build();
            return client.connectAsync(ByteArrayCodec.INSTANCE, limited).toCompletableFuture().thenApply(LettuceConnection::new);
        } catch (Throwable error) {
            return CompletableFuture.failedFuture(error);
        }
    }

    /** Returns the client that connects to a server: the user's, or a client of this class for the nodes of a cluster. */
    private synchronized RedisClient connecting() {
        AbstractRedisClient current = lettuce.get();
        if (current instanceof RedisClient client) {
            return client;
        }
        if (current != cluster || nodes == null) {
            endNodes();
            cluster = current;
            nodes = RedisClient.create(current.getResources());
            nodes.setOptions(current.getOptions());
        }
        return nodes;
    }

    /** Shuts down the client for the nodes. Lettuce's threads end with the last client that uses them. */
    private synchronized void endNodes() {
        if (nodes != null) {
            nodes.shutdownAsync();
            nodes = null;
        }
    }

    /** Records the codec of the rows with a prefix. Refuses a different codec: its guard would read rows of another type. */
    void claim(byte[] prefix, Codec<?> codec) {
        Codec<?> first = codecs.putIfAbsent(Keys.latin(prefix), codec);
        if (first != null && !first.equals(codec)) {
            throw new IllegalArgumentException("another guard of this client caches rows with the prefix " + Items.text(prefix)
                    + " and another codec: pass a prefix of its own to this one, or use that guard or its codec");
        }
    }

    /** Runs a task in the executor after some milliseconds. */
    void later(long ms, Runnable task) {
        CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS, executor).execute(task);
    }

    /**
     * Connects if necessary, and waits until the server answers. Called when a program starts, it keeps the loading of Lettuce's classes
     * out of the first calls. Throws {@link BloomgateException.TimedOut} or {@link BloomgateException.Disconnected}.
     */
    public void ping() {
        Caller.block(this, caller -> link.one(Link.command(null, "PING"), caller));
    }

    /** Returns a client for the server of a Lettuce client, which the caller shuts down. */
    public static Bloomgate of(RedisClient client) {
        return builder(client).build();
    }

    /** Returns a client for the cluster of a Lettuce client, which the caller shuts down. */
    public static Bloomgate of(RedisClusterClient client) {
        return builder(client).build();
    }

    /** Returns a client for an address such as {@code redis://localhost:6379}. {@link #close} also shuts down its Lettuce client. */
    public static Bloomgate connect(String uri) {
        return builder(uri).build();
    }

    /** Returns a builder of a client for an address, with other options. {@link #close} also shuts down its Lettuce client. */
    public static Builder builder(String uri) {
        RedisURI parsed = RedisURI.create(uri);
        Builder builder = builder(RedisClient.create(parsed));
        builder.uri = parsed;
        return builder;
    }

    /** Returns a builder of a client with other options, for a {@link RedisClient} or a {@link RedisClusterClient}. */
    public static Builder builder(AbstractRedisClient client) {
        return builder(() -> client);
    }

    /**
     * Returns a builder of a client for successive Lettuce clients of the same server or cluster: the supplier returns the current one. It
     * is called for each new connection, and for each command to a cluster. While it throws, commands fail with {@link
     * BloomgateException.Disconnected}.
     */
    public static Builder builder(Supplier<? extends AbstractRedisClient> client) {
        return new Builder(client);
    }

    /** Closes the connections. Commands without a reply fail. */
    @Override
    public void close() {
        isClosed = true;
        link.connection.close();
        endNodes();
        shutdown.run();
        // End the calls that wait for a connection.
        timer.stop().forEach(left -> ((Link.PendingCommands) left.task()).run(left));
    }

    /** The options of a client. */
    public static final class Builder {
        private final Supplier<? extends AbstractRedisClient> client;
        /** The address, if this class made the Lettuce client. */
        private @Nullable RedisURI uri;
        private Duration timeout = Duration.ofSeconds(1);
        private Duration connectTimeout = Duration.ofSeconds(5);
        private int waitingConnections = 16;
        private @Nullable Executor executor;

        private Builder(Supplier<? extends AbstractRedisClient> client) {
            this.client = client;
        }

        /** Sets the time limit of a command: 1 s. A command that waits in the server extends it by that wait. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /**
         * Sets how long commands wait for a connection, before their own time limit begins: 5 s. The first command of a process also waits
         * until Lettuce's classes are loaded. After a timeout, until the server answers again, commands wait no longer than {@code
         * timeout}.
         */
        public Builder connectTimeout(Duration timeout) {
            connectTimeout = timeout;
            return this;
        }

        /**
         * Sets how many additional connections may wait inside the server at a time: 16. They are opened on demand, and closed after a
         * second without use.
         */
        public Builder waitingConnections(int most) {
            waitingConnections = most;
            return this;
        }

        /**
         * Sets the executor of blocking loaders of asynchronous calls, and of loads that continue in the background: by default a pool of
         * daemon threads. An executor of virtual threads is suitable. The caller shuts it down.
         */
        public Builder executor(Executor executor) {
            this.executor = executor;
            return this;
        }

        /** Creates the client. It connects on first use. */
        public Bloomgate build() {
            return new Bloomgate(this);
        }
    }
}
