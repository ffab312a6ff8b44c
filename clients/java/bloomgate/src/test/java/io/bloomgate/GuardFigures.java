package io.bloomgate;

import io.bloomgate.BloomgateException.LoadFailed;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/**
 * Compares hits of the guard with Lettuce's own GET: prints {@code threads,hits per second,GETs per second} for each round, and then the
 * same for futures. 1000 rows of 200 bytes are cached, and each caller looks up one random row after another. The server needs the module;
 * keys that begin with {@code bench} are deleted.
 *
 * <p>With {@code --others} it prints instead how many loads 10,000 gets of one row cause, how long the gets take while a server does not
 * answer, and how often a failing load is called. In clients/java, after {@code mvn install -DskipTests}: {@code mvn -q -pl bloomgate
 * test-compile exec:java -Dexec.classpathScope=test -Dexec.mainClass=io.bloomgate.GuardFigures -Dexec.args="--callers 64 --rounds 7
 * --lookups 64000 redis://127.0.0.1:6379"}
 */
public final class GuardFigures {
    private static final int ROWS = 1000;
    private static final int GETS = 10_000;
    private static final byte[] ROW = new byte[200];

    private final int callers;
    private final int rounds;
    private final int lookups;

    private GuardFigures(List<String> words) {
        callers = option(words, "--callers", 64);
        rounds = option(words, "--rounds", 7);
        lookups = option(words, "--lookups", 64_000);
    }

    private static int option(List<String> words, String name, int usual) {
        int at = words.indexOf(name);
        return at < 0 ? usual : Integer.parseInt(words.get(at + 1));
    }

    public static void main(String[] arguments) throws Exception {
        List<String> words = List.of(arguments);
        GuardFigures figures = new GuardFigures(words);
        Arrays.fill(ROW, (byte) 'x');
        RedisClient lettuce = RedisClient.create(words.get(words.size() - 1));
        try (Bloomgate client = Bloomgate.of(lettuce)) {
            StatefulRedisConnection<byte[], byte[]> connection = lettuce.connect(ByteArrayCodec.INSTANCE);
            connection.sync().unlink(Keys.ascii("bench"), Keys.ascii("{bench}~filling"));
            for (int id = 0; id < ROWS; id++) {
                connection.sync().unlink(key(id));
            }
            Filter.fill(client, "bench", IntStream.range(0, ROWS).boxed().toList(), 0.001, ROWS,
                    CreationOptions.defaults(), Durability.NONE);
            if (words.contains("--others")) {
                figures.oneRow(client);
                figures.hungServer();
                figures.failingLoad(client);
            } else {
                figures.hits(client, connection);
            }
        }
        lettuce.shutdown();
    }

    private static byte[] key(int id) {
        return Keys.ascii("{bench}:" + id);
    }

    private static Guard.Builder<byte[]> guard(Bloomgate client) {
        return Guard.builder(client, "bench", Codec.bytes());
    }

    private void hits(Bloomgate client, StatefulRedisConnection<byte[], byte[]> connection) throws Exception {
        Guard<Integer, byte[]> guard = guard(client).build();
        var commands = connection.sync();
        var async = connection.async();
        for (int id = 0; id < ROWS; id++) {
            commands.set(key(id), ROW);
        }
        Guard.Loader<Integer, byte[]> never = id -> {
            throw new AssertionError("a row was not cached");
        };
        for (int round = 0; round < rounds; round++) {
            double hits = threads(lookups, id -> guard.get(id, never));
            double gets = threads(lookups, id -> commands.get(key(id)));
            System.out.printf("threads,%.0f,%.0f%n", hits, gets);
        }
        for (int round = 0; round < rounds; round++) {
            double hits = futures(id -> guard.getAsync(id, any -> CompletableFuture.failedFuture(new AssertionError())));
            double gets = futures(id -> async.get(key(id)).toCompletableFuture());
            System.out.printf("futures,%.0f,%.0f%n", hits, gets);
        }
    }

    /** Returns the total lookups of random rows per second of the callers, each in a separate thread. */
    private double threads(int number, IntConsumer look) throws Exception {
        AtomicInteger left = new AtomicInteger(number);
        ExecutorService executor = Executors.newFixedThreadPool(callers);
        long begun = System.nanoTime();
        for (Future<Object> one : executor.invokeAll(Collections.nCopies(callers, Executors.callable(() -> {
            while (left.getAndDecrement() > 0) {
                look.accept(ThreadLocalRandom.current().nextInt(ROWS));
            }
        })))) {
            one.get();
        }
        executor.shutdown();
        return number / ((System.nanoTime() - begun) / 1e9);
    }

    /** The same for callers that begin the next lookup when the previous one has ended. */
    private double futures(IntFunction<CompletableFuture<?>> look) {
        long begun = System.nanoTime();
        CompletableFuture.allOf(IntStream.range(0, callers).mapToObj(caller -> chain(look, lookups / callers))
                .toArray(CompletableFuture[]::new)).join();
        return lookups / ((System.nanoTime() - begun) / 1e9);
    }

    private static CompletableFuture<Void> chain(IntFunction<CompletableFuture<?>> look, int lookups) {
        CompletableFuture<Void> ended = new CompletableFuture<>();
        next(look, lookups, ended);
        return ended;
    }

    private static void next(IntFunction<CompletableFuture<?>> look, int left, CompletableFuture<Void> ended) {
        if (left == 0) {
            ended.complete(null);
            return;
        }
        look.apply(ThreadLocalRandom.current().nextInt(ROWS)).whenComplete((row, error) -> {
            if (error != null) {
                ended.completeExceptionally(error);
            } else {
                next(look, left - 1, ended);
            }
        });
    }

    private void oneRow(Bloomgate client) throws Exception {
        Guard<Integer, byte[]> guard = guard(client).build();
        AtomicInteger loads = new AtomicInteger();
        double rate = threads(GETS, any -> guard.get(17, id -> {
            loads.incrementAndGet();
            Thread.sleep(100);
            return ROW;
        }));
        System.out.printf("10,000 gets of one row, which takes 100 ms to load: %d loads, %.0f ms%n", loads.get(), GETS / rate * 1000);
    }

    /** Measures gets while a server accepts connections and never answers, with a time limit of a second. */
    private void hungServer() throws Exception {
        try (ServerSocket hung = new ServerSocket(0, 1000, InetAddress.getLoopbackAddress());
                Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + hung.getLocalPort())) {
            Guard<Integer, byte[]> guard = guard(client).build();
            long[] nanos = new long[GETS];
            AtomicInteger next = new AtomicInteger();
            double rate = threads(GETS, any -> {
                long begun = System.nanoTime();
                guard.get(17, id -> ROW);
                nanos[next.getAndIncrement()] = System.nanoTime() - begun;
            });
            Arrays.sort(nanos);
            System.out.printf("10,000 gets beside a hung server: %.0f ms, median %s, 99.9th percentile %s, longest %s%n",
                    GETS / rate * 1000, Duration.ofNanos(nanos[GETS / 2]), Duration.ofNanos(nanos[GETS * 999 / 1000]),
                    Duration.ofNanos(nanos[GETS - 1]));
        }
    }

    private void failingLoad(Bloomgate client) throws Exception {
        Guard<Integer, byte[]> guard = guard(client).failSafe(Duration.ofHours(1)).build();
        AtomicInteger loads = new AtomicInteger();
        double rate = threads(GETS, any -> {
            try {
                guard.get(18, id -> {
                    loads.incrementAndGet();
                    throw new IllegalStateException("the database is down");
                });
                throw new AssertionError("a row was loaded");
            } catch (IllegalStateException | LoadFailed expected) {
                // Every caller gets one of them.
            }
        });
        System.out.printf("10,000 gets of a row whose load fails: %d loads, %.0f ms%n", loads.get(), GETS / rate * 1000);
    }
}
