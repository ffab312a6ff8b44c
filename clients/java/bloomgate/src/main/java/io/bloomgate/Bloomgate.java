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
 * A server or a cluster, for filters and guards. All of them share one connection for each node, which is made when it is needed, and
 * a few more for callers that wait inside the server. Thread-safe.
 *
 * <p>The Lettuce client brings the address, passwords, TLS, Sentinel and the topology of a cluster. Its settings for reconnecting have
 * no effect here: a lost connection is made again by the next command, and no command is sent twice because its connection was lost.
 */
public final class Bloomgate implements AutoCloseable {
    final long timeoutMs;
    final long connectNanos;
    final Executor executor;
    /** The time limits of commands. That of Lettuce's client would end with it. */
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
        link = new Link(this, connection, new Pause());
        waiting = new WaitingConnections(link, Options.WAITING_CONNECTIONS.number(builder.waitingConnections));
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Opens a connection to an address: null for that of Lettuce's client. */
    private CompletableFuture<Wire> open(@Nullable RedisURI uri) {
        try {
            if (isClosed) {
                throw new BloomgateException.Disconnected("the client is closed", null);
            }
            RedisClient client = connecting();
            if (uri == null) {
                // Lettuce opens connections to its client's own address in a call that blocks.
                return CompletableFuture.supplyAsync(() -> new Wire(client.connect(ByteArrayCodec.INSTANCE)), executor);
            }
            RedisURI limited = RedisURI.builder(uri).withTimeout(Duration.ofNanos(connectNanos)).build();
            return client.connectAsync(ByteArrayCodec.INSTANCE, limited).toCompletableFuture().thenApply(Wire::new);
        } catch (Throwable error) {
            return CompletableFuture.failedFuture(error);
        }
    }

    /** Returns what connects to a server: Lettuce's client, or one of our own for the nodes of its cluster. */
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

    /** Lettuce's threads end with the last client that has used them. */
    private synchronized void endNodes() {
        if (nodes != null) {
            nodes.shutdownAsync();
            nodes = null;
        }
    }

    /** Notes the codec of the rows with a prefix. Refuses another one: a guard would read the rows of another type. */
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
     * Connects, if there is no connection, and waits until the server answers. A program that calls this at its start spares its first
     * calls the time that it takes to load Lettuce's classes. Throws {@link BloomgateException.TimedOut} or
     * {@link BloomgateException.Disconnected}.
     */
    public void ping() {
        Caller.block(this, caller -> link.one(Link.command(null, "PING"), caller));
    }

    /** Returns a client for the server of a Lettuce client, which stays the caller's to shut down. */
    public static Bloomgate of(RedisClient client) {
        return builder(client).build();
    }

    /** Returns a client for the cluster of a Lettuce client, which stays the caller's to shut down. */
    public static Bloomgate of(RedisClusterClient client) {
        return builder(client).build();
    }

    /** Returns a client for an address such as {@code redis://localhost:6379}. {@link #close} shuts down what it makes. */
    public static Bloomgate connect(String uri) {
        return builder(uri).build();
    }

    /** Returns a builder of a client for an address, with other options. {@link #close} shuts down what the client makes. */
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
     * Returns a builder of a client for Lettuce clients that follow one another: a program that shuts one down, and makes another for the
     * same server or cluster, passes what returns the current one. It is called for each new connection, and for each command to a cluster.
     * While it throws, commands fail with {@link BloomgateException.Disconnected}.
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
        // The calls that wait for a connection.
        timer.stop().forEach(left -> ((Link.Asking) left.task()).run(left));
    }

    /** The options of a client. */
    public static final class Builder {
        private final Supplier<? extends AbstractRedisClient> client;
        /** The address of a client that this one has made. */
        private @Nullable RedisURI uri;
        private Duration timeout = Duration.ofSeconds(1);
        private Duration connectTimeout = Duration.ofSeconds(5);
        private int waitingConnections = 16;
        private @Nullable Executor executor;

        private Builder(Supplier<? extends AbstractRedisClient> client) {
            this.client = client;
        }

        /** Sets how long a command may take: 1 s. One that waits in the server may take that much longer. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /**
         * Sets for how long commands wait for a connection, before their own time limit begins: 5 s. The first one of a process also waits
         * for Lettuce's classes. After a timeout they wait for as long as a command may take, until the server answers again.
         */
        public Builder connectTimeout(Duration timeout) {
            connectTimeout = timeout;
            return this;
        }

        /**
         * Sets how many further connections may wait inside the server at a time: 16. They are opened when they are needed, and closed
         * a second later.
         */
        public Builder waitingConnections(int most) {
            waitingConnections = most;
            return this;
        }

        /**
         * Sets where blocking loaders of asynchronous calls run, and loads that go on in the background: by default in threads of
         * their own. An executor of virtual threads suits. It stays the caller's to shut down.
         */
        public Builder executor(Executor executor) {
            this.executor = executor;
            return this;
        }

        /** Makes the client. It connects when it is used first. */
        public Bloomgate build() {
            return new Bloomgate(this);
        }
    }
}
