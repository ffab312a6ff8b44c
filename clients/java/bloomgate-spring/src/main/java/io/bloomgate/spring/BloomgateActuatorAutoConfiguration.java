package io.bloomgate.spring;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.config.MeterFilter;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The meters of the guarded caches. Spring Boot 4 has moved its own classes for them, so they use only Micrometer's. */
@AutoConfiguration(after = BloomgateAutoConfiguration.class)
@ConditionalOnBean(name = BloomgateAutoConfiguration.MANAGER)
public class BloomgateActuatorAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        /** Adds the meters when all beans exist, those of the registry included. */
        @Bean
        SmartInitializingSingleton bloomgateMetrics(
                ObjectProvider<MeterRegistry> registries, GuardCacheManager manager, BloomgateProperties properties) {
            return () -> registries.ifUnique(registry -> manager.guarded().forEach(cache ->
                    new GuardCacheMetrics(cache, properties.filter(cache.getName())).bindTo(registry)));
        }

        /** Keeps Spring Boot from counting the caches of the other manager twice: that of the guards has them, too. */
        @Bean
        static MeterFilter bloomgateOtherCaches(BloomgateProperties properties) {
            return MeterFilter.deny(id -> GuardCacheMetrics.MANAGER.equals(id.getTag("cache.manager"))
                    && !properties.caches().containsKey(id.getTag("name")));
        }
    }
}
