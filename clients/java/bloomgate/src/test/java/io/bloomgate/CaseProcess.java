package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.bloomgate.Words.SpecificationError;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.RecordComponent;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;

/** What one process of a case has: a client, and the objects of the case, which are made when they are used first. */
final class CaseProcess {
    /** What a function of an actor throws if the case says so. */
    static final class LoadError extends RuntimeException {
        LoadError(String message) {
            super(message);
        }
    }

    /** The same for more than an error. */
    static final class FatalError extends Error {
        FatalError(String message) {
            super(message);
        }
    }

    /** One call of an actor's function, which ends as the case says later. */
    record Called(Set<Object> ids, CompletableFuture<JsonNode> pending) {}

    /** A call of one actor. */
    static final class Call {
        final String name;
        final JsonNode given;
        /** The calls of the actor's function that the case has not dealt with yet. */
        final BlockingQueue<Called> called = new LinkedBlockingQueue<>();
        final CompletableFuture<JsonNode> ended = new CompletableFuture<>();
        private volatile Runnable canceller = () -> {};
        private CompletableFuture<JsonNode> pending;

        Call(String name, JsonNode given) {
            this.name = name;
            this.given = given;
        }

        CompletableFuture<JsonNode> begin(Collection<?> ids) {
            CompletableFuture<JsonNode> result = new CompletableFuture<>();
            called.add(new Called(new HashSet<>(ids), result));
            return result;
        }

        Set<Object> untilCalled() throws InterruptedException {
            Called next = null;
            for (long left = ScriptedServer.PATIENCE_SECONDS * 20; next == null; left--) {
                next = called.poll(50, TimeUnit.MILLISECONDS);
                if (next == null && (left == 0 || ended.isDone())) {
                    throw new AssertionError(name + " has not called its function: " + ended);
                }
            }
            pending = next.pending();
            return next.ids();
        }

        CompletableFuture<JsonNode> takePending() throws InterruptedException {
            if (pending == null) {
                untilCalled();
            }
            CompletableFuture<JsonNode> taken = pending;
            pending = null;
            return taken;
        }

        void cancel() {
            canceller.run();
        }

        void end(JsonNode result, Throwable error) {
            Caller.settle(ended, result, error);
        }
    }

    private final Bloomgate client;
    private final JsonNode from;
    private final boolean isAsync;
    private Filter filter;
    private Guard<Object> guard;

    CaseProcess(Bloomgate client, JsonNode from, boolean isAsync) {
        this.client = client;
        this.from = from;
        this.isAsync = isAsync;
    }

    void close() {
        client.close();
    }

    private synchronized Filter filter() {
        if (filter == null) {
            JsonNode given = from.get("filter");
            Words.known("filter", given.fieldNames(), List.of("key", "create"));
            filter = new Filter(client, given.get("key").textValue(), given.path("create").asBoolean(true));
        }
        return filter;
    }

    private synchronized Guard<Object> guard() {
        if (guard == null) {
            JsonNode given = from.get("guard");
            Guard.Builder<Object> builder = Guard.builder(client, given.get("filter").textValue(), codec());
            given.fieldNames().forEachRemaining(name -> {
                if (!List.of("filter", "codec").contains(name)) {
                    set(builder, name, given.get(name));
                }
            });
            guard = builder.build();
        }
        return guard;
    }

    /** Sets an option of a builder. Java's compiler refuses one that it does not have. */
    private static void set(Object builder, String name, JsonNode value) {
        boolean isMs = name.endsWith("_ms");
        String method = camel(isMs ? name.substring(0, name.length() - 3) : name);
        try {
            for (Method one : builder.getClass().getMethods()) {
                if (!one.getName().equals(method)) {
                    continue;
                }
                if (one.getParameterCount() == 0) {
                    if (value.booleanValue()) {
                        one.invoke(builder);
                    }
                    return;
                }
                one.invoke(builder, argument(one.getParameterTypes()[0], value, isMs));
                return;
            }
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException refused) {
                throw refused;
            }
            throw new AssertionError(error.getCause());
        } catch (IllegalAccessException error) {
            throw new AssertionError(error);
        }
        throw new IllegalArgumentException("there is no option " + name);
    }

    private static Object argument(Class<?> type, JsonNode value, boolean isMs) {
        if (type == Duration.class) {
            return isMs ? Duration.ofMillis(value.longValue()) : seconds(value);
        }
        if (type == int.class) {
            return value.intValue();
        }
        if (type == double.class) {
            return value.doubleValue();
        }
        if (type == boolean.class) {
            return value.booleanValue();
        }
        if (type == String[].class) {
            return Words.texts(value).toArray(String[]::new);
        }
        return value.asText();
    }

    private static Duration seconds(JsonNode value) {
        return Duration.ofNanos(Math.round(value.doubleValue() * 1e9));
    }

    private boolean isJson() {
        return from.path("guard").path("codec").asText("").equals("json");
    }

    private Codec<Object> codec() {
        if (isJson()) {
            return Codec.json(Object.class);
        }
        if (from.path("guard").has("codec")) {
            throw new SpecificationError("unknown codec");
        }
        Codec<byte[]> bytes = Codec.bytes();
        return new Codec<>() {
            @Override
            public byte[] encode(Object row) throws Exception {
                if (row instanceof byte[] data) {
                    return bytes.encode(data);
                }
                throw new IllegalArgumentException("the loaded row is no byte[]");
            }

            @Override
            public Object decode(byte[] data) throws Exception {
                return bytes.decode(data);
            }
        };
    }

    /** Returns a loaded value as the client gets it. */
    private Object value(JsonNode value) {
        if (value == null || value.isNull()) {
            return null;
        }
        if (isJson()) {
            return Words.MAPPER.convertValue(value, Object.class);
        }
        return value.isTextual() ? value.textValue().getBytes(StandardCharsets.UTF_8) : Words.oneItem(value);
    }

    void setup() {
        for (JsonNode command : from.path("setup")) {
            Object[] words = Words.texts(command).stream().map(Items::bytes).toArray();
            Caller.block(client, caller -> client.link.ask(List.of(Link.command((byte[]) words[1], words)), caller));
        }
    }

    /** Begins a call: in a thread of its own, if it blocks. */
    void begin(Call call) {
        CompletableFuture<?> future;
        try {
            future = isAsync ? asynchronous(call) : null;
        } catch (RuntimeException | SpecificationError error) {
            call.end(null, error);
            return;
        }
        if (future != null) {
            CompletableFuture<?> begun = future;
            call.canceller = () -> begun.cancel(true);
            begun.whenComplete((result, error) -> call.end(error == null ? plain(result) : null, error));
            return;
        }
        Thread thread = new Thread(() -> {
            try {
                call.end(plain(perform(call)), null);
            } catch (Throwable error) {
                call.end(null, error);
            }
        });
        call.canceller = () -> {
            thread.interrupt();
            // The call has noticed, so that what the case does next is later.
            Servers.eventually("the interrupt", () -> !thread.isInterrupted() || !thread.isAlive());
        };
        thread.setDaemon(true);
        thread.start();
    }

    private CompletableFuture<?> asynchronous(Call call) {
        JsonNode given = call.given;
        Duration ttl = given.has("ttl") ? seconds(given.get("ttl")) : null;
        switch (call.name) {
            case "filter.add":
                return filter().addAsync(Words.oneItem(given.get("item")));
            case "filter.exists":
                return filter().containsAsync(Words.oneItem(given.get("item")));
            case "filter.add_many":
                return filter().addAllAsync(Words.itemList(given.get("items")));
            case "filter.exists_many":
                return filter().containsAllAsync(Words.itemList(given.get("items")));
            case "guard.get":
                return guard().getAsync(
                        Words.oneItem(given.get("id")), id -> called(call, List.of(), this::value), ttl);
            case "guard.get_nested":
                Object nested = Words.oneItem(given.get("id"));
                return guard().getAsync(nested, id -> guard().getAsync(nested, own -> called(call, List.of(), this::value))
                        .thenApply(row -> row.orElse(null)));
            case "guard.get_many":
                return guard().getAllAsync(Words.itemList(given.get("ids")),
                        ids -> called(call, ids, rows -> loaded(ids, rows)), ttl);
            case "guard.changed":
                return guard().changedAsync(Words.itemList(given.get("ids")), () -> called(call, List.of(), row -> null));
            default:
                return null;
        }
    }

    /** What an asynchronous call of the client calls. */
    private static <T> CompletableFuture<T> called(Call call, Collection<?> ids, Function<JsonNode, T> convert) {
        CompletableFuture<JsonNode> begun = call.begin(ids);
        CompletableFuture<T> result = begun.thenApply(convert);
        result.whenComplete((value, error) -> begun.cancel(true));
        return result;
    }

    private Map<Object, Object> loaded(Collection<Object> ids, JsonNode rows) {
        Map<Object, Object> loaded = new HashMap<>();
        rows.fieldNames().forEachRemaining(name -> loaded.put(name, value(rows.get(name))));
        for (Object id : ids) {
            if (rows.has(id.toString())) {
                loaded.put(id, value(rows.get(id.toString())));
            }
        }
        return loaded;
    }

    /** What a blocking call of the client calls. */
    private static JsonNode await(Call call, Collection<?> ids) throws Exception {
        try {
            return call.begin(ids).get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof FatalError fatal) {
                throw fatal;
            }
            throw (LoadError) error.getCause();
        }
    }

    private Object perform(Call call) {
        JsonNode given = call.given;
        String[] name = call.name.split("\\.");
        return switch (name[0]) {
            case "filter" -> filterCall(name[1], given);
            case "guard" -> guardCall(name[1], call);
            default -> function(call.name, given);
        };
    }

    private Object function(String name, JsonNode given) {
        switch (name) {
            case "item_bytes":
                return Map.of("hex", HexFormat.of().formatHex(Items.bytes(Words.oneItem(given.get("item")))));
            case "cache_prefix":
                return Keys.cachePrefix(Items.bytes(given.get("filter").textValue()));
            case "filling_name":
                return Keys.fillingName(Items.bytes(given.get("filter").textValue()));
            case "plan":
                return Filter.plan(client, given.get("rate").doubleValue(), given.get("capacity").longValue(),
                        given.get("items").longValue(), CreationOptions.defaults());
            case "fill_filter":
                Durability durability = new Durability(given.path("replicas").asInt(0), Duration.ofSeconds(3),
                        given.path("aof").asBoolean(false));
                return Filter.fill(client, given.get("key").textValue(), Words.itemList(given.get("ids")),
                        given.get("rate").doubleValue(), given.get("capacity").longValue(),
                        creation(given, "key", "ids", "replicas", "aof"), durability);
            default:
                throw new SpecificationError("unknown call " + name);
        }
    }

    /** Returns those arguments as options that are no arguments of the method itself. */
    private static CreationOptions creation(JsonNode given, String... others) {
        CreationOptions options = CreationOptions.defaults();
        given.fieldNames().forEachRemaining(name -> {
            if (!List.of("rate", "capacity", "exist_ok").contains(name) && !Arrays.asList(others).contains(name)) {
                set(options, name, given.get(name));
            }
        });
        return options;
    }

    private Object filterCall(String method, JsonNode given) {
        Filter filter = filter();
        switch (method) {
            case "add":
                return filter.add(Words.oneItem(given.get("item")));
            case "exists":
                return filter.contains(Words.oneItem(given.get("item")));
            case "delete":
                return filter.remove(Words.oneItem(given.get("item")));
            case "count":
                return filter.count(Words.oneItem(given.get("item")));
            case "add_many":
                return filter.addAll(Words.itemList(given.get("items")));
            case "exists_many":
                return filter.containsAll(Words.itemList(given.get("items")));
            case "delete_many":
                return filter.removeAll(Words.itemList(given.get("items")));
            case "card":
                return filter.card();
            case "info":
                return filter.info();
            case "stats":
                return filter.stats();
            case "clear":
                filter.clear();
                return null;
            case "drop":
                return filter.drop();
            case "reserve":
                double rate = given.get("rate").doubleValue();
                long capacity = given.get("capacity").longValue();
                CreationOptions options = creation(given);
                if (given.path("exist_ok").asBoolean(false)) {
                    return filter.reserveIfMissing(rate, capacity, options);
                }
                filter.reserve(rate, capacity, options);
                return true;
            default:
                throw new SpecificationError("unknown call filter." + method);
        }
    }

    private Object guardCall(String method, Call call) {
        JsonNode given = call.given;
        Duration ttl = given.has("ttl") ? seconds(given.get("ttl")) : null;
        Object[] ids = given.has("ids") ? Words.itemList(given.get("ids")).toArray() : new Object[0];
        switch (method) {
            case "get":
                return guard().get(Words.oneItem(given.get("id")), id -> value(await(call, List.of())), ttl);
            case "get_nested":
                Object nested = Words.oneItem(given.get("id"));
                return guard().get(nested, id -> guard().get(nested, own -> value(await(call, List.of()))).orElse(null));
            case "get_many":
                return guard().getAll(Arrays.asList(ids), left -> loaded(left, await(call, left)), ttl);
            case "announce":
                guard().announce(ids);
                return null;
            case "confirm":
                guard().confirm(ids);
                return null;
            case "forget":
                guard().forget(ids);
                return null;
            case "changed":
                return guard().changedAll(Arrays.asList(ids), (Callable<Object>) () -> {
                    await(call, List.of());
                    return null;
                });
            default:
                throw new SpecificationError("unknown call guard." + method);
        }
    }

    static String camel(String name) {
        return Pattern.compile("_(\\w)").matcher(name).replaceAll(match -> match.group(1).toUpperCase(Locale.ROOT));
    }

    private static String snake(String name) {
        return Pattern.compile("[A-Z]").matcher(name).replaceAll(match -> "_" + match.group().toLowerCase(Locale.ROOT));
    }

    /** Returns a result as JSON would write it, with names in snake_case. */
    private static JsonNode plain(Object found) {
        if (found == null) {
            return NullNode.getInstance();
        }
        if (found instanceof Optional<?> row) {
            return plain(row.orElse(null));
        }
        if (found instanceof byte[] bytes) {
            String text = new String(bytes, StandardCharsets.UTF_8);
            boolean isText = Arrays.equals(text.getBytes(StandardCharsets.UTF_8), bytes);
            return isText ? Words.MAPPER.valueToTree(text)
                    : Words.MAPPER.createObjectNode().put("hex", HexFormat.of().formatHex(bytes));
        }
        if (found instanceof Map<?, ?> rows && rows.values().stream().allMatch(Optional.class::isInstance)) {
            ArrayNode pairs = Words.MAPPER.createArrayNode();
            rows.forEach((id, row) -> pairs.add(Words.MAPPER.createArrayNode().add(plain(id)).add(plain(row))));
            return pairs;
        }
        if (found instanceof List<?> list) {
            ArrayNode array = Words.MAPPER.createArrayNode();
            list.forEach(one -> array.add(plain(one)));
            return array;
        }
        if (found instanceof Record) {
            ObjectNode object = Words.MAPPER.createObjectNode();
            for (RecordComponent component : found.getClass().getRecordComponents()) {
                try {
                    object.set(snake(component.getName()), plain(component.getAccessor().invoke(found)));
                } catch (ReflectiveOperationException error) {
                    throw new AssertionError(error);
                }
            }
            return object;
        }
        return Words.MAPPER.valueToTree(found);
    }
}
