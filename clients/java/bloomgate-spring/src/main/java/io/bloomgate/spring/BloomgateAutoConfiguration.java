package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.Codec;
import io.bloomgate.Event;
import io.bloomgate.Guard;
import io.bloomgate.spring.BloomgateProperties.CacheSettings;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.EnumMap;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Function;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.cache.CacheManager;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Makes the guard the cache of a Spring Boot application, unless it has a {@link CacheManager} of its own. */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration",
            "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
            "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration"
        },
        beforeName = {
            "org.springframework.boot.autoconfigure.cache.CacheAutoConfiguration",
            "org.springframework.boot.cache.autoconfigure.CacheAutoConfiguration"
        })
@ConditionalOnMissingBean(CacheManager.class)
@EnableConfigurationProperties(BloomgateProperties.class)
public class BloomgateAutoConfiguration {
    /** The listener of a guard's events, which metrics bring. */
    interface Listeners extends Function<String, BiConsumer<Event, Integer>> {}

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty("bloomgate.uri")
    static class FromUri {
        @Bean
        @ConditionalOnMissingBean
        Bloomgate bloomgate(@Qualifier("bloomgateLettuce") RedisClient lettuce, BloomgateProperties properties) {
            return build(lettuce, properties);
        }

        @Bean(destroyMethod = "shutdown")
        RedisClient bloomgateLettuce(BloomgateProperties properties) {
            return RedisClient.create(properties.uri());
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LettuceConnectionFactory.class)
    static class FromSpringData {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnBean(LettuceConnectionFactory.class)
        Bloomgate bloomgate(LettuceConnectionFactory factory, BloomgateProperties properties) {
            return build(factory.getRequiredNativeClient(), properties);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        @Bean
        @ConditionalOnBean(MeterRegistry.class)
        Listeners bloomgateMetrics(MeterRegistry registry) {
            return filter -> {
                Map<Event, Counter> counters = new EnumMap<>(Event.class);
                for (Event event : Event.values()) {
                    counters.put(event, Counter.builder("bloomgate.guard.events").tag("bloomgate.filter", filter)
                            .tag("bloomgate.event", event.label()).register(registry));
                }
                return (event, number) -> counters.get(event).increment(number);
            };
        }
    }

    private static Bloomgate build(AbstractRedisClient lettuce, BloomgateProperties properties) {
        Bloomgate.Builder builder = Bloomgate.builder(lettuce);
        ifGiven(properties.timeout(), builder::timeout);
        ifGiven(properties.waitingConnections(), builder::waitingConnections);
        return builder.build();
    }

    private static <T> void ifGiven(T value, Consumer<T> setter) {
        if (value != null) {
            setter.accept(value);
        }
    }

    /** Makes the cache manager. */
    @Bean
    @ConditionalOnBean(Bloomgate.class)
    GuardCacheManager cacheManager(
            Bloomgate client, BloomgateProperties properties, ObjectProvider<Codec<Object>> codec, ObjectProvider<Listeners> listeners) {
        Codec<Object> chosen = codec.getIfAvailable(
                () -> GuardCacheManager.serialization(Thread.currentThread().getContextClassLoader()));
        return new GuardCacheManager(name -> {
            CacheSettings own = properties.caches() == null ? null : properties.caches().get(name);
            String filter = own != null && own.filter() != null ? own.filter() : name;
            Guard.Builder<Object> builder = Guard.builder(client, filter, chosen);
            apply(properties.cache(), builder);
            apply(own, builder);
            listeners.ifAvailable(one -> builder.listener(one.apply(filter)));
            return builder.build();
        });
    }

    private static void apply(CacheSettings settings, Guard.Builder<Object> builder) {
        if (settings == null) {
            return;
        }
        ifGiven(settings.ttl(), builder::ttl);
        ifGiven(settings.absentTtl(), builder::absentTtl);
        ifGiven(settings.lease(), builder::lease);
        ifGiven(settings.waitTime(), builder::wait);
        ifGiven(settings.attempts(), builder::attempts);
        ifGiven(settings.failSafe(), builder::failSafe);
        ifGiven(settings.softTimeout(), builder::softTimeout);
        ifGiven(settings.beta(), builder::beta);
        ifGiven(settings.patience(), builder::patience);
        ifGiven(settings.prefix(), builder::prefix);
        ifGiven(settings.feed(), builder::feed);
    }

    /** Adapts the annotations of the program to guards. */
    @Bean
    static GuardedOperations bloomgateOperations() {
        return new GuardedOperations();
    }
}
