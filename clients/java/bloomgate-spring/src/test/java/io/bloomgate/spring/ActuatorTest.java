package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Timer;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.beans.PropertyAccessor;
import org.springframework.beans.PropertyAccessorFactory;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.Configuration;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;

/** Meters and health in Spring Boot. Its classes for them are in other packages since release 4, so they are looked up by name. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class ActuatorTest {
    private final Servers servers = new Servers();
    private Servers.Server server;
    private ApplicationContextRunner runner;

    @BeforeAll
    void start() {
        server = servers.start();
        runner = new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class, BloomgateActuatorAutoConfiguration.class))
                .withConfiguration(AutoConfigurations.of(bootClasses(
                        "autoconfigure.cache.CacheAutoConfiguration", "cache.autoconfigure.CacheAutoConfiguration",
                        "actuate.autoconfigure.metrics.MetricsAutoConfiguration", "micrometer.metrics.autoconfigure.MetricsAutoConfiguration",
                        "actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
                        "micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration",
                        "actuate.autoconfigure.metrics.export.simple.SimpleMetricsExportAutoConfiguration",
                        "micrometer.metrics.autoconfigure.export.simple.SimpleMetricsExportAutoConfiguration",
                        "actuate.autoconfigure.metrics.cache.CacheMetricsAutoConfiguration",
                        "cache.autoconfigure.metrics.CacheMetricsAutoConfiguration",
                        "actuate.autoconfigure.health.HealthContributorAutoConfiguration",
                        "actuate.autoconfigure.health.HealthEndpointAutoConfiguration",
                        "health.autoconfigure.contributor.HealthContributorAutoConfiguration",
                        "health.autoconfigure.registry.HealthContributorRegistryAutoConfiguration",
                        "health.autoconfigure.actuate.endpoint.HealthEndpointAutoConfiguration")))
                .withUserConfiguration(Application.class).withBean(Users.class)
                .withPropertyValues("bloomgate.uri=redis://127.0.0.1:" + server.port(), "bloomgate.caches.users.filter=people",
                        "bloomgate.caches.users.trust=filter", "spring.cache.type=simple", "management.endpoints.web.exposure.include=health");
    }

    private static Class<?>[] bootClasses(String... names) {
        return Stream.of(names).map(name -> "org.springframework.boot." + name).filter(name -> ClassUtils.isPresent(name, null))
                .map(name -> ClassUtils.resolveClassName(name, null)).toArray(Class<?>[]::new);
    }

    @BeforeEach
    void fill() {
        server.commands().flushall();
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            Filter.fill(client, "people", List.of(17L, 19L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        }
    }

    @AfterAll
    void end() throws IOException {
        servers.close();
    }

    @Configuration
    @EnableCaching
    static class Application {}

    public static class Users {
        @Cacheable("users")
        public List<String> find(long id) {
            if (id == 19) {
                throw new IllegalStateException("the database is down");
            }
            return new ArrayList<>(List.of("Ann"));
        }

        @Cacheable(cacheNames = "users", key = "'later' + #p0")
        public CompletableFuture<List<String>> later(long id) {
            return CompletableFuture.supplyAsync(() -> new ArrayList<>(List.of("Ann")));
        }

        @Cacheable("others")
        public String other(long id) {
            return "other";
        }
    }

    private static double gets(MeterRegistry registry, String result) {
        return registry.get("cache.gets").tags("cache", "users", "name", "users", "cache.manager", "bloomgate", "result", result)
                .functionCounter().count();
    }

    private static Timer loads(MeterRegistry registry, String result) {
        return registry.get("bloomgate.guard.loads").tags("cache", "users", "result", result).timer();
    }

    @Test
    void readsAreCountedLikeThoseOfOtherCaches() {
        runner.run(context -> {
            Users users = context.getBean(Users.class);
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertThat(users.find(17)).hasSize(1);
            assertThat(users.find(17)).hasSize(1);
            assertThat(users.find(18)).isEmpty();
            assertThat(gets(registry, "hit")).isEqualTo(2);
            assertThat(gets(registry, "miss")).isEqualTo(1);
            assertThat(registry.get("cache.puts").tag("cache", "users").functionCounter().count()).isEqualTo(1);
            assertThatThrownBy(() -> users.find(19)).hasMessage("the database is down");
            assertThat(users.later(18).join()).isEmpty();
            assertThat(gets(registry, "hit")).isEqualTo(3);
            assertThat(gets(registry, "miss")).isEqualTo(2);
            assertThat(registry.get("bloomgate.guard.events").tags("bloomgate.filter", "people", "bloomgate.event", "hit", "cache", "users")
                    .functionCounter().count()).isEqualTo(1);
        });
    }

    @Test
    void loadsAreTimed() {
        runner.withPropertyValues("bloomgate.caches.users.trust=observe").run(context -> {
            Users users = context.getBean(Users.class);
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            users.find(17);
            users.find(17);
            users.find(18);
            users.later(17).join();
            // A future completes before the stage that records its load.
            Servers.eventually("the third load", () -> loads(registry, "success").count() == 3);
            assertThat(loads(registry, "success").totalTime(TimeUnit.NANOSECONDS)).isPositive();
            assertThatThrownBy(() -> users.find(19)).hasMessage("the database is down");
            assertThat(loads(registry, "failure").count()).isEqualTo(1);
        });
    }

    @Test
    void theOtherCachesAreCountedOnce() {
        runner.withConfiguration(AutoConfigurations.of(bootClasses(
                "autoconfigure.data.redis.RedisAutoConfiguration", "data.redis.autoconfigure.DataRedisAutoConfiguration")))
                .withPropertyValues("spring.data.redis.port=" + server.port(), "spring.cache.type=redis",
                        "spring.cache.redis.enable-statistics=true", "spring.cache.cache-names=others").run(context -> {
            assertThat(context.getBean(Users.class).other(17)).isEqualTo("other");
            List<Meter.Id> gets = context.getBean(MeterRegistry.class).getMeters().stream().map(Meter::getId)
                    .filter(id -> id.getName().equals("cache.gets")).toList();
            assertThat(gets).extracting(id -> id.getTag("cache.manager") + " " + id.getTag("cache"))
                    .contains("bloomgate users", "cacheManager others").doesNotContain("bloomgate others");
            // A Prometheus registry refuses meters with equal names and different tags.
            assertThat(gets).filteredOn(id -> !"pending".equals(id.getTag("result")))
                    .extracting(id -> id.getTags().stream().map(Tag::getKey).toList()).containsOnly(
                            List.of("cache", "cache.manager", "name", "result"));
        });
    }

    private PropertyAccessor health(BeanFactory context) {
        Object endpoint = context.getBean("healthEndpoint");
        Method method = ReflectionUtils.findMethod(endpoint.getClass(), "healthForPath", String[].class);
        return PropertyAccessorFactory.forBeanPropertyAccess(
                ReflectionUtils.invokeMethod(method, endpoint, (Object) new String[] {"bloomgate"}));
    }

    @Test
    void theHealthCoversTheServerAndTheFilters() {
        runner.run(context -> {
            PropertyAccessor health = health(context);
            assertThat(health.getPropertyValue("status.code")).isEqualTo("UP");
            assertThat(health.getPropertyValue("details")).isEqualTo(
                    Map.of("users", Map.of("filter", "people", "items", 2L, "capacity", 1000L)));
            server.commands().del("people");
            health = health(context);
            assertThat(health.getPropertyValue("status.code")).isEqualTo("DOWN");
            assertThat(health.getPropertyValue("details").toString()).contains("people", "FilterMissing");
        });
        runner.withPropertyValues("bloomgate.uri=redis://127.0.0.1:1", "bloomgate.caches.names.filter=people").run(context -> {
            PropertyAccessor health = health(context);
            assertThat(health.getPropertyValue("status.code")).isEqualTo("DOWN");
            assertThat(health.getPropertyValue("details").toString()).contains("users", "names", "Disconnected");
        });
    }

    @Test
    void theHealthIsDisabledByTheStandardProperty() {
        for (String property : List.of("management.health.bloomgate.enabled=false", "management.health.defaults.enabled=false")) {
            runner.withPropertyValues(property).run(context ->
                    assertThat(context).hasNotFailed().doesNotHaveBean("bloomgateHealthIndicator"));
        }
        runner.withPropertyValues("management.health.defaults.enabled=false", "management.health.bloomgate.enabled=true").run(context ->
                assertThat(context).hasBean("bloomgateHealthIndicator"));
    }

    @Test
    void aProgramWithoutActuatorAndMicrometerStarts() {
        new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class, BloomgateActuatorAutoConfiguration.class))
                .withUserConfiguration(Application.class).withBean(Users.class)
                .withPropertyValues("bloomgate.uri=redis://127.0.0.1:" + server.port(), "bloomgate.caches.users.filter=people")
                .withClassLoader(new FilteredClassLoader("io.micrometer", "org.springframework.boot.actuate",
                        "org.springframework.boot.health", "org.springframework.data"))
                .run(context -> {
                    assertThat(context).hasNotFailed().doesNotHaveBean("bloomgateHealthIndicator").doesNotHaveBean("bloomgateMetrics");
                    assertThat(context.getBean(Users.class).find(17)).containsExactly("Ann");
                    assertThat(server.commands().exists("{people}~users:17")).isEqualTo(1);
                });
    }
}
