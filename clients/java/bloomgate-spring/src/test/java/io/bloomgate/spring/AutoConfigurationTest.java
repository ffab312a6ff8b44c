package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.concurrent.ConcurrentMapCacheManager;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class AutoConfigurationTest {
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

        @Cacheable("users")
        public String find(long id) {
            return "Ann" + loads.incrementAndGet();
        }
    }

    @Configuration
    @EnableCaching
    static class Application {}

    private final ApplicationContextRunner runner = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class))
            .withUserConfiguration(Application.class)
            .withBean(Users.class)
            .withPropertyValues("bloomgate.cache.ttl=1h", "bloomgate.caches.users.filter=people");

    @Test
    void theSettingsGuardAnExistingService() {
        runner.withPropertyValues("bloomgate.uri=" + uri).withBean(MeterRegistry.class, SimpleMeterRegistry::new).run(context -> {
            Users users = context.getBean(Users.class);
            assertThat(users.find(17)).isEqualTo("Ann1");
            assertThat(users.find(17)).isEqualTo("Ann1");
            assertThat(users.find(18)).isNull();
            assertThat(server.commands().pttl("{people}:17")).isBetween(3_000_000L, 3_600_000L);
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertThat(registry.get("bloomgate.guard.events").tags("bloomgate.filter", "people", "bloomgate.event", "hit")
                    .counter().count()).isEqualTo(1);
        });
        server.commands().del("{people}:17");
    }

    @Test
    void theConnectionFactoryOfSpringDataIsUsed() {
        runner.withBean(LettuceConnectionFactory.class, () -> new LettuceConnectionFactory("127.0.0.1", server.port())).run(context -> {
            assertThat(context.getBean(Users.class).find(17)).isEqualTo("Ann1");
            assertThat(context).hasSingleBean(GuardCacheManager.class);
        });
        server.commands().del("{people}:17");
    }

    @Test
    void aCacheManagerOfTheApplicationStays() {
        runner.withBean(CacheManager.class, ConcurrentMapCacheManager::new).run(context -> {
            assertThat(context).doesNotHaveBean(GuardCacheManager.class);
            assertThat(context.getBean(Users.class).find(18)).isEqualTo("Ann1");
        });
    }
}
