package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertFalse;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.resource.ClientResources;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** Servers with the module, for the tests of one class. */
public final class Servers implements AutoCloseable {
    /** The threads of Lettuce, for all clients of the tests. */
    static final ClientResources RESOURCES =
            ClientResources.builder().ioThreadPoolSize(4).computationThreadPoolSize(4).build();

    private static final List<String> CRASH_MARKS = List.of("REDIS BUG REPORT", "VALKEY BUG REPORT", "AddressSanitizer");

    /** A running server. */
    public static final class Server {
        private final Path folder;
        private final List<String> lines;
        private java.lang.Process process;
        private int port;
        private StatefulRedisConnection<String, String> probe;

        private Server(Path folder, List<String> lines) {
            this.folder = folder;
            this.lines = lines;
        }

        public int port() {
            return port;
        }

        public RedisCommands<String, String> commands() {
            return probe.sync();
        }

        private void start(RedisClient client) throws IOException {
            for (int attempt = 0; attempt < 20; attempt++) {
                port = freePort();
                launch();
                if (answers(client)) {
                    return;
                }
                if (!log().contains("Address already in use")) {
                    throw new AssertionError("the server has ended at its start:\n" + log());
                }
            }
            throw new AssertionError("no free port in 20 attempts");
        }

        private void launch() throws IOException {
            List<String> all = new ArrayList<>(List.of("bind 127.0.0.1", "save \"\"", "enable-debug-command yes",
                    "repl-diskless-sync-delay 0", "port " + port, "dir " + folder,
                    "loadmodule " + environment("BLOOMGATE_MODULE")));
            all.addAll(lines);
            Path configuration = folder.resolve("redis.conf");
            Files.write(configuration, all);
            File log = folder.resolve("server.log").toFile();
            process = new ProcessBuilder(environment("BLOOMGATE_SERVER"), configuration.toString())
                    .redirectErrorStream(true).redirectOutput(log).start();
            // Ends the server even if the tests end first.
            java.lang.Process launched = process;
            Runtime.getRuntime().addShutdownHook(new Thread(launched::destroyForcibly));
        }

        /** Waits until this server, and not another one on the port, answers. */
        private boolean answers(RedisClient client) {
            RedisURI uri = RedisURI.create("127.0.0.1", port);
            eventually("the server", () -> {
                try {
                    if (process.isAlive()) {
                        probe = client.connect(uri);
                    }
                    return true;
                } catch (RedisException refused) {
                    return false;
                }
            });
            return process.isAlive() && commands().info("server").contains("process_id:" + process.pid() + "\r");
        }

        private String log() throws IOException {
            return Files.readString(folder.resolve("server.log"));
        }

        private void end() throws IOException {
            boolean hasEnded = !process.isAlive();
            process.destroyForcibly().onExit().join();
            String log = log();
            assertFalse(hasEnded, "the server has ended by itself:\n" + log);
            for (String mark : CRASH_MARKS) {
                assertFalse(log.contains(mark), log);
            }
            for (File file : folder.toFile().listFiles()) {
                file.delete();
            }
            Files.delete(folder);
        }
    }

    private final RedisClient client = RedisClient.create(RESOURCES);
    private final List<Server> servers = new ArrayList<>();

    static String environment(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new AssertionError(name + " is not set");
        }
        return value;
    }

    static int freePort() {
        for (;;) {
            int port = ThreadLocalRandom.current().nextInt(12_000, 22_000);
            try (ServerSocket listener = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return listener.getLocalPort();
            } catch (IOException taken) {
                // Another one.
            }
        }
    }

    public static void eventually(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(what + ": not within 60 seconds");
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }

    public Server start(String... lines) {
        try {
            Server server = new Server(Files.createTempDirectory("bloomgate"), List.of(lines));
            server.start(client);
            servers.add(server);
            return server;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Starts a cluster of three nodes with a third of the slots each. */
    List<Server> startCluster() {
        int[] ends = {0, 5461, 10923, 16384};
        for (int index = 0; index < 3; index++) {
            // The timeout is long, so that on a busy machine a slow node is not considered dead.
            Server server = start("cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage yes");
            int[] slots = java.util.stream.IntStream.range(ends[index], ends[index + 1]).toArray();
            server.commands().clusterAddSlots(slots);
            server.commands().clusterSetConfigEpoch(index + 1);
            server.commands().clusterMeet("127.0.0.1", servers.get(0).port());
        }
        eventually("the cluster", () -> servers.stream().map(server -> server.commands().clusterInfo())
                .allMatch(info -> info.contains("cluster_known_nodes:3\r") && info.contains("cluster_state:ok\r")));
        return servers;
    }

    @Override
    public void close() throws IOException {
        for (Server server : servers) {
            server.end();
        }
        client.shutdown();
    }
}
