package io.bloomgate;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Parses parts of replies. In RESP2 floating-point numbers and some integers are text. */
final class Replies {
    private Replies() {}

    static String text(@Nullable Object reply) {
        return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(reply);
    }

    static double number(Object reply) {
        if (reply instanceof Number number) {
            return number.doubleValue();
        }
        return Double.parseDouble(text(reply));
    }

    static long integer(Object reply) {
        return reply instanceof Long number ? number : Long.parseLong(text(reply));
    }

    static @Nullable Long optional(@Nullable Object reply) {
        return reply == null ? null : (Long) integer(reply);
    }

    static boolean truth(Object reply) {
        return integer(reply) != 0;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object reply) {
        if (reply instanceof List<?> list) {
            return (List<Object>) list;
        }
        throw new IllegalStateException("the server has sent " + text(reply) + " in place of a list");
    }

    /** Converts a list of names and values to a map. */
    static Map<String, Object> fields(Object reply) {
        List<Object> flat = list(reply);
        Map<String, Object> fields = new HashMap<>();
        for (int index = 0; index + 1 < flat.size(); index += 2) {
            fields.put(text(flat.get(index)), flat.get(index + 1));
        }
        return fields;
    }

    static Info info(Object reply) {
        Map<String, Object> found = fields(reply);
        return new Info(
                integer(found.get("Capacity")),
                integer(found.get("Size")),
                integer(found.get("Number of filters")),
                integer(found.get("Number of items inserted")),
                optional(found.get("Expansion rate")));
    }

    static Stats stats(Object reply) {
        Map<String, Object> found = fields(reply);
        List<Stats.Bucket> buckets = new ArrayList<>();
        for (Object one : list(found.getOrDefault("Buckets", List.of()))) {
            Map<String, Object> bucket = fields(one);
            buckets.add(new Stats.Bucket(
                    integer(bucket.get("Slot")),
                    integer(bucket.get("Number of items inserted")),
                    optional(bucket.get("Begin")),
                    optional(bucket.get("End"))));
        }
        return new Stats(
                text(found.get("Kind")),
                text(found.get("Layout")),
                text(found.get("Hash")),
                number(found.get("Error rate")),
                number(found.get("Error rate now")),
                integer(found.get("Number of items inserted")),
                integer(found.get("Number of items estimated")),
                integer(found.get("Capacity")),
                integer(found.get("Size")),
                integer(found.get("Size of pending adds")),
                layers(found),
                optional(found.get("Number of items deleted")),
                optional(found.get("Room for items deleted")),
                optional(found.get("Window")),
                found.get("Sliding") != null && truth(found.get("Sliding")),
                buckets);
    }

    static Plan plan(Object reply) {
        Map<String, Object> found = fields(reply);
        return new Plan(
                text(found.get("Kind")),
                text(found.get("Layout")),
                text(found.get("Hash")),
                number(found.get("Error rate")),
                integer(found.get("Capacity")),
                integer(found.get("Size")),
                number(found.get("Bits per item")),
                layers(found));
    }

    private static List<Stats.Layer> layers(Map<String, Object> found) {
        List<Stats.Layer> layers = new ArrayList<>();
        for (Object one : list(found.get("Layers"))) {
            Map<String, Object> layer = fields(one);
            Object fill = layer.get("Fill");
            layers.add(new Stats.Layer(
                    integer(layer.get("Capacity")),
                    integer(layer.get("Size")),
                    integer(layer.get("Hashes")),
                    optional(layer.get("Number of items inserted")),
                    fill == null ? null : (Double) number(fill)));
        }
        return layers;
    }
}
