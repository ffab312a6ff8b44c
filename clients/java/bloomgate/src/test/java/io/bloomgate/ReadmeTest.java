package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Runs the code of README.md. */
class ReadmeTest {
    record User(String name) {}

    @Test
    void theCodeOfTheReadmeRuns() throws IOException {
        try (Servers servers = new Servers()) {
            run("redis://127.0.0.1:" + servers.start().port());
        }
    }

    private static void run(String address) {
        Bloomgate client = Bloomgate.connect(address);
        Filter seen = new Filter(client, "seen");
        seen.reserve(0.001, 1_000_000);

        assertTrue(seen.add("https://example.org/")); // new, for certain
        assertFalse(seen.add("https://example.org/")); // already present, or a false positive: once in a thousand times
        assertFalse(seen.contains("https://example.org/about"));
        assertEquals(List.of(true, true, false), seen.addAll(List.of("a", "b", "a")));
        assertEquals(List.of(true, false), seen.containsAll(List.of("a", "x")));

        assertEquals(seen.card(), seen.info().items());
        assertTrue(seen.stats().errorRateNow() < 0.001);

        Map<Long, User> table = new ConcurrentHashMap<>(Map.of(17L, new User("Ann"))); // stands for the database

        CreationOptions siphash = CreationOptions.defaults().hash("siphash");
        Filter.fill(client, "users", table.keySet(), 0.001, 100_000, siphash, Durability.NONE);
        Guard<Long, User> users = Guard.builder(client, "users", Codec.json(User.class))
                .ttl(Duration.ofMinutes(1)).failSafe(Duration.ofHours(1)).build(table::get);

        assertEquals(Optional.of(new User("Ann")), users.get(17L));
        assertEquals(Optional.empty(), users.get(18L)); // the database is not asked

        users.changed(18L, () -> table.put(18L, new User("Eve"))); // the commit is inside; without an announcement it is not called
        assertEquals(Optional.of(new User("Eve")), users.get(18L));

        users.changed(18L, () -> table.remove(18L));
        users.forget(18L); // only for ids that never return
        client.close();
    }

    @Test
    void thePageShowsThisCode() throws IOException {
        assertTrue(shownLines("../README.md") > 20);
    }

    private static int shownLines(String page) throws IOException {
        List<String> shown = Files.readAllLines(Path.of("src/test/java/io/bloomgate/ReadmeTest.java")).stream()
                .map(String::strip).toList();
        // FillUsersTest compiles the code for Spring.
        String text = Files.readString(Path.of(page)).replaceFirst("(?s)\n## Spring\n.*?(?=\n## )", "");
        Matcher blocks = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(text);
        int lines = 0;
        while (blocks.find()) {
            for (String line : blocks.group(1).split("\n")) {
                // The address is the only difference.
                assertTrue(line.contains("Bloomgate.connect(") || shown.contains(line.strip()), line);
                lines++;
            }
        }
        return lines;
    }
}
