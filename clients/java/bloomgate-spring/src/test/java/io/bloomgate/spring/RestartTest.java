package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.aop.scope.ScopedProxyUtils;
import org.springframework.beans.factory.ObjectFactory;
import org.springframework.beans.factory.config.BeanDefinitionHolder;
import org.springframework.beans.factory.config.Scope;
import org.springframework.beans.factory.support.BeanDefinitionBuilder;
import org.springframework.beans.factory.support.DefaultListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.assertj.AssertableApplicationContext;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Contexts whose connection factory creates a new Lettuce client: after a stop and a start, or a refresh of its scope. */
class RestartTest {
    private final Servers servers = new Servers();
    private Servers.Server server;

    @BeforeEach
    void start() {
        server = servers.start();
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults(), Durability.NONE);
        }
    }

    @AfterEach
    void end() throws IOException {
        servers.close();
    }

    static class Users {
        private final AtomicInteger loads = new AtomicInteger();

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
            .withUserConfiguration(Application.class).withBean(Users.class)
            .withPropertyValues("bloomgate.cache.ttl=1h", "bloomgate.caches.users.trust=filter");

    @Test
    void aContextThatIsStoppedAndStartedUsesTheCache() {
        ApplicationContextRunner withFactory = runner.withBean(LettuceConnectionFactory.class,
                () -> new LettuceConnectionFactory("127.0.0.1", server.port()));
        ApplicationContextRunner withUri = runner.withPropertyValues("bloomgate.uri=redis://127.0.0.1:" + server.port());
        for (ApplicationContextRunner one : List.of(withFactory, withUri)) {
            one.run(context -> {
                Users users = context.getBean(Users.class);
                String cached = users.find(17);
                context.stop();
                context.start();
                checkHit(users, cached);
                server.commands().del("{users}:17");
            });
        }
    }

    @Test
    void aStoppedFactoryMakesReadersQueryTheDatabase() {
        runner.withBean(LettuceConnectionFactory.class, () -> new LettuceConnectionFactory("127.0.0.1", server.port())).run(context -> {
            Users users = context.getBean(Users.class);
            assertThat(users.find(17)).isEqualTo("Ann1");
            context.stop();
            assertThat(users.find(17)).isEqualTo("Ann2");
            context.start();
            checkHit(users, "Ann1");
        });
    }

    private void checkHit(Users users, String cached) {
        server.commands().configResetstat();
        assertThat(users.find(17)).isEqualTo(cached);
        assertThat(server.commands().info("commandstats")).contains("cmdstat_bf.fetch:calls=1");
    }

    /** Behaves like Spring Cloud's scope: a refresh destroys its beans, and the next use of a bean's proxy creates a new bean. */
    private static final class RefreshScope implements Scope {
        private final Map<String, Object> beans = new HashMap<>();
        private final Map<String, Runnable> destructions = new HashMap<>();

        @Override
        public Object get(String name, ObjectFactory<?> factory) {
            return beans.computeIfAbsent(name, key -> factory.getObject());
        }

        @Override
        public Object remove(String name) {
            return beans.remove(name);
        }

        @Override
        public void registerDestructionCallback(String name, Runnable callback) {
            destructions.put(name, callback);
        }

        @Override
        public Object resolveContextualObject(String key) {
            return null;
        }

        @Override
        public String getConversationId() {
            return null;
        }

        void refresh() {
            destructions.values().forEach(Runnable::run);
            beans.clear();
        }
    }

    @Test
    void aFactoryThatIsRefreshedLeadsToItsServer() {
        RefreshScope scope = new RefreshScope();
        Servers.Server other = servers.start();
        AtomicInteger port = new AtomicInteger(server.port());
        runner.withInitializer(context -> {
            DefaultListableBeanFactory beans = (DefaultListableBeanFactory) context.getBeanFactory();
            beans.registerScope("refresh", scope);
            var definition = BeanDefinitionBuilder.genericBeanDefinition(LettuceConnectionFactory.class,
                    () -> new LettuceConnectionFactory("127.0.0.1", port.get())).setScope("refresh").getBeanDefinition();
            BeanDefinitionHolder proxy = ScopedProxyUtils.createScopedProxy(new BeanDefinitionHolder(definition, "redis"), beans, true);
            beans.registerBeanDefinition("redis", proxy.getBeanDefinition());
        }).run((AssertableApplicationContext context) -> {
            Users users = context.getBean(Users.class);
            assertThat(users.find(17)).isEqualTo("Ann1");
            scope.refresh();
            checkHit(users, "Ann1");
            port.set(other.port());
            scope.refresh();
            users.find(17);
            assertThat(other.commands().info("commandstats")).contains("cmdstat_bf.fetch:calls=1");
        });
    }
}
