package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import io.bloomgate.Adapter.Call;
import io.bloomgate.Adapter.FatalError;
import io.bloomgate.Adapter.LoadError;
import io.bloomgate.Adapter.UnknownError;
import io.lettuce.core.AbstractRedisClient;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;

/** The state of one process of a case: a client, and the objects of the case, which are created on first use. */
final class CaseProcess {
    private final AbstractRedisClient lettuce;
    private final Bloomgate client;
    private final JsonNode from;
    private final boolean isAsync;
    private Filter filter;
    private Guard<Object, Object> guard;

    CaseProcess(AbstractRedisClient lettuce, Bloomgate client, JsonNode from, boolean isAsync) {
        this.lettuce = lettuce;
        this.client = client;
        this.from = from;
        this.isAsync = isAsync;
    }

    void close() {
        client.close();
        lettuce.shutdownAsync(0, 0, TimeUnit.SECONDS);
    }

    private synchronized Filter filter() {
        if (filter == null) {
            JsonNode given = from.get("filter");
            filter = new Filter(client, given.get("key").textValue(), given.path("create").asBoolean(true));
        }
        return filter;
    }

    private synchronized Guard<Object, Object> guard() {
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

    /** Sets an option of a builder. Java's compiler would refuse an unknown option. */
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
            return Adapter.items(value).toArray(String[]::new);
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

    /** Converts a loaded value for the client. */
    private Object value(JsonNode value) {
        if (value == null || value.isNull()) {
            return null;
        }
        if (isJson()) {
            return Adapter.MAPPER.convertValue(value, Object.class);
        }
        return value.isTextual() ? value.textValue().getBytes(StandardCharsets.UTF_8) : Adapter.item(value);
    }

    /** Begins an asynchronous call. Returns null if the client has only a blocking call. */
    CompletableFuture<?> asynchronous(Call call) {
        if (!isAsync) {
            return null;
        }
        JsonNode given = call.given;
        Duration ttl = given.has("ttl") ? seconds(given.get("ttl")) : null;
        switch (call.name) {
            case "filter.add":
                return filter().addAsync(Adapter.item(given.get("item")));
            case "filter.exists":
                return filter().containsAsync(Adapter.item(given.get("item")));
            case "filter.add_many":
                return filter().addAllAsync(Adapter.items(given.get("items")));
            case "filter.exists_many":
                return filter().containsAllAsync(Adapter.items(given.get("items")));
            case "guard.get":
                return guard().getAsync(
                        Adapter.item(given.get("id")), id -> called(call, List.of(), this::value), ttl);
            case "guard.get_nested":
                Object nested = Adapter.item(given.get("id"));
                return guard().getAsync(nested, id -> guard().getAsync(nested, own -> called(call, List.of(), this::value))
                        .thenApply(row -> row.orElse(null)));
            case "guard.get_many":
                return guard().getAllAsync(Adapter.items(given.get("ids")),
                        ids -> called(call, ids, rows -> loaded(ids, rows)), ttl);
            case "guard.changed":
                return guard().changedAsync(Adapter.items(given.get("ids")), () -> called(call, List.of(), row -> null));
            default:
                return null;
        }
    }

    /** The function that an asynchronous call of the client calls. */
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

    /** The function that a blocking call of the client calls. */
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

    /** Makes a blocking call. */
    Object perform(Call call) {
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
                return Map.of("hex", HexFormat.of().formatHex(Items.bytes(Adapter.item(given.get("item")))));
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
                return Filter.fill(client, given.get("key").textValue(), Adapter.items(given.get("ids")),
                        given.get("rate").doubleValue(), given.get("capacity").longValue(),
                        creation(given, "key", "ids", "replicas", "aof"), durability);
            default:
                throw new UnknownError("unknown call " + name);
        }
    }

    /** Returns the arguments as options, except the method's own arguments. */
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
                return filter.add(Adapter.item(given.get("item")));
            case "exists":
                return filter.contains(Adapter.item(given.get("item")));
            case "delete":
                return filter.remove(Adapter.item(given.get("item")));
            case "count":
                return filter.count(Adapter.item(given.get("item")));
            case "add_many":
                return filter.addAll(Adapter.items(given.get("items")));
            case "exists_many":
                return filter.containsAll(Adapter.items(given.get("items")));
            case "delete_many":
                return filter.removeAll(Adapter.items(given.get("items")));
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
                throw new UnknownError("unknown call filter." + method);
        }
    }

    private Object guardCall(String method, Call call) {
        JsonNode given = call.given;
        Duration ttl = given.has("ttl") ? seconds(given.get("ttl")) : null;
        Object[] ids = given.has("ids") ? Adapter.items(given.get("ids")).toArray() : new Object[0];
        switch (method) {
            case "get":
                return guard().get(Adapter.item(given.get("id")), id -> value(await(call, List.of())), ttl);
            case "get_in_transaction":
                return guard().getInTransaction(Adapter.item(given.get("id")), id -> value(await(call, List.of())));
            case "get_nested":
                Object nested = Adapter.item(given.get("id"));
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
                throw new UnknownError("unknown call guard." + method);
        }
    }

    static String camel(String name) {
        return Pattern.compile("_(\\w)").matcher(name).replaceAll(match -> match.group(1).toUpperCase(Locale.ROOT));
    }
}
