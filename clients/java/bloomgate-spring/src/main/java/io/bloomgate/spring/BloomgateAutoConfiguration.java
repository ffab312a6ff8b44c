package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.BloomgateException;
import io.bloomgate.Codec;
import io.bloomgate.Guard;
import io.bloomgate.spring.BloomgateProperties.CacheSettings;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.beans.factory.config.BeanFactoryPostProcessor;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.cache.CacheManager;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Condition;
import org.springframework.context.annotation.ConditionContext;
import org.springframework.context.annotation.Conditional;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;
import org.springframework.core.annotation.Order;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotatedTypeMetadata;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * Guards the caches that are listed in {@code bloomgate.caches}. Other caches come from the cache manager that the program would have
 * without this configuration.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration",
            "org.springframework.boot.autoconfigure.cache.CacheAutoConfiguration",
            "org.springframework.boot.cache.autoconfigure.CacheAutoConfiguration"
        })
@ConditionalOnProperty(name = "bloomgate.enabled", matchIfMissing = true)
@EnableConfigurationProperties(BloomgateProperties.class)
public class BloomgateAutoConfiguration {
    private static final Log LOG = LogFactory.getLog(BloomgateAutoConfiguration.class);
    static final String MANAGER = "bloomgateCacheManager";

    @Order(1)
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty("bloomgate.uri")
    static class FromUri {
        @Bean
        @ConditionalOnMissingBean
        Bloomgate bloomgate(BloomgateProperties properties, BeanFactory beans) {
            return build(Bloomgate.builder(properties.uri()), properties, beans);
        }
    }

    @Order(2)
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LettuceConnectionFactory.class)
    static class FromSpringData {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnBean(LettuceConnectionFactory.class)
        Bloomgate bloomgate(LettuceConnectionFactory factory, BloomgateProperties properties, BeanFactory beans) {
            // A factory that is restarted or refreshed has a new client.
            return build(Bloomgate.builder(factory::getRequiredNativeClient), properties, beans);
        }
    }

    private static Bloomgate build(Bloomgate.Builder builder, BloomgateProperties properties, BeanFactory beans) {
        ifGiven(properties.connectTimeout(), builder::connectTimeout);
        ifGiven(properties.timeout(), builder::timeout);
        ifGiven(properties.waitingConnections(), builder::waitingConnections);
        ifGiven(properties.executor(), name -> builder.executor(beans.getBean(name, Executor.class)));
        return builder.build();
    }

    private static <T> void ifGiven(T value, Consumer<T> setter) {
        if (value != null) {
            setter.accept(value);
        }
    }

    /** Whether there is a cache to guard. */
    static final class HasCaches implements Condition {
        @Override
        public boolean matches(ConditionContext context, AnnotatedTypeMetadata metadata) {
            return !"none".equalsIgnoreCase(context.getEnvironment().getProperty("spring.cache.type"))
                    && !names(context.getEnvironment()).isEmpty();
        }

        static Set<String> names(Environment environment) {
            return Binder.get(environment).bind("bloomgate.caches", Bindable.mapOf(String.class, CacheSettings.class))
                    .orElse(Map.of()).keySet();
        }
    }

    /** Finds the cache manager that the program would have, and makes the guards' manager primary in its place. */
    static final class OtherManager implements BeanFactoryPostProcessor {
        private String name;

        @Override
        public void postProcessBeanFactory(ConfigurableListableBeanFactory factory) {
            for (String one : factory.getBeanNamesForType(CacheManager.class, true, false)) {
                if (factory.containsBeanDefinition(MANAGER) && !one.equals(MANAGER) && factory.containsBeanDefinition(one)) {
                    BeanDefinition definition = factory.getBeanDefinition(one);
                    if (name == null || definition.isPrimary()) {
                        name = one;
                    }
                    definition.setPrimary(false);
                }
            }
        }
    }

    @Bean
    @Conditional(HasCaches.class)
    static OtherManager bloomgateOtherManager() {
        return new OtherManager();
    }

    /** Logs why the caches are not guarded. */
    @Bean
    @Conditional(HasCaches.class)
    @ConditionalOnMissingBean(Bloomgate.class)
    static SmartInitializingSingleton bloomgateUnguarded(BeanFactory beans) {
        String other = "redisConnectionFactory";
        return () -> LOG.warn("guards no cache: there is neither bloomgate.uri nor a LettuceConnectionFactory"
                + (beans.containsBean(other) ? ", and " + other + " is a " + beans.getType(other).getName() : ""));
    }

    /** Creates the cache manager. */
    @Bean(MANAGER)
    @Primary
    @Conditional(HasCaches.class)
    @ConditionalOnBean(Bloomgate.class)
    GuardCacheManager cacheManager(
            Bloomgate client, BloomgateProperties properties, ObjectProvider<Codec<Object>> codecs, ObjectProvider<Codec<?>> typedCodecs,
            ObjectProvider<GuardCustomizer> customizers, OtherManager other, BeanFactory beans) {
        if (properties.cache() != null && properties.cache().feed() != null) {
            throw new IllegalArgumentException("bloomgate.cache.feed stops the evictions of caches without a follower: "
                    + "set bloomgate.caches.NAME.feed for each cache that bloomgate follow follows");
        } else if (properties.cache() != null && properties.cache().filter() != null) {
            throw new IllegalArgumentException("bloomgate.cache.filter has no effect: set bloomgate.caches.NAME.filter for each cache");
        }
        Codec<Object> codec = codecs.getIfAvailable(() -> typed(typedCodecs));
        Map<String, String> prefixes = new HashMap<>();
        List<GuardCache> caches = new ArrayList<>();
        properties.caches().forEach((name, own) -> {
            String filter = properties.filter(name);
            String prefix = prefix(name, filter, properties.cache(), own);
            String first = prefixes.putIfAbsent(prefix, name);
            if (first != null) {
                throw new IllegalArgumentException("the caches " + first + " and " + name + " would share their keys, which begin with "
                        + prefix + ": give one of them another prefix, or, with a feed, another filter");
            }
            Supplier<Guard.Builder<Object>> builders = () -> {
                Guard.Builder<Object> builder = Guard.builder(client, filter, codec).prefix(prefix);
                if (properties.cache() != null) {
                    apply(properties.cache(), builder);
                    if (!Boolean.TRUE.equals(own.feed())) {
                        applyToWriters(properties.cache(), builder);
                    }
                }
                apply(own, builder);
                if (!Boolean.TRUE.equals(own.feed()) && own.fresh() == null) {
                    builder.fresh(Duration.ZERO);
                }
                applyToWriters(own, builder);
                customizers.orderedStream().forEach(one -> one.customize(name, builder));
                return builder;
            };
            Guard<Object, Object> guard = builders.get().build();
            FollowerCheck follower = !Boolean.TRUE.equals(own.feed()) ? null
                    : new FollowerCheck(name, guard, builders.get().feed(false).fresh(Duration.ZERO).patience(Duration.ZERO).build());
            caches.add(new GuardCache(name, guard, trust(properties.cache(), own), follower));
        });
        LOG.info("guards the caches " + properties.caches().keySet() + (other.name == null ? ", and there are no others"
                : "; the others are those of " + other.name));
        return new GuardCacheManager(caches, other.name == null ? null : beans.getBean(other.name, CacheManager.class));
    }

    /**
     * Connects when the program starts, because connecting takes longer than a command, and checks the filters. Without a server the
     * program still starts: its guards then query the database.
     */
    @Bean
    @ConditionalOnBean(GuardCacheManager.class)
    SmartInitializingSingleton bloomgateStart(Bloomgate client, BloomgateProperties properties) {
        return () -> FilterStates.ask(client, properties).forEach((name, state) -> {
            if (state instanceof BloomgateException.FilterMissing) {
                LOG.warn("the cache " + name + ": there is no filter " + properties.filter(name) + " yet, so each read queries the database");
            } else if (state instanceof RuntimeException error) {
                LOG.warn("the cache " + name + ": the server does not answer, so each read queries the database", error);
            }
        });
    }

    /** Logs the caches with a feed whose follower is not alive. The program still starts: the follower may start later. */
    @Bean
    @ConditionalOnBean(GuardCacheManager.class)
    SmartInitializingSingleton bloomgateFollowers(GuardCacheManager manager) {
        return () -> manager.guarded().forEach(GuardCache::checkFollower);
    }

    /** Returns the prefix of a cache's keys. A follower uses {@code {filter}:}; other caches of a filter have separate prefixes. */
    private static String prefix(String name, String filter, CacheSettings all, CacheSettings own) {
        if (own.prefix() != null) {
            return own.prefix();
        } else if (all != null && all.prefix() != null) {
            return all.prefix();
        }
        String tagged = filter.matches("[^{]*\\{[^}]+}.*") ? filter : "{" + filter + "}";
        return name.equals(filter) || Boolean.TRUE.equals(own.feed()) ? tagged + ":" : tagged + "~" + name + ":";
    }

    private static Trust trust(CacheSettings all, CacheSettings own) {
        if (own.trust() != null) {
            return own.trust();
        }
        return all != null && all.trust() != null ? all.trust() : Trust.OBSERVE;
    }

    /** Returns the program's codec, which may be for one class. */
    @SuppressWarnings("unchecked")
    private static Codec<Object> typed(ObjectProvider<Codec<?>> codecs) {
        return (Codec<Object>) codecs.getIfAvailable(
                () -> GuardCacheManager.serialization(Thread.currentThread().getContextClassLoader()));
    }

    /** Applies the settings that have no effect with a feed, where writers send nothing. */
    private static void applyToWriters(CacheSettings settings, Guard.Builder<Object> builder) {
        ifGiven(settings.replicas(), builder::replicas);
        ifGiven(settings.replicasTimeout(), builder::replicasTimeout);
        ifGiven(settings.aof(), builder::aof);
        ifGiven(settings.announceTo(), filters -> builder.announceTo(filters.toArray(String[]::new)));
    }

    private static void apply(CacheSettings settings, Guard.Builder<Object> builder) {
        ifGiven(settings.ttl(), builder::ttl);
        ifGiven(settings.absentTtl(), builder::absentTtl);
        ifGiven(settings.lease(), builder::lease);
        ifGiven(settings.waitTime(), builder::wait);
        ifGiven(settings.attempts(), builder::attempts);
        ifGiven(settings.failSafe(), builder::failSafe);
        ifGiven(settings.softTimeout(), builder::softTimeout);
        ifGiven(settings.beta(), builder::beta);
        ifGiven(settings.patience(), builder::patience);
        ifGiven(settings.feed(), builder::feed);
        ifGiven(settings.fresh(), builder::fresh);
    }

    /** Adapts the annotations of the program to guards. */
    @Bean
    @Conditional(HasCaches.class)
    @ConditionalOnBean(Bloomgate.class)
    static GuardedOperations bloomgateOperations(Environment environment) {
        return new GuardedOperations(HasCaches.names(environment)::contains, MANAGER);
    }
}
