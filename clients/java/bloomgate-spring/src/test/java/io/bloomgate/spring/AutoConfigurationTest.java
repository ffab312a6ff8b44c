package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.bloomgate.Bloomgate;
import io.bloomgate.BloomgateException;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.CachingConfigurer;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.concurrent.ConcurrentMapCache;
import org.springframework.cache.concurrent.ConcurrentMapCacheManager;
import org.springframework.cache.interceptor.CacheResolver;
import org.springframework.cache.interceptor.SimpleCacheResolver;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class AutoConfigurationTest {
    private static final Class<?> SPRINGS_CACHES = Boot.type(
            "org.springframework.boot.autoconfigure.cache.CacheAutoConfiguration",
            "org.springframework.boot.cache.autoconfigure.CacheAutoConfiguration");

    private final Servers servers = new Servers();
    private Servers.Server server;
    private String uri;

    @BeforeAll
    void start() {
        server = servers.start();
        uri = "redis://127.0.0.1:" + server.port();
        try (Bloomgate client = Bloomgate.connect(uri)) {
            Filter.fill(client, "people", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        }
    }

    @AfterAll
    void end() throws IOException {
        servers.close();
    }

    static class Users {
        final AtomicInteger loads = new AtomicInteger();

        @Nullable
        @Cacheable("users")
        public String find(long id) {
            return "Ann" + loads.incrementAndGet();
        }

        @CacheEvict(cacheNames = {"users", "others"}, allEntries = true)
        public void forget() {}

        @Cacheable(cacheNames = "others", unless = "#result.isEmpty()")
        public String other(String key, int part) {
            return "other" + loads.incrementAndGet();
        }
    }

    @Configuration
    @EnableCaching
    static class Application {}

    private final ApplicationContextRunner runner = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class, BloomgateActuatorAutoConfiguration.class))
            .withUserConfiguration(Application.class)
            .withBean(Users.class)
            .withPropertyValues("bloomgate.cache.ttl=1h", "bloomgate.caches.users.filter=people", "bloomgate.cache.trust=filter");

    @Test
    void theSettingsGuardAnExistingService() {
        runner.withPropertyValues("bloomgate.uri=" + uri).withBean(MeterRegistry.class, SimpleMeterRegistry::new).run(context -> {
            Users users = context.getBean(Users.class);
            assertThat(users.find(17)).isEqualTo("Ann1");
            assertThat(users.find(17)).isEqualTo("Ann1");
            assertThat(users.find(18)).isNull();
            assertThat(server.commands().pttl("{people}~users:17")).isBetween(3_000_000L, 3_600_000L);
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertThat(registry.get("bloomgate.guard.events").tags("bloomgate.filter", "people", "bloomgate.event", "hit")
                    .functionCounter().count()).isEqualTo(1);
            assertThat(registry.get("bloomgate.guard.contradictions").tag("cache", "users").functionCounter().count()).isZero();
        });
        server.commands().del("{people}~users:17");
    }

    @Test
    void theConnectionFactoryOfSpringDataIsUsed() {
        runner.withBean(LettuceConnectionFactory.class, () -> new LettuceConnectionFactory("127.0.0.1", server.port())).run(context -> {
            assertThat(context.getBean(Users.class).find(17)).isEqualTo("Ann1");
            assertThat(context).hasSingleBean(GuardCacheManager.class);
        });
        server.commands().del("{people}~users:17");
    }

    @Test
    void theAddressComesBeforeTheConnectionFactoryOfSpringData() {
        runner.withBean(LettuceConnectionFactory.class, () -> new LettuceConnectionFactory("127.0.0.1", 1))
                .withPropertyValues("bloomgate.uri=" + uri).run(context -> context.getBean(Bloomgate.class).ping());
    }

    @Test
    void theOtherCachesComeFromTheDefaultManager() {
        ApplicationContextRunner withUri = runner.withPropertyValues("bloomgate.uri=" + uri);
        withUri.run(context -> assertThat(context.getBean(CacheManager.class).getCache("others")).isNull());
        withUri.withConfiguration(AutoConfigurations.of(SPRINGS_CACHES)).run(context -> checkOthers(context));
        withUri.withBean(CacheManager.class, ConcurrentMapCacheManager::new).run(context -> checkOthers(context));
        withUri.withBean("own", CacheManager.class, ConcurrentMapCacheManager::new, definition -> definition.setPrimary(true))
                .run(context -> checkOthers(context));
    }

    private void checkOthers(BeanFactory context) {
        CacheManager manager = context.getBean(CacheManager.class);
        assertThat(manager.getCache("users")).isInstanceOf(GuardCache.class);
        assertThat(manager.getCache("others")).isInstanceOf(ConcurrentMapCache.class);
        assertThat(manager.getCacheNames()).contains("users", "others");
        Users users = context.getBean(Users.class);
        assertThat(users.find(18)).isNull();
        assertThat(users.other("id", 1)).isEqualTo("other1");
        assertThat(users.other("id", 1)).isEqualTo("other1");
    }

    /** A program that configures the defaults of its annotations, as many do. */
    @Configuration
    @EnableCaching
    static class Configurer implements CachingConfigurer {
        @Bean
        @Override
        public CacheManager cacheManager() {
            return new ConcurrentMapCacheManager();
        }
    }

    /** A program that resolves its caches itself. */
    @Configuration
    @EnableCaching
    static class Resolver implements CachingConfigurer {
        @Override
        public CacheResolver cacheResolver() {
            return new SimpleCacheResolver(new ConcurrentMapCacheManager());
        }
    }

    @Test
    void annotationsAreGuardedAlthoughTheProgramSetsAnotherManager() {
        for (Class<?> program : List.of(Configurer.class, Resolver.class)) {
            new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class))
                    .withUserConfiguration(program).withBean(Users.class)
                    .withPropertyValues("bloomgate.uri=" + uri, "bloomgate.caches.users.filter=people").run(context -> {
                        Users users = context.getBean(Users.class);
                        assertThat(users.find(17)).isEqualTo("Ann1");
                        assertThat(users.find(17)).isEqualTo("Ann1");
                        assertThat(server.commands().exists("{people}~users:17")).isEqualTo(1);
                        context.getBean(CacheManager.class).getCache("users").evict(17L);
                        assertThat(users.find(17)).isEqualTo("Ann2");
                        assertThat(users.other("id", 1)).isEqualTo("other3");
                        assertThat(users.other("id", 1)).isEqualTo("other3");
                        users.forget();
                        assertThat(server.commands().exists("{people}~users:17")).isZero();
                        assertThat(users.other("id", 1)).isEqualTo("other4");
                    });
        }
    }

    private List<String> logged(ApplicationContextRunner program) {
        try (Logged log = new Logged()) {
            program.run(context -> assertThat(context).hasNotFailed());
            return log.lines();
        }
    }

    @Test
    void oneLogLineListsTheGuardedCachesOrTheReason() {
        ApplicationContextRunner withUri = runner.withPropertyValues("bloomgate.uri=" + uri);
        assertThat(logged(withUri)).containsExactly("INFO guards the caches [users], and there are no others");
        assertThat(logged(withUri.withBean("own", CacheManager.class, ConcurrentMapCacheManager::new)))
                .containsExactly("INFO guards the caches [users]; the others are those of own");
        ApplicationContextRunner unguarded = runner.withBean(CacheManager.class, ConcurrentMapCacheManager::new);
        assertThat(logged(unguarded)).containsExactly("WARN guards no cache: there is neither bloomgate.uri nor a LettuceConnectionFactory");
        RedisConnectionFactory another = (RedisConnectionFactory) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {RedisConnectionFactory.class}, (proxy, method, arguments) -> null);
        assertThat(logged(unguarded.withBean("redisConnectionFactory", RedisConnectionFactory.class, () -> another)))
                .singleElement().asString().endsWith(", and redisConnectionFactory is a " + another.getClass().getName());
    }

    @Test
    void withoutNamedCachesOrWithTheSwitchesNothingIsGuarded() {
        ApplicationContextRunner plain = new ApplicationContextRunner().withUserConfiguration(Application.class).withBean(Users.class)
                .withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class, SPRINGS_CACHES))
                .withPropertyValues("bloomgate.uri=" + uri);
        for (String[] settings : List.of(new String[] {"a=b"}, new String[] {"bloomgate.caches.users.filter=people", "spring.cache.type=none"},
                new String[] {"bloomgate.caches.users.filter=people", "bloomgate.enabled=false"})) {
            plain.withPropertyValues(settings).run(context -> {
                assertThat(context).hasSingleBean(CacheManager.class).doesNotHaveBean(GuardCacheManager.class);
                assertThat(context.getBean(Users.class).find(18)).isEqualTo("Ann1");
            });
        }
    }

    @Test
    void cachesOfOneFilterHaveSeparateKeys() {
        runner.withPropertyValues("bloomgate.uri=" + uri, "bloomgate.caches.names.filter=people").run(context -> {
            CacheManager manager = context.getBean(CacheManager.class);
            assertThat(manager.getCache("users").get(17L, () -> "Ann")).isEqualTo("Ann");
            assertThat(manager.getCache("names").get(17L, () -> 5)).isEqualTo(5);
        });
        server.commands().del("{people}~users:17", "{people}~names:17");
    }

    @Test
    void settingsThatWouldMixCachesAreRefusedAtTheStart() {
        ApplicationContextRunner withUri = runner.withPropertyValues("bloomgate.uri=" + uri);
        withUri.withPropertyValues("bloomgate.caches.users.feed=true", "bloomgate.caches.names.filter=people", "bloomgate.caches.names.feed=true")
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("would share their keys"));
        withUri.withPropertyValues("bloomgate.cache.feed=true")
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("bloomgate.caches.NAME.feed"));
        withUri.withPropertyValues("bloomgate.cache.filter=people")
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("bloomgate.caches.NAME.filter"));
    }

    @Test
    void aLettuceClientOfTheProgramStaysTheOnlyOne() {
        runner.withPropertyValues("bloomgate.uri=" + uri).withBean("lettuce", RedisClient.class, RedisClient::create).run(context ->
                assertThat(context).hasSingleBean(RedisClient.class).hasSingleBean(GuardCacheManager.class));
    }

    @Test
    void theStartConnectsAndChecksTheFilters() {
        server.commands().configResetstat();
        runner.withPropertyValues("bloomgate.uri=" + uri, "bloomgate.caches.missing.filter=missing").run(context -> {
            assertThat(context).hasNotFailed();
            assertThat(server.commands().info("commandstats")).contains("cmdstat_bf.info:calls=2");
        });
        runner.withPropertyValues("bloomgate.uri=redis://127.0.0.1:1").run(context -> assertThat(context).hasNotFailed());
    }

    @Test
    void aCustomizerSetsOtherOptions() {
        runner.withPropertyValues("bloomgate.uri=" + uri).withBean(GuardCustomizer.class, () -> (name, builder) ->
                builder.replicas(1).replicasTimeout(Duration.ofMillis(50)).patience(Duration.ZERO)).run(context -> {
                    Cache cache = context.getBean(CacheManager.class).getCache("users");
                    assertThatThrownBy(() -> cache.evict(17L)).isInstanceOf(BloomgateException.Unconfirmed.class);
                });
    }
}
