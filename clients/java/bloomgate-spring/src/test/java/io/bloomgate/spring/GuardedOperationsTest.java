package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Guard;
import io.bloomgate.Servers;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.AnnotationCacheOperationSource;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.CachePut;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.Caching;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.concurrent.ConcurrentMapCacheManager;
import org.springframework.cache.interceptor.CacheOperationSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Annotations of methods that use the guarded cache users, and of other methods. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class GuardedOperationsTest {
    private final Servers servers = new Servers();
    private Servers.Server server;
    private Bloomgate client;
    private GuardCache cache;

    @BeforeAll
    void start() {
        server = servers.start();
        client = Bloomgate.connect("redis://127.0.0.1:" + server.port());
    }

    @BeforeEach
    void fill() {
        server.commands().flushall();
        server.commands().configResetstat();
        Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
    }

    @AfterAll
    void end() throws IOException {
        client.close();
        servers.close();
    }

    /** Methods that use no guarded cache. */
    static class Others {
        @Cacheable(cacheNames = "others", unless = "#result.isEmpty()")
        public String unless(long id) {
            return "";
        }

        @Cacheable({"others", "more"})
        public String two(long id) {
            return "";
        }

        @Caching(cacheable = @Cacheable("others"), evict = @CacheEvict("more"), put = @CachePut("most"))
        public String several(long id) {
            return "";
        }

        @Cacheable(cacheNames = "users", cacheManager = "own")
        public String managed(long id) {
            return "";
        }

        @CacheEvict(cacheNames = "users", cacheResolver = "own")
        public void resolved(long id) {}
    }

    @Test
    void annotationsOfOtherCachesAreUnchanged() {
        CacheOperationSource plain = new AnnotationCacheOperationSource();
        try (Logged log = new Logged()) {
            CacheOperationSource adapted = (CacheOperationSource) new GuardedOperations("users"::equals)
                    .postProcessAfterInitialization(plain, "source");
            for (Method method : Others.class.getDeclaredMethods()) {
                assertThat(adapted.getCacheOperations(method, Others.class))
                        .containsExactlyInAnyOrderElementsOf(plain.getCacheOperations(method, Others.class));
            }
            assertThat(log.lines()).hasSize(2).allMatch(line -> line.startsWith("INFO ")).anyMatch(line -> line.contains("managed"))
                    .anyMatch(line -> line.contains("resolved"));
        }
    }

    /** A service that counts the calls of each method. */
    static class Users {
        private static final AtomicInteger CALLS = new AtomicInteger();

        private static String row() {
            return "row " + CALLS.incrementAndGet();
        }

        @Cacheable("users")
        public String find(long id) {
            return row();
        }

        @Cacheable("others")
        public String findOther(long id) {
            return row();
        }

        @Cacheable(cacheNames = "users", sync = true, unless = "#result == null")
        public String syncUnlessNull(long id) {
            return row();
        }

        @Cacheable(cacheNames = "users", unless = "#result.isEmpty()")
        public String unless(long id) {
            return row();
        }

        @Cacheable(cacheNames = "users", sync = true, unless = "#result.isEmpty()")
        public String syncUnless(long id) {
            return row();
        }

        @Cacheable(cacheNames = "users", unless = "#result.isEmpty()")
        public CompletableFuture<String> unlessLater(long id) {
            return CompletableFuture.supplyAsync(Users::row);
        }

        @Cacheable({"users", "others"})
        public String twoCaches(long id) {
            return row();
        }

        @Caching(cacheable = @Cacheable("users"), evict = @CacheEvict("others"))
        public String readAndEvict(long id) {
            return row();
        }

        @Caching(evict = {@CacheEvict("users"), @CacheEvict("others")})
        public void evictBoth(long id) {}

        @CacheEvict({"users", "others"})
        public void evictTwo(long id) {}

        @CachePut({"users", "others"})
        public String putTwo(long id) {
            return row();
        }

        @CacheEvict("users")
        public Mono<String> evictReactively(long id) {
            return Mono.fromSupplier(Users::row).subscribeOn(Schedulers.parallel());
        }

        @CacheEvict({"users", "others"})
        public CompletableFuture<String> evictLater(long id, CompletableFuture<Void> start) {
            return start.thenApply(any -> row());
        }
    }

    @Configuration
    @EnableCaching
    static class Application {
        @Bean
        static GuardedOperations guardedOperations() {
            return new GuardedOperations("users"::equals);
        }

        @Bean
        Users users() {
            return new Users();
        }
    }

    private void with(BiConsumer<Users, List<String>> test) {
        try (Logged log = new Logged(); var context = new AnnotationConfigApplicationContext()) {
            cache = new GuardCache("users", Guard.builder(client, "users",
                    GuardCacheManager.serialization(getClass().getClassLoader())).build());
            context.registerBean(CacheManager.class, () -> new GuardCacheManager(List.of(cache), new ConcurrentMapCacheManager()));
            context.register(Application.class);
            context.refresh();
            Users.CALLS.set(0);
            test.accept(context.getBean(Users.class), log.lines());
        }
    }

    @Test
    void theStartLogsTheMethodsThatCacheNothing() {
        with((users, log) -> {
            assertThat(log).hasSize(5).allMatch(line -> line.startsWith("WARN @Cacheable of public ") && line.contains(" caches no rows "));
            assertThat(log).filteredOn(line -> line.contains("nless(") || line.contains("unlessLater("))
                    .hasSize(3).allMatch(line -> line.contains("it has unless = \"#result.isEmpty()\""));
            assertThat(log).filteredOn(line -> line.contains("twoCaches(")).singleElement().asString().contains("it names several caches");
            assertThat(log).filteredOn(line -> line.contains("readAndEvict(")).singleElement().asString()
                    .contains("it is not the only annotation for caches");
        });
    }

    @Test
    void methodsThatCacheNothingReturnCachedRows() {
        with((users, log) -> {
            assertThat(users.unless(17)).isEqualTo("row 1");
            assertThat(users.syncUnless(17)).isEqualTo("row 2");
            assertThat(users.unlessLater(17).join()).isEqualTo("row 3");
            assertThat(users.readAndEvict(17)).isEqualTo("row 4");
            assertThat(calls("bf.changed") + calls("bf.mchanged")).isZero();
            assertThat(users.syncUnlessNull(17)).isEqualTo("row 5");
            assertThat(users.find(17)).isEqualTo("row 5");
            assertThat(users.unless(17)).isEqualTo("row 5");
            assertThat(users.syncUnless(17)).isEqualTo("row 5");
            assertThat(users.unlessLater(17).join()).isEqualTo("row 5");
            assertThat(users.readAndEvict(17)).isEqualTo("row 5");
            assertThat(users.twoCaches(17)).isEqualTo("row 5");
        });
    }

    private long calls(String command) {
        return server.commands().info("commandstats").lines().filter(line -> line.startsWith("cmdstat_" + command + ":"))
                .mapToLong(line -> Long.parseLong(line.replaceAll(".*:calls=(\\d+),.*", "$1"))).sum();
    }

    @Test
    void theOtherCachesOfAnAnnotationAreUsed() {
        with((users, log) -> {
            assertThat(users.twoCaches(17)).isEqualTo("row 1");
            assertThat(users.twoCaches(17)).isEqualTo("row 1");
            assertThat(users.findOther(17)).isEqualTo("row 1");
            assertThat(users.putTwo(17)).isEqualTo("row 2");
            assertThat(users.findOther(17)).isEqualTo("row 2");
            assertThat(users.find(17)).isEqualTo("row 3");
            users.evictTwo(17);
            assertThat(users.findOther(17)).isEqualTo("row 4");
            assertThat(users.find(17)).isEqualTo("row 5");
            users.evictBoth(17);
            assertThat(users.findOther(17)).isEqualTo("row 6");
            assertThat(users.find(17)).isEqualTo("row 7");
        });
    }

    @Test
    void aThreadOfReactorDoesNotWaitForTheConfirmation() {
        with((users, log) -> {
            server.commands().clientPause(3000);
            assertThat(users.evictReactively(17).block()).isEqualTo("row 1");
            assertThat(cache.areChangesConfirmed()).isFalse();
            cache.awaitConfirmations();
            assertThat(calls("bf.changed") + calls("bf.mchanged")).isPositive();
        });
    }

    @Test
    void aChangeInAFutureIsConfirmedOnce() {
        with((users, log) -> {
            assertThat(users.find(17)).isEqualTo("row 1");
            server.commands().configResetstat();
            CompletableFuture<Void> start = new CompletableFuture<>();
            CompletableFuture<String> changed = users.evictLater(17, start);
            start.complete(null);
            assertThat(changed.join()).isEqualTo("row 2");
            Servers.eventually("the row is cached again", () ->
                    users.find(17) != null && server.commands().exists("{users}:17") == 1);
            // The announcement and the confirmation.
            assertThat(calls("bf.changed") + calls("bf.mchanged")).isEqualTo(2);
        });
    }
}
