package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.bloomgate.Bloomgate;
import io.bloomgate.BloomgateException;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Guard;
import io.bloomgate.Servers;
import java.io.Serializable;
import java.io.InputStream;
import java.io.IOException;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.math.BigInteger;
import java.time.Duration;
import java.time.LocalDate;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.cache.Cache.ValueRetrievalException;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheConfig;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.CachePut;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.interceptor.KeyGenerator;
import org.springframework.cache.interceptor.SimpleKey;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.transaction.TransactionSystemException;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class GuardCacheTest {
    private final Servers servers = new Servers();
    private final Database database = new Database();
    private final TransactionTemplate transaction = new TransactionTemplate(database);
    private Servers.Server server;
    private Bloomgate client;
    private Cache guarded;
    private LettuceConnectionFactory factory;
    private RedisCacheManager plain;

    @BeforeAll
    void start() {
        server = servers.start();
        factory = new LettuceConnectionFactory("127.0.0.1", server.port());
        factory.start();
    }

    @AfterAll
    void end() throws Exception {
        factory.destroy();
        servers.close();
    }

    @BeforeEach
    void fill() {
        server.commands().flushall();
        client = Bloomgate.connect("redis://127.0.0.1:" + server.port());
        Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        guarded = new GuardCacheManager(client).getCache("users");
        plain = RedisCacheManager.create(Boot.blocking(factory));
        database.table.clear();
        database.save(17, "old");
    }

    @AfterEach
    void close() {
        client.close();
    }

    private String read(Cache cache) {
        return cache.get(17L, () -> database.find(17));
    }

    /**
     * A value is evicted before the commit, and a reader caches it again before the commit. Returns the value that readers get afterwards.
     */
    private String evictedBeforeTheCommit(Cache cache) {
        read(cache);
        transaction.executeWithoutResult(status -> {
            database.save(17, "new");
            cache.evict(17L);
            assertThat(CompletableFuture.supplyAsync(() -> read(cache)).join()).isEqualTo("old");
        });
        return read(cache);
    }

    /** A reader begins before the commit, and caches its row after the eviction. Returns the value that readers get afterwards. */
    private String cachedAfterTheEviction(Cache cache, boolean isInTransaction) throws Exception {
        CompletableFuture<Void> isReading = new CompletableFuture<>();
        CompletableFuture<Void> isEvicted = new CompletableFuture<>();
        CompletableFuture<String> reader = CompletableFuture.supplyAsync(() -> cache.get(17L, () -> {
            String row = database.find(17);
            isReading.complete(null);
            isEvicted.get(60, TimeUnit.SECONDS);
            return row;
        }));
        isReading.get(60, TimeUnit.SECONDS);
        if (isInTransaction) {
            transaction.executeWithoutResult(status -> {
                database.save(17, "new");
                cache.evict(17L);
            });
        } else {
            database.save(17, "new");
            cache.evict(17L);
        }
        isEvicted.complete(null);
        assertThat(reader.get(60, TimeUnit.SECONDS)).isEqualTo("old");
        return read(cache);
    }

    @Test
    void anEvictionBeforeTheCommitLosesNoChange() {
        assertThat(evictedBeforeTheCommit(guarded)).isEqualTo("new");
        database.save(17, "old");
        assertThat(evictedBeforeTheCommit(plain.getCache("users"))).isEqualTo("old");
    }

    @Test
    void aReaderThatBeganBeforeTheCommitCachesNothingOld() throws Exception {
        assertThat(cachedAfterTheEviction(guarded, true)).isEqualTo("new");
        database.save(17, "old");
        Cache aware = RedisCacheManager.builder(Boot.blocking(factory)).transactionAware().build().getCache("users");
        assertThat(cachedAfterTheEviction(aware, true)).isEqualTo("old");
    }

    @Test
    void withoutATransactionAReaderInBetweenCachesNothingOld() throws Exception {
        assertThat(cachedAfterTheEviction(guarded, false)).isEqualTo("new");
        database.save(17, "old");
        assertThat(cachedAfterTheEviction(plain.getCache("users"), false)).isEqualTo("old");
    }

    @Test
    void aRolledBackChangeIsConfirmedToo() {
        assertThat(read(guarded)).isEqualTo("old");
        transaction.executeWithoutResult(status -> {
            database.save(17, "new");
            guarded.evict(17L);
            status.setRollbackOnly();
        });
        assertThat(read(guarded)).isEqualTo("old");
        assertThat(server.commands().exists("{users}:17")).isEqualTo(1);
    }

    @Test
    void aRefusedAnnouncementRollsBack() {
        server.commands().del("users");
        server.commands().set("users", "no filter");
        assertThatThrownBy(() -> transaction.executeWithoutResult(status -> {
            database.save(17, "new");
            guarded.evict(17L);
        })).hasMessageContaining("WRONGTYPE");
        assertThat(database.find(17)).isEqualTo("old");
    }

    @Test
    void aFailedAnnouncementRollsBackAlthoughItsErrorIsHandled() {
        server.commands().del("users");
        server.commands().set("users", "no filter");
        assertThatThrownBy(() -> transaction.executeWithoutResult(status -> {
            database.save(17, "new");
            assertThatThrownBy(() -> guarded.evict(17L)).hasMessageContaining("WRONGTYPE");
        })).hasMessageContaining("WRONGTYPE");
        assertThat(database.find(17)).isEqualTo("old");
    }

    private long calls(String command) {
        return server.commands().info("commandstats").lines().filter(line -> line.startsWith("cmdstat_" + command + ":"))
                .mapToLong(line -> Long.parseLong(line.replaceAll(".*:calls=(\\d+),.*", "$1"))).sum();
    }

    @Test
    void aTransactionOfUnknownOutcomeIsConfirmedTwice() {
        GuardCache cache = new GuardCache("users", Guard.builder(client, "users",
                GuardCacheManager.serialization(getClass().getClassLoader())).lease(Duration.ofMillis(300)).build());
        server.commands().configResetstat();
        database.isOutcomeUnknown = true;
        try {
            assertThatThrownBy(() -> transaction.executeWithoutResult(status -> cache.evict(17L)))
                    .isInstanceOf(TransactionSystemException.class);
        } finally {
            database.isOutcomeUnknown = false;
        }
        cache.awaitConfirmations();
        // The announcement and two confirmations.
        assertThat(calls("bf.changed")).isEqualTo(3);
    }

    @Test
    void theChangesOfATransactionAreConfirmedTogetherAndLater() {
        GuardCache cache = (GuardCache) guarded;
        server.commands().configResetstat();
        transaction.executeWithoutResult(status -> {
            for (long id = 0; id < 20; id++) {
                cache.evict(id);
                cache.evict(Long.toString(id));
            }
            server.commands().clientPause(5000);
        });
        assertThat(cache.areChangesConfirmed()).isFalse();
        cache.awaitConfirmations();
        assertThat(calls("bf.changed")).isEqualTo(20);
        assertThat(calls("bf.mchanged")).isPositive();
    }

    @Test
    void anEvictionBeforeTheChangeNeedsATransaction() {
        assertThatThrownBy(() -> guarded.evictIfPresent(17L)).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(guarded::invalidate).isInstanceOf(IllegalStateException.class);
        boolean isEvicted = transaction.execute(status -> guarded.evictIfPresent(17L));
        assertThat(isEvicted).isTrue();
    }

    @Test
    void nothingIsStoredWithoutALease() {
        guarded.put(17L, "another");
        assertThat(read(guarded)).isEqualTo("old");
        assertThat(guarded.putIfAbsent(17L, "another").get()).isEqualTo("old");
        assertThat(guarded.get(17L).get()).isEqualTo("old");
        assertThat(guarded.retrieve(17L).join()).isEqualTo("old");
        guarded.evict(17L);
        assertThat(guarded.get(17L)).isNull();
        assertThat(guarded.get(17L, String.class)).isNull();
        assertThat(guarded.retrieve(17L)).isNull();
        assertThat(guarded.putIfAbsent(17L, "another")).isNull();
        assertThat(read(guarded)).isEqualTo("old");
    }

    private GuardCache trusted() {
        return new GuardCache("users", Guard.builder(client, "users",
                GuardCacheManager.serialization(GuardCacheManager.class.getClassLoader())).build(), Trust.FILTER);
    }

    @Test
    void anAbsentIdReachesNoLoaderIfTheFilterIsTrusted() {
        String found = trusted().get(18L, () -> {
            throw new AssertionError("the loader was called");
        });
        assertThat(found).isNull();
    }

    @Test
    void contradictionsAreReturnedAndCounted() {
        GuardCache cache = (GuardCache) guarded;
        String none = cache.get(19L, () -> null);
        List<String> empty = cache.get(19L, () -> List.of());
        assertThat(none).isNull();
        assertThat(empty).isEmpty();
        assertThat(cache.contradictions()).isZero();
        assertThat(cache.get("Eve", () -> "a row with another key")).isEqualTo("a row with another key");
        assertThat(cache.retrieve("Eve", () -> CompletableFuture.completedFuture("another")).join()).isEqualTo("another");
        assertThat(cache.contradictions()).isEqualTo(2);
    }

    @Test
    void aLoadersExceptionIsTheCauseOfSpringsException() {
        assertThatThrownBy(() -> guarded.get(17L, () -> {
            throw new java.io.IOException("down");
        })).isInstanceOf(ValueRetrievalException.class).hasRootCauseMessage("down");
    }

    @Test
    void futuresAreReadThroughTheGuard() {
        AtomicInteger loads = new AtomicInteger();
        for (int time = 0; time < 2; time++) {
            assertThat(guarded.retrieve(17L, () -> CompletableFuture.supplyAsync(() -> {
                loads.incrementAndGet();
                return database.find(17);
            })).join()).isEqualTo("old");
        }
        assertThat(loads).hasValue(1);
    }

    @Test
    void clearDeletesTheRowsAndKeepsTheFilter() {
        assertThat(read(guarded)).isEqualTo("old");
        guarded.clear();
        assertThat(server.commands().exists("{users}:17")).isEqualTo(0);
        assertThat(new Filter(client, "users").contains(17L)).isTrue();
        assertThat(read(guarded)).isEqualTo("old");
        transaction.executeWithoutResult(status -> {
            guarded.clear();
            assertThat(server.commands().exists("{users}:17")).isEqualTo(1);
        });
        assertThat(server.commands().exists("{users}:17")).isEqualTo(0);
    }

    enum Colour { RED }

    record Place(int x, int y) {}

    @Test
    void keysOfManyTypesAreIds() {
        List<Object> keys = List.of("text", 17, (short) 3, new BigInteger("18446744073709551616"), new byte[] {0}, 1.5, true, 'c', Colour.RED,
                new Place(1, 2), LocalDate.EPOCH, new Date(1), new Date(2), new UUID(1, 2), SimpleKey.EMPTY, new SimpleKey(1, 2),
                new SimpleKey(2, 1), Locale.ROOT);
        for (Object key : keys) {
            guarded.evict(key);
            assertThat(guarded.get(key, () -> "row of " + key)).isEqualTo("row of " + key);
        }
        for (Object key : keys) {
            assertThat(guarded.get(key, () -> "loaded again")).isEqualTo("row of " + key);
        }
        assertThatThrownBy(() -> guarded.get(new Object(), () -> "row")).isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void differentArgumentsAreDifferentIds() {
        List<SimpleKey> keys = List.of(new SimpleKey("a, b", "c"), new SimpleKey("a", "b, c"), new SimpleKey("a:b", "c"), new SimpleKey("a", "b:c"),
                new SimpleKey("a\\", "b:c"), new SimpleKey("a\\:b", "c"), new SimpleKey("a", null), new SimpleKey("a", "null"),
                new SimpleKey("a", "\\N"), new SimpleKey("a", new Date(1)), new SimpleKey("a", new Date(2)), new SimpleKey("a", "b", "c"));
        for (SimpleKey key : keys) {
            guarded.evict(key);
            guarded.get(key, () -> keys.indexOf(key));
        }
        for (SimpleKey key : keys) {
            assertThat((int) guarded.get(key, () -> -1)).isEqualTo(keys.indexOf(key));
        }
    }

    /** A service whose methods have arguments other than a single id. */
    @CacheConfig(cacheNames = "users")
    static class Keyed {
        private static final AtomicInteger CALLS = new AtomicInteger();

        @Cacheable
        public String none() {
            return "row " + CALLS.incrementAndGet();
        }

        @Cacheable
        public String two(long id, String language) {
            return "row " + CALLS.incrementAndGet();
        }

        @Cacheable
        public String constant(Colour colour) {
            return "row " + CALLS.incrementAndGet();
        }

        @Cacheable
        public String day(LocalDate day) {
            return "row " + CALLS.incrementAndGet();
        }

        @Cacheable
        public String composed(Place place) {
            return "row " + CALLS.incrementAndGet();
        }
    }

    @Test
    void theArgumentsOfAMethodAreAnId() {
        new Filter(client, "users").addAll(List.of("SimpleKey []", "17:en", "RED", "1970-01-01", "Place[x=1, y=2]"));
        Keyed.CALLS.set(0);
        with(Keyed.class, trusted(), keyed -> {
            for (int time = 0; time < 2; time++) {
                assertThat(keyed.none()).isEqualTo("row 1");
                assertThat(keyed.two(17, "en")).isEqualTo("row 2");
                assertThat(keyed.constant(Colour.RED)).isEqualTo("row 3");
                assertThat(keyed.day(LocalDate.EPOCH)).isEqualTo("row 4");
                assertThat(keyed.composed(new Place(1, 2))).isEqualTo("row 5");
            }
        });
    }

    /** A service whose methods' callers may not expect null. */
    static class Typed {
        @Cacheable("users")
        public Optional<String> optional(long id) {
            throw new AssertionError("called");
        }

        @Cacheable("users")
        public List<String> list(long id) {
            throw new AssertionError("called");
        }

        @Cacheable("users")
        public Map<String, String> map(long id) {
            throw new AssertionError("called");
        }

        @Nullable
        @Cacheable("users")
        public String nullable(long id) {
            throw new AssertionError("called");
        }

        @Cacheable("users")
        public int number(long id) {
            return 42;
        }

        @Cacheable("users")
        public String orElseThrow(long id) {
            throw new NoSuchElementException("no user " + id);
        }
    }

    private <T> void with(Class<T> type, GuardCache cache, Consumer<T> test) {
        try (var context = new AnnotationConfigApplicationContext()) {
            context.register(Application.class, type);
            context.registerBean(Database.class, () -> database);
            context.registerBean(CacheManager.class, () -> new GuardCacheManager(List.of(cache), null));
            context.refresh();
            test.accept(context.getBean(type));
        }
    }

    @Test
    void anAbsentRowIsWhatTheMethodMayReturn() {
        with(Typed.class, trusted(), typed -> {
            assertThat(typed.optional(18)).isEmpty();
            assertThat(typed.list(18)).isEmpty();
            assertThat(typed.map(18)).isEmpty();
            assertThat(typed.nullable(18)).isNull();
            assertThat(typed.number(18)).isEqualTo(42);
            assertThatThrownBy(() -> typed.orElseThrow(18)).isInstanceOf(NoSuchElementException.class).hasMessage("no user 18");
        });
    }

    /** A service whose methods return futures and reactive types. */
    @CacheConfig(cacheNames = "users", keyGenerator = "keys")
    static class Later {
        private static final Set<String> CALLS = ConcurrentHashMap.newKeySet();

        /** A type annotation, like JSpecify's. */
        @Target(ElementType.TYPE_USE)
        @Retention(RetentionPolicy.RUNTIME)
        @interface Nullable {}

        private static <T> CompletableFuture<T> load(String method, long id, T row) {
            assertThat(CALLS.add(method + id)).isTrue();
            return CompletableFuture.supplyAsync(() -> row);
        }

        @Cacheable
        public CompletableFuture<Optional<String>> optional(long id) {
            return load("optional", id, Optional.of("Ann"));
        }

        @Cacheable
        public CompletableFuture<List<String>> list(long id) {
            return load("list", id, List.of("Ann"));
        }

        @Cacheable
        public CompletionStage<Set<String>> stage(long id) {
            return load("stage", id, Set.of("Ann"));
        }

        @Cacheable
        public CompletableFuture<@Nullable String> nullable(long id) {
            return load("nullable", id, "Ann");
        }

        @Cacheable
        public CompletableFuture<String> any(long id) {
            return load("any", id, "Ann");
        }

        @Cacheable
        public Mono<String> mono(long id) {
            return Mono.fromFuture(load("mono", id, "Ann"));
        }

        @Cacheable
        public Flux<String> flux(long id) {
            return Flux.fromIterable(load("flux", id, List.of("Ann", "Eve")).join());
        }
    }

    @Test
    void anAbsentRowIsWhatTheFutureMayReturn() {
        Filter filter = new Filter(client, "users");
        List.of("optional", "list", "stage", "nullable", "any", "mono", "flux").forEach(method -> filter.add(method + 17));
        Later.CALLS.clear();
        with(Later.class, trusted(), later -> {
            for (int time = 0; time < 2; time++) {
                assertThat(later.optional(17).join()).contains("Ann");
                assertThat(later.list(17).join()).containsExactly("Ann");
                assertThat(later.stage(17).toCompletableFuture().join()).containsExactly("Ann");
                assertThat(later.nullable(17).join()).isEqualTo("Ann");
                assertThat(later.any(17).join()).isEqualTo("Ann");
                assertThat(later.mono(17).block()).isEqualTo("Ann");
                assertThat(later.flux(17).collectList().block()).containsExactly("Ann", "Eve");
            }
            assertThat(later.optional(18).join()).isEmpty();
            assertThat(later.list(18).join()).isEmpty();
            assertThat(later.stage(18).toCompletableFuture().join()).isEmpty();
            assertThat(later.nullable(18).join()).isNull();
            assertThat(later.mono(18).block()).isNull();
            assertThat(later.flux(18).collectList().block()).isEmpty();
            assertThat(Later.CALLS).noneMatch(call -> call.endsWith("18"));
            assertThat(later.any(18).join()).isEqualTo("Ann");
        });
    }

    @Test
    void aFutureOfAnObservedAbsenceIsLoadedOutsideTheThreadsOfLettuce() {
        String thread = guarded.retrieve(18L, () -> CompletableFuture.completedFuture(Thread.currentThread().getName())).join();
        assertThat(thread).isEqualTo("bloomgate");
    }

    /** A service that was written for another cache. */
    static class Users {
        final AtomicInteger loads = new AtomicInteger();
        private final Database database;

        Users(Database database) {
            this.database = database;
        }

        @Cacheable(cacheNames = "users", unless = "#result == null")
        public String find(long id) {
            loads.incrementAndGet();
            return database.find(id);
        }

        @Cacheable(cacheNames = "users", condition = "#p0 != 17")
        public String findOthers(long id) {
            loads.incrementAndGet();
            return database.find(id);
        }

        @Transactional
        @CacheEvict(cacheNames = "users", key = "#p0")
        public void save(long id, String name) {
            database.save(id, name);
        }

        @CachePut(cacheNames = "users", key = "#p0")
        public String put(long id, String name) {
            database.save(id, name);
            return name;
        }

        @CacheEvict(cacheNames = "users", allEntries = true)
        public void forgetAll() {}

        @CacheEvict(cacheNames = "users", key = "#p0", beforeInvocation = true)
        public void saveAfterwards(long id, String name) {
            database.save(id, name);
        }
    }

    @Configuration
    @EnableCaching
    @EnableTransactionManagement
    static class Application {
        @Bean
        static GuardedOperations guardedOperations() {
            return new GuardedOperations();
        }

        @Bean
        KeyGenerator keys() {
            return (target, method, arguments) -> method.getName() + arguments[0];
        }
    }

    @Test
    void anExistingServiceIsGuardedWithoutAChange() {
        try (var context = new AnnotationConfigApplicationContext()) {
            context.register(Application.class);
            context.registerBean(Database.class, () -> database);
            context.registerBean(CacheManager.class, () -> new GuardCacheManager(client));
            context.registerBean(Users.class, () -> new Users(database));
            context.refresh();
            Users users = context.getBean(Users.class);

            assertThat(users.find(17)).isEqualTo("old");
            assertThat(users.find(17)).isEqualTo("old");
            assertThat(loads(users)).isEqualTo(1);
            assertThat(users.find(18)).isNull();
            assertThat(loads(users)).isEqualTo(2);
            users.save(17, "new");
            assertThat(users.find(17)).isEqualTo("new");
            users.put(17, "newer");
            assertThat(users.find(17)).isEqualTo("newer");
            users.save(18, "Eve");
            assertThat(users.find(18)).isEqualTo("Eve");
            assertThat(users.findOthers(17)).isEqualTo("newer");
            assertThat(users.findOthers(17)).isEqualTo("newer");
            assertThat(loads(users)).isEqualTo(7);
            users.forgetAll();
            assertThat(users.find(17)).isEqualTo("newer");
            assertThat(loads(users)).isEqualTo(8);
            users.saveAfterwards(17, "newest");
            assertThat(users.find(17)).isEqualTo("newest");
        }
    }

    private static int loads(Users users) {
        return ((Users) org.springframework.aop.framework.AopProxyUtils.getSingletonTarget(users)).loads.get();
    }

    public record Person(String name) implements Serializable {}

    /** A class loader with its own class Person, as each restart of a program with devtools has one. */
    private static final class Restart extends ClassLoader {
        Restart() {
            super(GuardCacheTest.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean isResolved) throws ClassNotFoundException {
            if (!name.equals(Person.class.getName()) || findLoadedClass(name) != null) {
                return super.loadClass(name, isResolved);
            }
            try (InputStream file = getParent().getResourceAsStream(name.replace('.', '/') + ".class")) {
                byte[] code = file.readAllBytes();
                return defineClass(name, code, 0, code.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    @Test
    void rowsHaveTheClassesOfTheProgramThatWasRestarted() throws Exception {
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        try {
            for (int restart = 0; restart < 2; restart++) {
                ClassLoader loader = new Restart();
                Class<?> person = loader.loadClass(Person.class.getName());
                Thread.currentThread().setContextClassLoader(loader);
                try (Bloomgate own = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
                    CacheManager manager = new GuardCacheManager(own);
                    Thread.currentThread().setContextClassLoader(before);
                    Object row = manager.getCache("users").get(17L, () -> person.getConstructor(String.class).newInstance("Ann"));
                    assertThat(row.getClass().getClassLoader()).isSameAs(loader);
                }
            }
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
    }

    @Test
    void withoutAServerWritersFailAndReadersQueryTheDatabase() {
        try (Bloomgate away = Bloomgate.connect("redis://127.0.0.1:1")) {
            Cache cache = new GuardCacheManager(away).getCache("users");
            assertThat(read(cache)).isEqualTo("old");
            assertThatThrownBy(() -> transaction.executeWithoutResult(status -> cache.evict(17L)))
                    .isInstanceOf(BloomgateException.Disconnected.class);
        }
    }
}
