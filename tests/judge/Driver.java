import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.bloomgate.Bloomgate;
import io.bloomgate.Codec;
import io.bloomgate.Guard;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** The judge's driver for the Java library. README.md has the protocol. */
public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<Long, CompletableFuture<JsonNode>> ANSWERS = new ConcurrentHashMap<>();
    static final AtomicLong LAST = new AtomicLong();

    static synchronized void tell(String word, long number, Object value) {
        System.out.println(JSON.valueToTree(Arrays.asList(word, number, value)));
    }

    static Map<String, String> ask(String word, Object value) throws Exception {
        long number = LAST.incrementAndGet();
        CompletableFuture<JsonNode> answer = new CompletableFuture<>();
        ANSWERS.put(number, answer);
        tell(word, number, value);
        return JSON.convertValue(answer.get(), new TypeReference<>() {});
    }

    static void call(Guard<String, String> guard, String word, long number, List<String> ids) {
        try {
            Map<String, String> rows = new ConcurrentHashMap<>();
            if (word.equals("write")) {
                guard.changedAll(ids, () -> ask("commit", number));
            } else if (ids.size() == 1) {
                guard.get(ids.get(0)).ifPresent(row -> rows.put(ids.get(0), row));
            } else {
                Guard.Loader<Collection<String>, Map<String, String>> load = wanted -> ask("load", wanted);
                guard.getAll(ids, load).forEach((id, row) -> row.ifPresent(text -> rows.put(id, text)));
            }
            tell(word, number, rows);
        } catch (Throwable error) {
            tell("error", number, error.toString());
        }
    }

    static Duration time(JsonNode settings, String name) {
        return Duration.ofMillis(Math.round(settings.get("guard").get(name).asDouble() * 1000));
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = JSON.readTree(arguments[0]);
        String url = "redis://" + settings.get("address").asText();
        boolean isCluster = settings.get("cluster").asBoolean();
        Bloomgate client = isCluster ? Bloomgate.of(RedisClusterClient.create(url)) : Bloomgate.connect(url);
        Guard<String, String> guard = Guard.builder(client, "rows", Codec.json(String.class)).announceTo("{rows}~filling")
                .ttl(time(settings, "ttl")).absentTtl(time(settings, "absent_ttl")).lease(time(settings, "lease"))
                .wait(time(settings, "wait")).patience(time(settings, "patience")).failSafe(time(settings, "fail_safe"))
                .softTimeout(time(settings, "soft_timeout")).replicas(settings.get("guard").get("replicas").asInt())
                .build(id -> ask("load", List.of(id)).get(id));
        Map<Long, Thread> calls = new ConcurrentHashMap<>();
        tell("ready", 0, null);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            JsonNode words = JSON.readTree(line);
            long number = words.get(1).asLong();
            switch (words.get(0).asText()) {
                case "row" -> ANSWERS.remove(number).complete(words.get(2));
                case "fail" -> ANSWERS.remove(number).completeExceptionally(new IOException(words.get(2).asText()));
                case "cancel" -> calls.getOrDefault(number, new Thread()).interrupt();
                case "read", "write" -> {
                    Thread thread = new Thread(() -> {
                        call(guard, words.get(0).asText(), number, JSON.convertValue(words.get(2), new TypeReference<>() {}));
                        calls.remove(number);
                    });
                    calls.put(number, thread);
                    thread.start();
                }
                default -> { }
            }
        }
        System.exit(0);
    }
}
