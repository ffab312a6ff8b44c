package io.bloomgate;

import static org.junit.jupiter.api.Assumptions.abort;

import com.fasterxml.jackson.databind.JsonNode;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.condition.DisabledIfEnvironmentVariable;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Runs the cases of clients/specification: with calls that block and with asynchronous ones. */
class SpecificationTest {
    private static final List<JsonNode> CASES = cases();

    private static List<JsonNode> cases() {
        try {
            return Words.readCases(new File("../../specification"));
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    private static boolean has(JsonNode list, String name) {
        return list.isArray() && Words.texts(list).contains(name);
    }

    /** Returns the cases of a kind of server, each with both kinds of calls. */
    private static Stream<Arguments> on(String server) {
        return CASES.stream().filter(one -> has(one.get("servers"), server)).flatMap(one -> Stream.of(false, true)
                .map(isAsync -> Arguments.of(
                        Named.of(one.get("name").textValue() + (isAsync ? ", asynchronous" : ", blocking"), one), isAsync)));
    }

    /** Returns the cases of a scripted server, on each protocol. Those with a short time limit must not wait for others. */
    private static Stream<Arguments> scripted(boolean isTimed) {
        return on("scripted").flatMap(arguments -> Stream.of(2, 3).map(protocol -> {
            Named<?> named = (Named<?>) arguments.get()[0];
            return Arguments.of(Named.of(named.getName() + ", RESP" + protocol, named.getPayload()), arguments.get()[1], protocol);
        })).filter(arguments -> {
            JsonNode one = (JsonNode) ((Named<?>) arguments.get()[0]).getPayload();
            String other = arguments.get()[2].equals(2) ? "resp3" : "resp2";
            return one.path("client").has("timeout_ms") == isTimed && !has(one.path("needs"), other);
        });
    }

    static Stream<Arguments> untimed() {
        return scripted(false);
    }

    static Stream<Arguments> timed() {
        return scripted(true);
    }

    static Stream<Arguments> real() {
        return on("real");
    }

    static Stream<Arguments> cluster() {
        return on("cluster");
    }

    /** Skips a case that this package cannot run, with the reason. */
    private static void skipOthers(JsonNode one) {
        if (has(one.path("needs"), "turns")) {
            abort("needs an event loop");
        }
        if (has(one.path("needs"), "pool")) {
            abort("needs a connection for each command");
        }
        for (JsonNode step : one.get("steps")) {
            String name = step.path("call").asText("");
            if (name.startsWith("sharded.") || name.startsWith("shard_")) {
                abort("this package has no sharded filters yet");
            }
            if (name.equals("filter.dump") || name.equals("filter.load")) {
                abort("this package has no dump files yet");
            }
        }
    }

    private static void run(JsonNode one, boolean isAsync, Supplier<AbstractRedisClient> open, ScriptedServer server) {
        Map<String, CaseProcess> processes = new HashMap<>();
        List<AbstractRedisClient> clients = new ArrayList<>();
        Function<String, CaseProcess> process = name -> processes.computeIfAbsent(name, key -> {
            AbstractRedisClient lettuce = open.get();
            clients.add(lettuce);
            JsonNode options = one.path("client");
            Bloomgate client = Bloomgate.builder(lettuce)
                    .timeout(Duration.ofMillis(options.path("timeout_ms").asLong(ScriptedServer.PATIENCE_SECONDS * 1000)))
                    .waitingConnections(options.has("connections") ? options.get("connections").intValue() / 2 : 16)
                    .build();
            if (server != null) {
                // A busy machine may need longer for the first connection than the time limit of a case.
                client.link.connection.send(List.of(Link.command(null, "PING"))).get(0).join();
            }
            return new CaseProcess(client, one, isAsync);
        });
        try {
            if (server == null) {
                process.apply("A").setup();
            }
            new Run(one, process, server).run();
        } finally {
            processes.values().forEach(CaseProcess::close);
            clients.forEach(client -> client.shutdownAsync(0, 0, java.util.concurrent.TimeUnit.SECONDS));
        }
    }

    static void runScripted(JsonNode one, boolean isAsync, int protocol) throws IOException {
        skipOthers(one);
        try (ScriptedServer server = new ScriptedServer()) {
            run(one, isAsync, () -> {
                RedisClient client = RedisClient.create(Servers.RESOURCES, RedisURI.create("127.0.0.1", server.port()));
                client.setOptions(ClientOptions.builder()
                        .protocolVersion(protocol == 2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3).build());
                return client;
            }, server);
        }
    }

    @Nested
    @DisabledIfEnvironmentVariable(named = "BLOOMGATE_SCRIPTED", matches = "no")
    @Execution(ExecutionMode.CONCURRENT)
    class OnAScriptedServer {
        @ParameterizedTest(name = "{0}")
        @MethodSource("io.bloomgate.SpecificationTest#untimed")
        void run(JsonNode one, boolean isAsync, int protocol) throws IOException {
            runScripted(one, isAsync, protocol);
        }
    }

    @Nested
    @TestInstance(TestInstance.Lifecycle.PER_CLASS)
    @Execution(ExecutionMode.CONCURRENT)
    class OnARealServer {
        private final Servers servers = new Servers();
        private Servers.Server server;

        @BeforeAll
        void start() {
            server = servers.start();
        }

        @AfterAll
        void end() throws Exception {
            servers.close();
        }

        @ParameterizedTest(name = "{0}")
        @MethodSource("io.bloomgate.SpecificationTest#real")
        @Execution(ExecutionMode.SAME_THREAD)
        void run(JsonNode one, boolean isAsync) {
            skipOthers(one);
            server.commands().flushall();
            RedisURI uri = RedisURI.create("127.0.0.1", server.port());
            SpecificationTest.run(one, isAsync, () -> RedisClient.create(Servers.RESOURCES, uri), null);
        }
    }

    @Nested
    @TestInstance(TestInstance.Lifecycle.PER_CLASS)
    @Execution(ExecutionMode.CONCURRENT)
    class OnACluster {
        private final Servers servers = new Servers();
        private List<Servers.Server> nodes;

        @BeforeAll
        void start() {
            nodes = servers.startCluster();
        }

        @AfterAll
        void end() throws Exception {
            servers.close();
        }

        @ParameterizedTest(name = "{0}")
        @MethodSource("io.bloomgate.SpecificationTest#cluster")
        @Execution(ExecutionMode.SAME_THREAD)
        void run(JsonNode one, boolean isAsync) {
            skipOthers(one);
            nodes.forEach(node -> node.commands().flushall());
            RedisURI uri = RedisURI.create("127.0.0.1", nodes.get(0).port());
            SpecificationTest.run(one, isAsync, () -> RedisClusterClient.create(Servers.RESOURCES, uri), null);
        }
    }
}
