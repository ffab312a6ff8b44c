package io.bloomgate;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/**
 * The guard's figures: hits beside Lettuce's own GET, 10,000 gets of one row, a server that hangs, and a load that fails. The server needs
 * the module, and loses its keys.
 *
 * <p>In clients/java: {@code mvn -q -pl bloomgate test-compile exec:java -Dexec.classpathScope=test
 * -Dexec.mainClass=io.bloomgate.GuardFigures -Dexec.args="redis://127.0.0.1:6379 64000"}
 */
public final class GuardFigures {
    private static final int ROWS = 1000;
    private static final int CALLERS = 64;
    private static int lookups = 64_000;
    private static final int ROUNDS = 5;
    private static final byte[] ROW = new byte[200];

    private GuardFigures() {}

    public static void main(String[] arguments) throws Exception {
        String uri = arguments.length > 0 ? arguments[0] : "redis://127.0.0.1:6379";
        if (arguments.length > 1) {
            lookups = Integer.parseInt(arguments[1]);
        }
        Arrays.fill(ROW, (byte) 'x');
        RedisClient lettuce = RedisClient.create(uri);
        try (Bloomgate client = Bloomgate.of(lettuce)) {
            StatefulRedisConnection<byte[], byte[]> connection = lettuce.connect(ByteArrayCodec.INSTANCE);
            connection.sync().flushall();
            Filter.fill(client, "rows", IntStream.range(0, 2 * ROWS).boxed().toList(), 0.001, 2 * ROWS,
                    CreationOptions.defaults(), Durability.NONE);
            hits(client, connection);
            oneRow(client);
            failingLoad(client);
            hungServer();
        }
        lettuce.shutdown();
    }

    private static Guard<byte[]> guard(Bloomgate client) {
        return Guard.builder(client, "rows", Codec.bytes()).ttl(java.time.Duration.ofHours(1)).build();
    }

    /** Prints the lookups a second of 64 callers: threads, and callers of futures. */
    private static void hits(Bloomgate client, StatefulRedisConnection<byte[], byte[]> connection) throws Exception {
        Guard<byte[]> guard = guard(client);
        for (int id = 0; id < ROWS; id++) {
            guard.get(id, any -> ROW);
        }
        Guard.Loader<Integer, byte[]> never = id -> {
            throw new AssertionError("a row was not cached");
        };
        var commands = connection.sync();
        var async = connection.async();
        System.out.println("callers,hits per second,GETs per second,share");
        for (int round = 0; round < ROUNDS; round++) {
            double hits = threads(id -> guard.get(id, never));
            double gets = threads(id -> commands.get(Keys.ascii("{rows}:" + id)));
            System.out.printf("threads,%.0f,%.0f,%.2f%n", hits, gets, hits / gets);
        }
        for (int round = 0; round < ROUNDS; round++) {
            double hits = futures(id -> guard.getAsync(id, any -> CompletableFuture.failedFuture(new AssertionError())));
            double gets = futures(id -> async.get(Keys.ascii("{rows}:" + id)).toCompletableFuture());
            System.out.printf("futures,%.0f,%.0f,%.2f%n", hits, gets, hits / gets);
        }
    }

    private static double threads(IntConsumer look) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(CALLERS);
        List<Future<?>> running = new ArrayList<>();
        long begun = System.nanoTime();
        for (int caller = 0; caller < CALLERS; caller++) {
            running.add(executor.submit(() -> {
                for (int lookup = 0; lookup < lookups / CALLERS; lookup++) {
                    look.accept(ThreadLocalRandom.current().nextInt(ROWS));
                }
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        executor.shutdown();
        return lookups / ((System.nanoTime() - begun) / 1e9);
    }

    private static double futures(IntFunction<CompletableFuture<?>> look) throws Exception {
        CountDownLatch left = new CountDownLatch(CALLERS);
        long begun = System.nanoTime();
        for (int caller = 0; caller < CALLERS; caller++) {
            next(look, lookups / CALLERS, left);
        }
        left.await();
        return lookups / ((System.nanoTime() - begun) / 1e9);
    }

    private static void next(IntFunction<CompletableFuture<?>> look, int lookups, CountDownLatch left) {
        if (lookups == 0) {
            left.countDown();
            return;
        }
        look.apply(ThreadLocalRandom.current().nextInt(ROWS)).whenComplete((row, error) -> {
            if (error != null) {
                error.printStackTrace();
            }
            next(look, lookups - 1, left);
        });
    }

    /** 10,000 calls want one row, whose load takes 100 ms. */
    private static void oneRow(Bloomgate client) {
        Guard<byte[]> guard = guard(client);
        AtomicInteger loads = new AtomicInteger();
        long begun = System.nanoTime();
        List<CompletableFuture<?>> calls = new ArrayList<>();
        for (int call = 0; call < 10_000; call++) {
            calls.add(guard.getAsync(ROWS, id -> {
                loads.incrementAndGet();
                return new CompletableFuture<byte[]>().completeOnTimeout(ROW, 100, TimeUnit.MILLISECONDS);
            }));
        }
        CompletableFuture.allOf(calls.toArray(CompletableFuture[]::new)).join();
        System.out.printf("10,000 gets of one row that takes 100 ms to load: %d ms, %d load, shared %d%n",
                (System.nanoTime() - begun) / 1_000_000, loads.get(), guard.counts().get(Event.SHARED));
    }

    /** 64 threads want one row, whose load fails after 100 ms. */
    private static void failingLoad(Bloomgate client) throws Exception {
        Guard<byte[]> guard = guard(client);
        AtomicInteger loads = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        long begun = System.nanoTime();
        for (int caller = 0; caller < CALLERS; caller++) {
            threads.add(new Thread(() -> {
                try {
                    guard.get(ROWS + 1, id -> {
                        loads.incrementAndGet();
                        Thread.sleep(100);
                        throw new IllegalStateException("the database is down");
                    });
                } catch (IllegalStateException error) {
                    failed.incrementAndGet();
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.printf("a load that fails after 100 ms, 64 callers: %d ms, %d load(s), %d callers got its error%n",
                (System.nanoTime() - begun) / 1_000_000, loads.get(), failed.get());
    }

    /** 64 threads make 64,000 calls while the server accepts connections and answers nothing. */
    private static void hungServer() throws Exception {
        try (ServerSocket hung = new ServerSocket(0, 1000, InetAddress.getLoopbackAddress())) {
            Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + hung.getLocalPort());
            Guard<byte[]> guard = guard(client);
            AtomicInteger loads = new AtomicInteger();
            long begun = System.nanoTime();
            threads(id -> guard.get(id, any -> {
                loads.incrementAndGet();
                return ROW;
            }));
            System.out.printf("a server that hangs, %d gets of 64 callers: %d ms, %d rows from the database%n",
                    lookups, (System.nanoTime() - begun) / 1_000_000, loads.get());
            client.close();
        }
    }
}
