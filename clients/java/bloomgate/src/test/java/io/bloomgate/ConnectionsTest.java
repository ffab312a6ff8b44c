package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.TimedOut;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Features of Lettuce's clients: TLS, Sentinel, and the topology of a cluster, whose redirections this package follows. */
class ConnectionsTest {
    private final Servers servers = new Servers();

    @TempDir
    private Path folder;

    @AfterEach
    void end() throws IOException {
        servers.close();
    }

    /** Starts a program, and returns it. The test is skipped if the program is missing. */
    private Process program(String... words) {
        try {
            return new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(folder.resolve("output").toFile()).start();
        } catch (IOException missing) {
            assumeTrue(false, missing.getMessage());
            throw new AssertionError(missing);
        }
    }

    /** Returns a client with a time limit that is long enough for a busy machine. */
    private static Bloomgate patient(AbstractRedisClient lettuce) {
        return Bloomgate.builder(lettuce).timeout(Duration.ofMinutes(1)).build();
    }

    @Test
    @SuppressWarnings("unchecked")
    void anErrorOfLettuceEndsTheCommand() throws Exception {
        AbstractMethodError missing = new AbstractMethodError("no such method");
        var connection = (StatefulRedisConnection<byte[], byte[]>) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {StatefulRedisConnection.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("dispatch")) {
                        throw missing;
                    }
                    return method.getReturnType() == boolean.class ? true : null;
                });
        var reply = new LettuceConnection(connection).send(List.of(Link.command(null, "PING"))).get(0);
        Throwable outcome = assertThrows(ExecutionException.class, () -> reply.get(60, TimeUnit.SECONDS)).getCause();
        assertSame(missing, assertInstanceOf(Disconnected.class, outcome).getCause());
    }

    /** A server that accepts connections and never answers. */
    @Test
    void aHungServerHasOneConnection() throws Exception {
        List<Socket> sockets = new CopyOnWriteArrayList<>();
        try (ServerSocket hung = new ServerSocket(0, 1000, InetAddress.getLoopbackAddress())) {
            Thread accepting = new Thread(() -> {
                try {
                    while (true) {
                        sockets.add(hung.accept());
                    }
                } catch (IOException ended) {
                    // The test has ended.
                }
            });
            accepting.start();
            RedisClient lettuce = RedisClient.create(Servers.RESOURCES, "redis://127.0.0.1:" + hung.getLocalPort());
            try (Bloomgate client = Bloomgate.builder(lettuce).timeout(Duration.ofMillis(50)).connectTimeout(Duration.ofMinutes(1)).build();
                    Bloomgate impatient = Bloomgate.builder(lettuce).timeout(Duration.ofMillis(50)).connectTimeout(Duration.ofMillis(50)).build()) {
                assertThrows(TimedOut.class, impatient::ping);
                client.link.pause.begin();
                Guard<Integer, byte[]> durable = Guard.builder(client, "users", Codec.bytes()).replicas(1)
                        .replicasTimeout(Duration.ofMillis(1)).build();
                for (int call = 0; call < 20; call++) {
                    assertThrows(TimedOut.class, () -> new Filter(client, "seen").add("a"));
                    assertThrows(TimedOut.class, () -> durable.announce(17));
                }
                assertEquals(2, sockets.size(), "one of each client");
                var waiting = new Filter(client, "seen").addAsync("a");
                Runnable closing = client::close;
                closing.run();
                assertInstanceOf(TimedOut.class, assertThrows(ExecutionException.class, () -> waiting.get(60, TimeUnit.SECONDS)).getCause());
            } finally {
                for (Socket socket : sockets) {
                    socket.close();
                }
                lettuce.shutdown();
            }
        }
    }

    /** A server that takes longer to accept a connection than a command may take. */
    @Test
    void connectingHasASeparateLimit() throws Exception {
        var server = servers.start();
        RedisClient lettuce = RedisClient.create(Servers.RESOURCES, "redis://127.0.0.1:" + server.port());
        lettuce.setOptions(ClientOptions.builder().pingBeforeActivateConnection(true).build());
        try (Bloomgate client = Bloomgate.builder(lettuce).timeout(Duration.ofMillis(500)).connectTimeout(Duration.ofMinutes(1)).build()) {
            server.commands().clientPause(1500);
            // The pause of the server ends before the time limit of the command begins.
            client.ping();
            assertTrue(new Filter(client, "seen").add("a"));
        } finally {
            lettuce.shutdown();
        }
    }

    /** The version of Lettuce must be the one that the build requests. */
    @Test
    void lettuceHasItsVersion() {
        String asked = System.getProperty("lettuce.version");
        assumeTrue(asked != null, "any version");
        assertTrue(RedisClient.class.getProtectionDomain().getCodeSource().getLocation().getPath().contains(asked), asked);
    }

    @Test
    void aServerWithTlsNeedsItsCertificate() throws Exception {
        String certificate = folder.resolve("server.crt").toString();
        String key = folder.resolve("server.key").toString();
        int status = program("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate).waitFor();
        assertEquals(0, status, Files.readString(folder.resolve("output")));
        int port = Servers.freePort();
        try {
            servers.start("tls-port " + port, "tls-auth-clients no", "tls-cert-file " + certificate, "tls-key-file " + key,
                    "tls-ca-cert-file " + certificate);
        } catch (AssertionError refused) {
            assumeTrue(!refused.getMessage().contains("tls"), "the server was built without TLS");
            throw refused;
        }
        String uri = "rediss://localhost:" + port;
        RedisClient lettuce = RedisClient.create(Servers.RESOURCES, uri);
        lettuce.setOptions(ClientOptions.builder()
                .sslOptions(SslOptions.builder().trustManager(Path.of(certificate).toFile()).build()).build());
        RedisClient stranger = RedisClient.create(Servers.RESOURCES, uri);
        try (Bloomgate client = patient(lettuce); Bloomgate without = patient(stranger)) {
            assertTrue(new Filter(client, "seen").add("a"));
            assertThrows(Disconnected.class, () -> new Filter(without, "seen").add("a"));
        } finally {
            lettuce.shutdown();
            stranger.shutdown();
        }
    }

    @Test
    void aSentinelNamesTheServer() throws Exception {
        int primary = servers.start().port();
        int port = Servers.freePort();
        Path configuration = folder.resolve("sentinel.conf");
        Files.write(configuration, List.of("bind 127.0.0.1", "port " + port, "dir " + folder,
                "sentinel monitor main 127.0.0.1 " + primary + " 1"));
        Process sentinel = program(Servers.environment("BLOOMGATE_SERVER"), configuration.toString(), "--sentinel");
        RedisURI uri = RedisURI.create("redis-sentinel://127.0.0.1:" + port + "/0#main");
        RedisClient lettuce = RedisClient.create(Servers.RESOURCES, uri);
        try (Bloomgate client = patient(lettuce)) {
            Servers.eventually("the sentinel", () -> {
                try {
                    return new Filter(client, "seen").add("a");
                } catch (Disconnected early) {
                    return false;
                }
            });
        } finally {
            lettuce.shutdown();
            sentinel.destroyForcibly().waitFor();
        }
    }

    /** Lettuce's clients are shut down with their threads and timers, as by Spring's connection factory. */
    @Test
    void anotherClientFollowsOneThatWasShutDown() {
        String uri = "redis://127.0.0.1:" + servers.start().port();
        follow(() -> RedisClient.create(uri));
        follow(() -> RedisClient.create(Servers.RESOURCES, uri));
    }

    @Test
    void anotherClientOfAClusterFollowsOneThatWasShutDown() {
        String node = "redis://127.0.0.1:" + servers.startCluster().get(0).port();
        follow(() -> RedisClusterClient.create(node));
        follow(() -> RedisClusterClient.create(Servers.RESOURCES, node));
    }

    private static void follow(Supplier<AbstractRedisClient> maker) {
        AtomicReference<AbstractRedisClient> current = new AtomicReference<>(maker.get());
        Supplier<AbstractRedisClient> started = () -> {
            if (current.get() == null) {
                throw new IllegalStateException("stopped");
            }
            return current.get();
        };
        try (Bloomgate client = Bloomgate.builder(started).timeout(Duration.ofMinutes(1)).build()) {
            Filter seen = new Filter(client, "seen");
            seen.add("a");
            for (int round = 0; round < 2; round++) {
                current.getAndSet(null).shutdown();
                assertThrows(Disconnected.class, seen::card);
                current.set(maker.get());
                assertEquals(1, seen.card());
            }
        } finally {
            Optional.ofNullable(current.get()).ifPresent(AbstractRedisClient::shutdown);
        }
    }

    /** Lettuce's threads end with the last client that has used them, so this library's own clients must end, too. */
    @Test
    void closingEndsAllThreads() {
        String node = "redis://127.0.0.1:" + servers.startCluster().get(0).port();
        Set<String> before = threadPools();
        RedisClusterClient lettuce = RedisClusterClient.create(node);
        try (Bloomgate cluster = patient(lettuce); Bloomgate single = Bloomgate.builder(node).timeout(Duration.ofMinutes(1)).build()) {
            new Filter(cluster, "seen").add("a");
            single.ping();
        } finally {
            lettuce.shutdown();
        }
        Servers.eventually("the end of the threads", () -> before.containsAll(threadPools()));
    }

    private static Set<String> threadPools() {
        return Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
                .filter(name -> name.matches("lettuce-[a-z_]*EventLoop-.*|bloomgate-timer"))
                .map(name -> name.replaceAll("-[0-9]+$", "")).collect(Collectors.toSet());
    }

    /** A slot moves while the client still assumes its first node. */
    @Test
    void aClusterRedirectsCommands() {
        List<Servers.Server> nodes = servers.startCluster();
        int slot = SlotHash.getSlot("seen");
        var from = nodes.get(slot / 5462).commands();
        var to = nodes.get((slot / 5462 + 1) % 3).commands();
        RedisClusterClient lettuce = RedisClusterClient.create(Servers.RESOURCES, RedisURI.create("127.0.0.1", nodes.get(0).port()));
        try (Bloomgate client = patient(lettuce)) {
            Filter seen = new Filter(client, "seen");
            assertEquals(0, seen.card());
            from.clusterSetSlotMigrating(slot, to.clusterMyId());
            to.clusterSetSlotImporting(slot, from.clusterMyId());
            assertTrue(seen.add("a"), "by ASK");
            assertEquals(1, to.clusterCountKeysInSlot(slot));
            String owner = to.clusterMyId();
            nodes.forEach(node -> node.commands().clusterSetSlotNode(slot, owner));
            assertFalse(seen.add("a"), "by MOVED");
        } finally {
            lettuce.shutdown();
        }
    }
}
