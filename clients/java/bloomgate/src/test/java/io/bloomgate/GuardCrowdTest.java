package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Loads that need other rows, or fail with an Error, and bursts of rows. */
class GuardCrowdTest {
    private final Servers servers = new Servers();
    private final List<RedisClient> clients = new ArrayList<>();

    @AfterEach
    void end() throws IOException {
        clients.forEach(RedisClient::shutdown);
        servers.close();
    }

    private static Guard.Builder<byte[]> guard(Bloomgate client) {
        return Guard.builder(client, "users", Codec.bytes());
    }

    /** Returns a client with a time limit that is long enough for a busy machine. */
    private Bloomgate patient(int port) {
        RedisClient client = RedisClient.create(Servers.RESOURCES, "redis://127.0.0.1:" + port);
        clients.add(client);
        return Bloomgate.builder(client).timeout(Duration.ofMinutes(1)).build();
    }

    /** Returns a client for a port on which no server listens. */
    private Bloomgate withoutServer() {
        return patient(Servers.freePort());
    }

    private static String text(CompletableFuture<Optional<byte[]>> found) throws Exception {
        return Keys.latin(found.get(60, TimeUnit.SECONDS).orElseThrow());
    }

    /** Without a server, each of two loads would wait for the other. */
    @Test
    void twoLoadsThatNeedEachOthersRowsEnd() throws Exception {
        try (Bloomgate client = withoutServer()) {
            Guard<Integer, byte[]> guard = guard(client).wait(Duration.ofMillis(200)).build();
            CyclicBarrier bothLoad = new CyclicBarrier(2);
            List<CompletableFuture<String>> readers = new ArrayList<>();
            for (int id : List.of(17, 18)) {
                readers.add(CompletableFuture.supplyAsync(() -> Keys.latin(guard.get(id, own -> {
                    bothLoad.await(60, TimeUnit.SECONDS);
                    return guard.get(35 - id, other -> Keys.ascii("row " + other)).orElseThrow();
                }).orElseThrow()), client.executor));
            }
            assertEquals("row 18", readers.get(0).get(60, TimeUnit.SECONDS));
            assertEquals("row 17", readers.get(1).get(60, TimeUnit.SECONDS));
        }
    }

    /** The end of a thread, like ThreadDeath. */
    private static final class Fatal extends Error {}

    @Test
    void anErrorIsThrownAlthoughThereIsAnOldValue() throws Exception {
        try (Bloomgate client = patient(servers.start().port())) {
            Guard<Integer, byte[]> guard = guard(client).ttl(Duration.ofMillis(1)).failSafe(Duration.ofHours(1)).build();
            guard.get(17, id -> Keys.ascii("row"));
            Thread.sleep(20);
            assertThrows(Fatal.class, () -> guard.get(17, id -> {
                throw new Fatal();
            }));
        }
    }

    @Test
    void aCallForARowInsideItsLoadLoadsIt() throws Exception {
        for (Bloomgate client : List.of(patient(servers.start().port()), withoutServer())) {
            Guard<Object, byte[]> guard = guard(client).wait(Duration.ofHours(1)).build();
            Guard.Loader<Object, byte[]> inner = id -> Keys.ascii("row");
            assertEquals("row", Keys.latin(guard.get(17, id -> guard.get("17", inner).orElseThrow()).orElseThrow()));
            assertEquals("row", Keys.latin(guard.getAll(List.of(18), ids -> Map.of(18, guard.get(18, inner).orElseThrow())).get(18)
                    .orElseThrow()));
            assertEquals("row", Keys.latin(guard.get(19, id -> guard.getAll(List.of(19, 20),
                    ids -> Map.of(19, Keys.ascii("row"), 20, Keys.ascii("row"))).get(19).orElseThrow()).orElseThrow()));
            assertEquals("row", text(guard.getAsync(21, id -> guard.getAsync(21, own -> CompletableFuture.completedFuture(Keys.ascii("row")))
                    .thenApply(Optional::orElseThrow))));
            client.close();
        }
    }

    @Test
    void aBurstOfRowsIsCached() throws Exception {
        int rows = 10_000;
        byte[] row = new byte[4096];
        try (Bloomgate client = patient(servers.start().port())) {
            // Valkey 8.1 caches nothing while there is no filter.
            Filter filter = new Filter(client, "users");
            filter.reserve(0.001, rows);
            filter.addAll(IntStream.range(0, rows).boxed().toList());
            Guard<Integer, byte[]> guard = guard(client).lease(Duration.ofHours(1)).build();
            var readers = IntStream.range(0, rows).mapToObj(
                    id -> guard.getAsync(id, any -> CompletableFuture.completedFuture(row))).toList();
            for (var reader : readers) {
                assertEquals(row.length, reader.get(60, TimeUnit.SECONDS).orElseThrow().length);
            }
            assertEquals(rows, guard.counts().get(Event.FILLED), () -> "filled of " + guard.counts());
        }
    }

    @Test
    void aBurstHas500CommandsInFlight() throws Exception {
        try (ScriptedServer scripted = new ScriptedServer(); Bloomgate client = patient(scripted.port())) {
            Guard<Integer, byte[]> guard = guard(client).build();
            String lease = "*2\r\n$4\r\nload\r\n$2\r\n00\r\n";
            String absent = "*1\r\n$6\r\nabsent\r\n";
            var readers = IntStream.range(0, 600).mapToObj(
                    id -> guard.getAsync(id, any -> CompletableFuture.completedFuture(Keys.ascii("row")))).toList();
            Deque<ScriptedServer.Arrival> sent = new ArrayDeque<>();
            for (int command = 0; command < 500; command++) {
                sent.add(scripted.next("a fetch"));
            }
            Thread.sleep(200);
            assertNull(scripted.unexpected());
            // The fill is sent before the fetches that were still queued when its load ended.
            sent.remove().answer(lease);
            int fetches = 500;
            var next = scripted.next("a fetch");
            while (next.name().equals("BF.FETCH")) {
                fetches++;
                sent.add(next);
                sent.remove().answer(absent);
                next = scripted.next("a fill");
            }
            assertEquals("BF.FILL", next.name());
            assertTrue(fetches < 600, "the fill came last");
            next.answer("+OK\r\n");
            while (fetches < 600 || !sent.isEmpty()) {
                if (sent.isEmpty()) {
                    sent.add(scripted.next("a fetch"));
                    fetches++;
                }
                sent.remove().answer(absent);
            }
            for (var reader : readers) {
                reader.get(60, TimeUnit.SECONDS);
            }
        }
    }
}
