package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Calls of frameworks: inside transactions, with unknown outcomes, with futures and with their own exceptions. */
class GuardUsesTest {
    private final Servers servers = new Servers();
    private Servers.Server server;
    private RedisClient lettuce;
    private Bloomgate client;

    @BeforeEach
    void start() {
        server = servers.start();
        lettuce = RedisClient.create(Servers.RESOURCES, "redis://127.0.0.1:" + server.port());
        client = Bloomgate.builder(lettuce).timeout(Duration.ofMinutes(1)).build();
        new Filter(client, "users").addAll(List.of(17, 18));
    }

    @AfterEach
    void end() throws IOException {
        client.close();
        lettuce.shutdown();
        servers.close();
    }

    private Guard.Builder<byte[]> guard() {
        return Guard.builder(client, "users", Codec.bytes());
    }

    private static byte[] row(String text) {
        return Keys.ascii(text);
    }

    private static String text(Optional<byte[]> row) {
        return Keys.latin(row.orElseThrow());
    }

    private static Guard.Loader<Object, byte[]> loader(String text) {
        return id -> row(text);
    }

    private static final Guard.Loader<Object, byte[]> NEVER = id -> {
        throw new AssertionError("the row is cached");
    };

    @Test
    void aCancelledCallCancelsTheFutureOfItsLoader() {
        CompletableFuture<CompletableFuture<byte[]>> begun = new CompletableFuture<>();
        var found = guard().build().getAsync(17, id -> {
            CompletableFuture<byte[]> load = new CompletableFuture<>();
            begun.complete(load);
            return load;
        });
        CompletableFuture<byte[]> load = begun.join();
        found.cancel(true);
        Servers.eventually("the cancellation", load::isCancelled);
    }

    @Test
    void guardsWithOnePrefixNeedOneCodec() {
        record User(String name) {}
        record Order(int number) {}
        Guard.builder(client, "users", Codec.json(User.class)).build();
        Guard.builder(client, "users", Codec.json(User.class)).ttl(Duration.ofHours(1)).build();
        var other = Guard.builder(client, "users", Codec.json(Order.class));
        String message = assertThrows(IllegalArgumentException.class, other::build).getMessage();
        assertTrue(message.contains("{users}:"), message);
        other.prefix("{users}orders:").build();
        guard().prefix("{users}bytes:").build();
        guard().prefix("{users}bytes:").build();
    }

    @Test
    void anUnknownOutcomeIsConfirmedAgainAfterALease() throws Exception {
        Guard<Integer, byte[]> guard = guard().lease(Duration.ofMillis(300)).build();
        server.commands().configResetstat();
        var confirmed = guard.confirmUnknownAsync(List.of(17));
        Servers.eventually("the first confirmation", () -> server.commands().info("commandstats").contains("cmdstat_bf.changed:calls=1"));
        // A commit takes effect after a reader has filled the earlier row.
        guard.get(17, loader("old"));
        confirmed.get(60, TimeUnit.SECONDS);
        assertEquals("new", text(guard.get(17, loader("new"))));
        guard.announceAsync(List.of(17, 18)).get(60, TimeUnit.SECONDS);
        guard.confirmAsync(List.of(17, 18)).get(60, TimeUnit.SECONDS);
        assertFalse(guard.peek(17).isPresent());
    }

    private static void checkTrace(Throwable error) {
        assertTrue(Arrays.stream(error.getStackTrace()).anyMatch(line -> line.getClassName().equals(GuardUsesTest.class.getName())
                && line.getMethodName().contains("stackTracesContainTheLineOfTheCall")), () -> Arrays.toString(error.getStackTrace()));
    }

    @Test
    void stackTracesContainTheLineOfTheCall() throws Exception {
        try (Bloomgate nowhere = Bloomgate.connect("redis://127.0.0.1:" + Servers.freePort())) {
            checkTrace(assertThrows(BloomgateException.Disconnected.class, nowhere::ping));
        }
        server.commands().set("text", "text");
        RuntimeException refused = assertThrows(RedisCommandExecutionException.class, () -> new Filter(client, "text").card());
        checkTrace(refused);
        assertTrue(refused.getMessage().startsWith("WRONGTYPE"), refused.getMessage());
        checkTrace(assertThrows(BloomgateException.FilterMissing.class, () -> new Filter(client, "missing").info()));
        // The error of a load that another caller runs.
        Guard<Integer, byte[]> guard = guard().build();
        CompletableFuture<byte[]> load = new CompletableFuture<>();
        IllegalStateException down = new IllegalStateException("the database is down");
        var leading = guard.getAsync(17, id -> load);
        Servers.eventually("the load", () -> guard.counts().get(Event.LOAD) == 1);
        CompletableFuture<Void> failing = CompletableFuture.runAsync(() -> {
            Servers.eventually("the wait", () -> guard.counts().get(Event.WAIT) >= 1);
            load.completeExceptionally(down);
        }, CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS));
        IllegalStateException shared = assertThrows(IllegalStateException.class, () -> guard.get(17, NEVER));
        checkTrace(shared);
        assertEquals(down.getMessage(), shared.getMessage());
        assertSame(down, shared.getCause());
        assertSame(down, assertThrows(ExecutionException.class, () -> leading.get(60, TimeUnit.SECONDS)).getCause());
        failing.get(60, TimeUnit.SECONDS);
        // An exception with its own data is not copied.
        class NotFound extends IllegalStateException {
            final int id = 17;
        }
        NotFound own = new NotFound();
        assertSame(own, Rethrown.here(own));
        // The stack trace of an error of a loader's own call also contains the line inside the loader.
        var inner = assertThrows(BloomgateException.FilterMissing.class, () -> guard.get(18, id -> row(new Filter(client, "missing").info().toString())));
        assertTrue(Arrays.stream(inner.getStackTrace()).filter(line -> line.getMethodName().startsWith("lambda$stackTracesContain")).count() > 1);
    }

    /** The loaders of the guard, and the asynchronous variants of blocking calls. */
    @Test
    void blockingCallsHaveAsynchronousVariants() throws Exception {
        Filter filter = new Filter(client, "siphash");
        filter.reserve(0.001, 100, CreationOptions.defaults().hash("siphash"));
        filter.addAll(List.of("a", "b", "c"));
        Guard<String, byte[]> guard = Guard.builder(client, "siphash", Codec.bytes())
                .build(Keys::ascii, ids -> ids.stream().collect(Collectors.toMap(id -> id, Keys::ascii)));
        assertEquals("a", text(guard.get("a")));
        assertEquals("a", text(guard.getAsync("a").get(60, TimeUnit.SECONDS)));
        Map<String, Optional<byte[]>> rows = guard.getAllAsync(List.of("a", "b", "x")).get(60, TimeUnit.SECONDS);
        assertEquals("b", text(rows.get("b")));
        assertEquals(Optional.empty(), rows.get("x"));
        assertEquals(rows.keySet(), guard.getAll(List.of("a", "b", "x")).keySet());
        guard.clearAsync().get(60, TimeUnit.SECONDS);
        assertFalse(guard.peek("a").isPresent());
        guard.forgetAsync(List.of("a")).get(60, TimeUnit.SECONDS);
        assertEquals(List.of(false, true), filter.containsAll(List.of("a", "b")));
        assertTrue(filter.removeAsync("b").get(60, TimeUnit.SECONDS));
        assertEquals(List.of(false, true), filter.removeAllAsync(List.of("b", "c")).get(60, TimeUnit.SECONDS));
    }

    @Test
    void loadersDoNotRunInTheThreadsOfLettuce() throws Exception {
        Guard<Integer, byte[]> guard = guard().build();
        AtomicReference<String> thread = new AtomicReference<>();
        // A blocking loader that queries the server itself: in a thread of Lettuce it would wait forever.
        var found = guard.getAsync(17, id -> {
            thread.set(Thread.currentThread().getName());
            return CompletableFuture.completedFuture(guard.get(18, loader("Eve")).orElseThrow());
        });
        assertEquals("Eve", text(found.get(60, TimeUnit.SECONDS)));
        assertEquals("bloomgate", thread.get());
        guard.changedAsync(List.of(17), () -> {
            thread.set(Thread.currentThread().getName());
            return CompletableFuture.completedFuture(null);
        }).get(60, TimeUnit.SECONDS);
        assertEquals("bloomgate", thread.get());
    }

    /** A program that evicts in the continuation of a future, in the thread that receives the replies of the server. */
    @Test
    void aBlockingCallInAThreadOfLettuceIsRefused() throws Exception {
        Guard<Integer, byte[]> guard = guard().build();
        assertEquals("Ann", text(guard.get(17, loader("Ann"))));
        AtomicReference<Thread> thread = new AtomicReference<>();
        CompletableFuture<Void> evicted = new CompletableFuture<>();
        // The reply arrives after the stage was added, even on a fast machine.
        server.commands().clientPause(300);
        guard.getAsync(17, id -> null).thenAccept(row -> {
            thread.set(Thread.currentThread());
            guard.confirm(17);
        }).whenComplete((nothing, error) -> Caller.settle(evicted, null, error));
        var refused = assertThrows(ExecutionException.class, () -> evicted.get(60, TimeUnit.SECONDS)).getCause();
        assertTrue(assertInstanceOf(IllegalStateException.class, refused).getMessage().contains("returns a future"), refused.toString());
        assertTrue(thread.get().getName().startsWith("lettuce-"), thread.get().getName());
        // The thread has not waited, and nothing is lost.
        assertEquals("Ann", text(guard.getAsync(17, id -> null).get(60, TimeUnit.SECONDS)));
        server.commands().clientPause(300);
        guard.getAsync(17, id -> null).thenCompose(row -> guard.confirmAsync(List.of(17))).get(60, TimeUnit.SECONDS);
        assertFalse(guard.peek(17).isPresent());
        guard.getAsync(17, id -> CompletableFuture.completedFuture(row("Eve"))).get(60, TimeUnit.SECONDS);
        guard.getAsync(17, id -> null).thenAcceptAsync(row -> guard.confirm(17)).get(60, TimeUnit.SECONDS);
        assertFalse(guard.peek(17).isPresent());
    }

    @Test
    void exceptionsOfTheProgramAreNotFailures() throws Exception {
        Guard<Integer, byte[]> guard = guard().ttl(Duration.ofMillis(1)).failSafe(Duration.ofHours(1))
                .failSafeFor(error -> !(error instanceof IllegalArgumentException)).build();
        IllegalArgumentException own = new IllegalArgumentException("not found");
        for (int call = 0; call < 3; call++) {
            assertSame(own, assertThrows(IllegalArgumentException.class, () -> guard.get(17, id -> {
                throw own;
            })));
        }
        guard.get(17, loader("Ann"));
        Thread.sleep(20);
        assertSame(own, assertThrows(IllegalArgumentException.class, () -> guard.get(17, id -> {
            throw own;
        })));
        // No back-off has begun.
        assertEquals("Anna", text(guard.get(17, loader("Anna"))));
        Thread.sleep(20);
        assertEquals("Anna", text(guard.get(17, id -> {
            throw new IllegalStateException("the database is down");
        })));
        assertInstanceOf(IllegalArgumentException.class, assertThrows(ExecutionException.class, () -> guard.getAsync(18, id -> {
            throw own;
        }).get(60, TimeUnit.SECONDS)).getCause());
    }

    @Test
    void anExecutorCanPassThreadLocalsToLoads() throws Exception {
        ThreadLocal<String> context = new ThreadLocal<>();
        var threads = Executors.newCachedThreadPool();
        try (Bloomgate own = Bloomgate.builder(lettuce).timeout(Duration.ofMinutes(1)).executor(task -> {
            String captured = context.get();
            threads.execute(() -> {
                context.set(captured);
                task.run();
            });
        }).build()) {
            Guard<Integer, byte[]> guard = Guard.builder(own, "users", Codec.bytes()).ttl(Duration.ofMillis(1)).failSafe(Duration.ofHours(1))
                    .softTimeout(Duration.ofMinutes(1)).build();
            guard.get(17, loader("old"));
            Thread.sleep(20);
            context.set("the tenant");
            assertEquals("the tenant", text(guard.get(17, id -> row(String.valueOf(context.get())))));
        } finally {
            threads.shutdown();
        }
    }
}
