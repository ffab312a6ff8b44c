package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.BloomgateException.Unconfirmed;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.RecordComponent;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Makes the calls of the cases in clients/specification: it reads messages from its standard input, and answers on its standard output.
 * The README.md there describes them. The argument is the kind of calls: {@code blocking} or {@code asynchronous}.
 */
final class Adapter {
    static final ObjectMapper MAPPER = new ObjectMapper();

    /**
     * The abilities of this client that cases may need. There is no event loop, and only one connection for all commands that do not wait.
     */
    private static final List<String> ABILITIES =
            List.of("cancel", "timeout", "share", "pause", "fatal", "background", "transaction", "resp2", "resp3");

    /** Longer than the duration of any case. */
    private static final long PATIENCE_MS = 120_000;

    /** The error that an actor's function throws on request of a case. */
    static final class LoadError extends RuntimeException {
        LoadError(String message) {
            super(message);
        }
    }

    /** The same for a fatal error. */
    static final class FatalError extends Error {
        FatalError(String message) {
            super(message);
        }
    }

    /** A message of the runner that this adapter does not understand. */
    static final class UnknownError extends Error {
        UnknownError(String message) {
            super(message);
        }
    }

    /** A call of an actor. */
    final class Call {
        final int id;
        final String name;
        final JsonNode given;
        Runnable canceller;

        Call(JsonNode from) {
            id = from.get("id").intValue();
            name = from.get("call").textValue();
            given = from.get("with");
        }

        /** Reports that the client calls the actor's function, whose outcome the runner determines later. */
        CompletableFuture<JsonNode> begin(Collection<?> ids) {
            CompletableFuture<JsonNode> outcome = new CompletableFuture<>();
            int number;
            synchronized (functions) {
                number = functions.size();
                functions.add(outcome);
            }
            say(MAPPER.createObjectNode().put("called", id).put("function", number).set("ids", plain(List.copyOf(ids))));
            return outcome;
        }

        void end(Object result, Throwable error) {
            ObjectNode message = MAPPER.createObjectNode().put("end", id);
            if (error == null) {
                say(message.set("result", plain(result)));
                return;
            }
            Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
            message.set("error", MAPPER.valueToTree(names(cause)));
            message.put("message", cause.getMessage());
            if (cause instanceof BloomgateException known) {
                message.set("answers", MAPPER.valueToTree(known.answers()));
            }
            if (cause instanceof Unconfirmed unconfirmed) {
                message.set("ids", plain(unconfirmed.ids()));
            }
            say(message);
        }
    }

    private final boolean isAsync;
    private final Map<Integer, CaseProcess> processes = new ConcurrentHashMap<>();
    private final Map<Integer, Call> calls = new ConcurrentHashMap<>();
    private final List<CompletableFuture<JsonNode>> functions = new ArrayList<>();

    private Adapter(boolean isAsync) {
        this.isAsync = isAsync;
    }

    /** Reads messages until the runner ends. */
    public static void main(String[] arguments) throws IOException {
        Adapter adapter = new Adapter(arguments[0].equals("asynchronous"));
        say(MAPPER.createObjectNode().set("abilities", MAPPER.valueToTree(ABILITIES)));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            adapter.take(MAPPER.readTree(line));
        }
        System.exit(0);
    }

    private static void say(JsonNode message) {
        synchronized (System.out) {
            System.out.println(message);
        }
    }

    /** Executes a message. Actions that may block run in a separate thread. */
    private void take(JsonNode message) {
        if (message.has("start")) {
            CaseProcess process = processes.get(message.get("process").intValue());
            for (JsonNode one : message.get("start")) {
                Call call = new Call(one);
                calls.put(call.id, call);
                begin(process, call);
            }
        } else if (message.has("return") || message.has("raise")) {
            CompletableFuture<JsonNode> function;
            synchronized (functions) {
                function = functions.get(message.path("return").asInt(message.path("raise").asInt()));
            }
            String text = message.path("message").textValue();
            if (message.has("return")) {
                function.complete(message.get("value"));
            } else {
                function.completeExceptionally(message.get("fatal").booleanValue() ? new FatalError(text) : new LoadError(text));
            }
        } else {
            new Thread(() -> {
                ObjectNode done = MAPPER.createObjectNode().put("done", message.get("id").intValue());
                try {
                    request(message);
                } catch (RuntimeException error) {
                    done.put("error", error.toString());
                }
                say(done);
            }).start();
        }
    }

    private void request(JsonNode message) {
        if (message.has("open")) {
            processes.put(message.get("open").intValue(), open(message));
        } else if (message.has("close")) {
            processes.remove(message.get("close").intValue()).close();
        } else {
            calls.get(message.get("cancel").intValue()).canceller.run();
        }
    }

    private CaseProcess open(JsonNode message) {
        JsonNode ports = message.get("ports");
        RedisURI uri = RedisURI.create("127.0.0.1", ports.get(0).intValue());
        AbstractRedisClient lettuce;
        if (ports.size() > 1) {
            lettuce = RedisClusterClient.create(Servers.RESOURCES, uri);
        } else {
            RedisClient client = RedisClient.create(Servers.RESOURCES, uri);
            ProtocolVersion version = message.get("protocol").intValue() == 2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3;
            client.setOptions(ClientOptions.builder().protocolVersion(version).build());
            lettuce = client;
        }
        JsonNode options = message.path("client");
        Bloomgate client = Bloomgate.builder(lettuce)
                .timeout(Duration.ofMillis(options.path("timeout_ms").asLong(PATIENCE_MS)))
                .waitingConnections(options.has("connections") ? options.get("connections").intValue() / 2 : 16)
                .build();
        if (ports.size() == 1) {
            // On a busy machine, the first connection may take longer than the time limit of a case.
            client.link.connection.send(List.of(Link.command(null, "PING"))).get(0).join();
        }
        return new CaseProcess(lettuce, client, message, isAsync);
    }

    /** Begins a call; a blocking call runs in a separate thread. */
    private static void begin(CaseProcess process, Call call) {
        CompletableFuture<?> future;
        try {
            future = process.asynchronous(call);
        } catch (RuntimeException | UnknownError error) {
            call.end(null, error);
            return;
        }
        if (future != null) {
            call.canceller = () -> future.cancel(true);
            future.whenComplete(call::end);
            return;
        }
        Thread thread = new Thread(() -> {
            Object result;
            try {
                result = process.perform(call);
            } catch (Throwable error) {
                call.end(null, error);
                return;
            }
            call.end(result, null);
        });
        call.canceller = () -> {
            thread.interrupt();
            // Waits until the call has noticed the interrupt, so that the case continues after it.
            Servers.eventually("the interrupt", () -> !thread.isInterrupted() || !thread.isAlive());
        };
        thread.setDaemon(true);
        thread.start();
    }

    /** Returns the names of an error in the cases. */
    private static List<String> names(Throwable error) {
        if (error instanceof TimedOut) {
            return List.of("TimeoutError", "connection");
        }
        if (error instanceof Disconnected || error instanceof BloomgateException) {
            return List.of(error instanceof Disconnected ? "connection" : error.getClass().getSimpleName());
        }
        Map<Class<?>, String> others = Map.of(LoadError.class, "load", FatalError.class, "fatal", UnknownError.class, "unknown",
                IllegalArgumentException.class, "refused", RedisCommandExecutionException.class, "server",
                CancellationException.class, "cancelled");
        return others.keySet().stream().filter(type -> type.isInstance(error)).map(others::get).toList();
    }

    /** Returns an item, an id or a value that a case names. */
    static Object item(JsonNode item) {
        if (item.isTextual()) {
            return item.textValue();
        }
        if (item.isIntegralNumber()) {
            return item.longValue();
        }
        String name = item.size() == 1 ? item.fieldNames().next() : "";
        JsonNode value = item.get(name);
        return switch (name) {
            case "hex" -> HexFormat.of().parseHex(value.textValue());
            case "integer" -> new BigInteger(value.textValue());
            case "boolean" -> value.booleanValue();
            case "float" -> value.doubleValue();
            case "null" -> null;
            case "utf16" -> {
                StringBuilder text = new StringBuilder();
                value.forEach(unit -> text.append((char) unit.intValue()));
                yield text.toString();
            }
            default -> throw new UnknownError("unknown item " + item);
        };
    }

    /** Returns items. In place of a batch, Java's compiler would refuse a text. */
    static List<Object> items(JsonNode items) {
        if (items.isTextual()) {
            throw new IllegalArgumentException("a text is no list");
        }
        List<Object> list = new ArrayList<>();
        items.forEach(one -> list.add(item(one)));
        return list;
    }

    /** Converts a result to JSON values. */
    static JsonNode plain(Object found) {
        if (found == null) {
            return NullNode.getInstance();
        }
        if (found instanceof Optional<?> row) {
            return plain(row.orElse(null));
        }
        if (found instanceof byte[] bytes) {
            String text = new String(bytes, StandardCharsets.UTF_8);
            boolean isText = Arrays.equals(text.getBytes(StandardCharsets.UTF_8), bytes);
            return isText ? MAPPER.valueToTree(text) : MAPPER.createObjectNode().put("hex", HexFormat.of().formatHex(bytes));
        }
        if (found instanceof Map<?, ?> rows && rows.values().stream().allMatch(Optional.class::isInstance)) {
            ArrayNode pairs = MAPPER.createArrayNode();
            rows.forEach((id, row) -> pairs.add(MAPPER.createArrayNode().add(plain(id)).add(plain(row))));
            return pairs;
        }
        if (found instanceof List<?> list) {
            ArrayNode array = MAPPER.createArrayNode();
            list.forEach(one -> array.add(plain(one)));
            return array;
        }
        if (found instanceof Record) {
            ObjectNode object = MAPPER.createObjectNode();
            for (RecordComponent component : found.getClass().getRecordComponents()) {
                try {
                    object.set(component.getName(), plain(component.getAccessor().invoke(found)));
                } catch (ReflectiveOperationException error) {
                    throw new AssertionError(error);
                }
            }
            return object;
        }
        return MAPPER.valueToTree(found);
    }
}
