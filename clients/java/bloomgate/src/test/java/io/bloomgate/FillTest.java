package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The source of ids of a fill: the time at which it is opened, and failures of it. */
class FillTest {
    private final Servers servers = new Servers();

    @AfterEach
    void end() throws IOException {
        servers.close();
    }

    /** Returns ids whose source fails after the first windows of commands. */
    private static Iterable<Integer> failing(RuntimeException failure) {
        Stream<Integer> ids = IntStream.range(0, 20_000).mapToObj(id -> {
            if (id == 17_000) {
                throw failure;
            }
            return id;
        });
        return ids::iterator;
    }

    @Test
    void aFailingSourceCreatesNoFilter() {
        var server = servers.start();
        RuntimeException failure = new IllegalStateException("the database has closed the cursor");
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            for (Durability durability : List.of(Durability.NONE, new Durability(1, java.time.Duration.ofMillis(1), false))) {
                server.commands().flushall();
                RuntimeException thrown = assertThrows(RuntimeException.class, () -> Filter.fill(client, "users", failing(failure), 0.001,
                        20_000, CreationOptions.defaults(), durability));
                assertEquals(0, server.commands().exists("users"));
                if (durability == Durability.NONE) {
                    assertSame(failure, thrown);
                    assertEquals(16_000, new Filter(client, "{users}~filling").card(), 100);
                }
            }
        }
    }

    @Test
    void aBatchWhoseSourceFailsFails() throws Exception {
        RuntimeException failure = new IllegalStateException("the database has closed the cursor");
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + servers.start().port())) {
            Filter filter = new Filter(client, "users");
            assertSame(failure, assertThrows(IllegalStateException.class, () -> filter.addAll(failing(failure))));
            var future = filter.addAllAsync(failing(failure));
            assertSame(failure, assertThrows(java.util.concurrent.ExecutionException.class, future::get).getCause());
            var first = filter.containsAllAsync(() -> {
                throw failure;
            });
            assertSame(failure, assertThrows(java.util.concurrent.ExecutionException.class, first::get).getCause());
        }
    }

    /** A row that is committed after the source was opened is announced to the filling name, so this key must exist before. */
    @Test
    void theSourceIsOpenedWhenWritersCanAnnounceToTheFillingName() {
        var server = servers.start();
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            Iterable<Long> ids = () -> {
                assertEquals(1, server.commands().exists("{users}~filling"));
                return List.of(17L).iterator();
            };
            assertEquals(1, Filter.fill(client, "users", ids, 0.001, 1000, CreationOptions.defaults(), Durability.NONE));
        }
    }
}
