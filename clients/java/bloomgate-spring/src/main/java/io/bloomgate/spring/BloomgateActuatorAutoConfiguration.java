package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.config.MeterFilter;
import java.util.Map;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnExpression;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/**
 * The meters and the health of the guarded caches. Spring Boot 4 has moved its own classes for both. The meters use only Micrometer's
 * classes. Health indicators need Spring Boot's classes, so there is one for each generation.
 */
@AutoConfiguration(after = BloomgateAutoConfiguration.class)
@ConditionalOnBean(name = BloomgateAutoConfiguration.MANAGER)
public class BloomgateActuatorAutoConfiguration {
    /** The condition of Spring Boot's own annotation, which has moved, too. */
    private static final String IS_HEALTH_ENABLED = "${management.health.bloomgate.enabled:${management.health.defaults.enabled:true}}";

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        /** Adds the meters when all beans exist, including the registry's. */
        @Bean
        SmartInitializingSingleton bloomgateMetrics(
                ObjectProvider<MeterRegistry> registries, GuardCacheManager manager, BloomgateProperties properties) {
            return () -> registries.ifUnique(registry -> manager.guarded().forEach(cache ->
                    new GuardCacheMetrics(cache, properties.filter(cache.getName())).bindTo(registry)));
        }

        /** Prevents Spring Boot from counting the caches of the other manager twice: the guards' manager has them, too. */
        @Bean
        static MeterFilter bloomgateOtherCaches(BloomgateProperties properties) {
            return MeterFilter.deny(id -> GuardCacheMetrics.MANAGER.equals(id.getTag("cache.manager"))
                    && !properties.caches().containsKey(id.getTag("name")));
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.actuate.health.HealthIndicator.class)
    @ConditionalOnExpression(IS_HEALTH_ENABLED)
    static class HealthOfBoot3 {
        @Bean
        org.springframework.boot.actuate.health.HealthIndicator bloomgateHealthIndicator(Bloomgate client, BloomgateProperties properties) {
            return () -> {
                Map<String, Object> states = FilterStates.ask(client, properties);
                var builder = new org.springframework.boot.actuate.health.Health.Builder();
                return (FilterStates.areUp(states) ? builder.up() : builder.down())
                        .withDetails(FilterStates.details(states, properties)).build();
            };
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.health.contributor.HealthIndicator.class)
    @ConditionalOnExpression(IS_HEALTH_ENABLED)
    static class HealthOfBoot4 {
        @Bean
        org.springframework.boot.health.contributor.HealthIndicator bloomgateHealthIndicator(
                Bloomgate client, BloomgateProperties properties) {
            return () -> {
                Map<String, Object> states = FilterStates.ask(client, properties);
                var builder = new org.springframework.boot.health.contributor.Health.Builder();
                return (FilterStates.areUp(states) ? builder.up() : builder.down())
                        .withDetails(FilterStates.details(states, properties)).build();
            };
        }
    }
}
