package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

/**
 * The JSON of the cases: items, the words of commands, and replies, as values and as bytes of a connection.
 * clients/specification/README.md has the format.
 */
final class Words {
    static final ObjectMapper MAPPER = new ObjectMapper();

    private static final List<String> MEMBERS =
            List.of("name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps");
    private static final List<String> NEEDS =
            List.of("cancel", "turns", "timeout", "pool", "share", "pause", "fatal", "resp2", "resp3");

    /** A case that this runner does not understand. */
    static final class SpecificationError extends Error {
        SpecificationError(String message) {
            super(message);
        }
    }

    private Words() {}

    static void known(String what, Iterator<String> names, Collection<String> allowed) {
        names.forEachRemaining(name -> {
            if (!allowed.contains(name)) {
                throw new SpecificationError(what + ": unknown: " + name);
            }
        });
    }

    static List<String> texts(JsonNode list) {
        List<String> texts = new ArrayList<>();
        list.forEach(one -> texts.add(one.textValue()));
        return texts;
    }

    /** Reads the cases of all files. */
    static List<JsonNode> readCases(File folder) throws IOException {
        List<JsonNode> cases = new ArrayList<>();
        Set<String> names = new HashSet<>();
        File[] files = folder.listFiles((parent, name) -> name.endsWith(".json") && !name.equals("options.json"));
        Arrays.sort(files);
        for (File file : files) {
            JsonNode content = MAPPER.readTree(file);
            known(file.getName(), content.fieldNames(), List.of("about", "cases"));
            for (JsonNode one : content.get("cases")) {
                String name = one.get("name").textValue();
                known(name, one.fieldNames(), MEMBERS);
                known(name, texts(one.path("needs")).iterator(), NEEDS);
                known(name, texts(one.get("servers")).iterator(), List.of("scripted", "real", "cluster"));
                known(name, one.path("client").fieldNames(), List.of("connections", "timeout_ms"));
                if (!names.add(name)) {
                    throw new SpecificationError("two cases have the name " + name);
                }
                cases.add(one);
            }
        }
        if (cases.isEmpty()) {
            throw new SpecificationError("there are no cases in " + folder);
        }
        return cases;
    }

    static String token(String name) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(name.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(digest).substring(0, 32);
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);
        }
    }

    private static SpecificationError unknown(String what, JsonNode value) {
        return new SpecificationError("unknown " + what + " " + value);
    }

    /** Returns an item, an id or a value that a case names. */
    static Object oneItem(JsonNode item) {
        if (item.isTextual()) {
            return item.textValue();
        }
        if (item.isIntegralNumber()) {
            return item.longValue();
        }
        if (item.isObject() && item.size() == 1) {
            String name = item.fieldNames().next();
            JsonNode value = item.get(name);
            switch (name) {
                case "hex":
                    return HexFormat.of().parseHex(value.textValue());
                case "integer":
                    return new BigInteger(value.textValue());
                case "boolean":
                    return value.booleanValue();
                case "float":
                    return value.doubleValue();
                case "null":
                    return null;
                default:
            }
        }
        throw unknown("item", item);
    }

    /** Returns items. Where a batch is expected, Java's compiler refuses a text. */
    static List<Object> itemList(JsonNode items) {
        if (items.isTextual()) {
            throw new IllegalArgumentException("a text is no list");
        }
        List<Object> list = new ArrayList<>();
        if (items.isArray()) {
            items.forEach(one -> list.add(oneItem(one)));
            return list;
        }
        JsonNode inner = items.path("items");
        if (inner.has("numbers")) {
            for (long number = inner.get("numbers").get(0).longValue(); number < inner.get("numbers").get(1).longValue(); number++) {
                list.add(number);
            }
            return list;
        }
        if (inner.has("filled")) {
            return Collections.nCopies(inner.get("times").intValue(), "a".repeat(inner.get("filled").intValue()));
        }
        throw unknown("items", items);
    }

    private static boolean wordMatches(JsonNode expected, byte[] word) {
        if (expected.isTextual()) {
            return Arrays.equals(word, expected.textValue().getBytes(StandardCharsets.UTF_8));
        }
        String text = new String(word, StandardCharsets.UTF_8);
        if (expected.has("hex")) {
            return Arrays.equals(word, HexFormat.of().parseHex(expected.get("hex").textValue()));
        }
        if (expected.has("token")) {
            return text.equals(token(expected.get("token").textValue()));
        }
        if (expected.has("from") && expected.has("to")) {
            return text.matches("\\d{1,18}") && expected.get("from").longValue() <= Long.parseLong(text)
                    && Long.parseLong(text) <= expected.get("to").longValue();
        }
        throw unknown("word", expected);
    }

    /** Returns the words that the words of an expected command stand for. */
    private static List<JsonNode> expanded(JsonNode command) {
        List<JsonNode> words = new ArrayList<>();
        for (JsonNode word : command) {
            if (word.has("items")) {
                itemList(word).forEach(item -> words.add(MAPPER.getNodeFactory().textNode(item.toString())));
            } else if (word.has("pairs")) {
                for (Object item : itemList(MAPPER.createObjectNode().set("items", word.get("pairs")))) {
                    words.add(MAPPER.getNodeFactory().textNode(item.toString()));
                    words.add(MAPPER.getNodeFactory().textNode(word.get("prefix").textValue() + item));
                }
            } else {
                words.add(word);
            }
        }
        return words;
    }

    static boolean commandMatches(JsonNode expected, List<byte[]> words) {
        List<JsonNode> wanted = expanded(expected);
        if (wanted.size() != words.size() || !Keys.latin(words.get(0)).equalsIgnoreCase(wanted.get(0).textValue())) {
            return false;
        }
        for (int index = 1; index < words.size(); index++) {
            if (!wordMatches(wanted.get(index), words.get(index))) {
                return false;
            }
        }
        return true;
    }

    /** Returns the bytes of a reply on a connection that speaks the protocol. */
    static byte[] encode(JsonNode reply, int protocol) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        encode(reply, protocol, bytes);
        return bytes.toByteArray();
    }

    private static void line(ByteArrayOutputStream bytes, String line) {
        bytes.writeBytes((line + "\r\n").getBytes(StandardCharsets.UTF_8));
    }

    private static void bulk(ByteArrayOutputStream bytes, byte[] data) {
        line(bytes, "$" + data.length);
        bytes.writeBytes(data);
        line(bytes, "");
    }

    private static void encode(JsonNode reply, int protocol, ByteArrayOutputStream bytes) {
        if (reply.isNull()) {
            line(bytes, protocol == 2 ? "$-1" : "_");
        } else if (reply.isBoolean()) {
            line(bytes, protocol == 2 ? ":" + (reply.booleanValue() ? 1 : 0) : reply.booleanValue() ? "#t" : "#f");
        } else if (reply.isIntegralNumber()) {
            line(bytes, ":" + reply.longValue());
        } else if (reply.isTextual()) {
            bulk(bytes, reply.textValue().getBytes(StandardCharsets.UTF_8));
        } else if (reply.isArray()) {
            line(bytes, "*" + reply.size());
            reply.forEach(one -> encode(one, protocol, bytes));
        } else if (reply.has("hex")) {
            bulk(bytes, HexFormat.of().parseHex(reply.get("hex").textValue()));
        } else if (reply.has("token")) {
            bulk(bytes, token(reply.get("token").textValue()).getBytes(StandardCharsets.UTF_8));
        } else if (reply.has("ok")) {
            line(bytes, "+" + reply.get("ok").textValue());
        } else if (reply.has("error")) {
            line(bytes, "-" + reply.get("error").textValue());
        } else if (reply.has("repeat")) {
            line(bytes, "*" + reply.get("times").intValue());
            for (int count = 0; count < reply.get("times").intValue(); count++) {
                encode(reply.get("repeat"), protocol, bytes);
            }
        } else if (reply.has("wire")) {
            bytes.writeBytes(reply.get("wire").textValue().getBytes(StandardCharsets.ISO_8859_1));
        } else {
            throw unknown("reply", reply);
        }
    }
}
