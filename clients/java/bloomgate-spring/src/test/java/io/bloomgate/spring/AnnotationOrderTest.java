package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Guard;
import io.bloomgate.Servers;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.CachePut;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.CachingConfigurer;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.interceptor.BeanFactoryCacheOperationSourceAdvisor;
import org.springframework.cache.interceptor.CacheErrorHandler;
import org.springframework.cache.interceptor.LoggingCacheErrorHandler;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.Ordered;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.interceptor.BeanFactoryTransactionAttributeSourceAdvisor;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** Changes are announced before their commit, whether the caches' interceptor encloses the transactions' interceptor or vice versa. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class AnnotationOrderTest {
    private final Servers servers = new Servers();
    private Servers.Server server;
    private Bloomgate client;

    @BeforeAll
    void start() {
        server = servers.start();
        client = Bloomgate.connect("redis://127.0.0.1:" + server.port());
    }

    @BeforeEach
    void fill() {
        server.commands().flushall();
        Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
    }

    @AfterAll
    void end() throws IOException {
        client.close();
        servers.close();
    }

    static class Users {
        private final Database database;
        Runnable beforeTheCommit = () -> {};

        Users(Database database) {
            this.database = database;
        }

        void setBeforeTheCommit(Runnable task) {
            beforeTheCommit = task;
        }

        @Cacheable("users")
        public String find(long id) {
            return database.find(id);
        }

        @Transactional
        @CacheEvict(cacheNames = "users", key = "#p0")
        public void save(long id, String name) {
            assertThat(TransactionSynchronizationManager.isActualTransactionActive()).isTrue();
            database.save(id, name);
            beforeTheCommit.run();
        }

        @Transactional
        @CachePut(cacheNames = "users", key = "#p0")
        public String put(long id, String name) {
            database.save(id, name);
            beforeTheCommit.run();
            return name;
        }

        @CacheEvict(cacheNames = "users", key = "#p0")
        public CompletableFuture<Void> saveLater(long id, String name, CompletableFuture<Void> start) {
            return start.thenRun(() -> database.save(id, name));
        }
    }

    @Configuration
    @EnableCaching
    static class CachesOutside {
        @Bean
        static GuardedOperations guardedOperations() {
            return new GuardedOperations();
        }
    }

    @Configuration
    @EnableCaching(order = 20)
    static class CachesInside {
        @Bean
        static GuardedOperations guardedOperations() {
            return new GuardedOperations();
        }
    }

    @Configuration
    @EnableTransactionManagement(order = 10)
    static class TransactionsFirst {}

    @Configuration
    @EnableTransactionManagement
    static class Transactions {}

    @Configuration
    static class Lenient implements CachingConfigurer {
        @Override
        public CacheErrorHandler errorHandler() {
            return new LoggingCacheErrorHandler();
        }
    }

    private void with(boolean isOutside, BiConsumer<Users, Database> test) {
        try (var context = new AnnotationConfigApplicationContext()) {
            Database database = new Database();
            database.save(17, "old");
            context.register(isOutside ? CachesOutside.class : CachesInside.class);
            context.register(isOutside ? Transactions.class : TransactionsFirst.class, Lenient.class);
            context.registerBean(Database.class, () -> database);
            context.registerBean(CacheManager.class, () -> new GuardCacheManager(name -> Guard.builder(client, name,
                    GuardCacheManager.serialization(getClass().getClassLoader())).patience(Duration.ofMillis(200)).build()));
            context.registerBean(Users.class, () -> new Users(database));
            context.refresh();
            Ordered caches = context.getBean(BeanFactoryCacheOperationSourceAdvisor.class);
            Ordered transactions = context.getBean(BeanFactoryTransactionAttributeSourceAdvisor.class);
            // With equal orders, as by default, the caches are outside because of the names of the beans.
            assertThat(caches.getOrder() <= transactions.getOrder()).isEqualTo(isOutside);
            test.accept(context.getBean(Users.class), database);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aNewRowIsAnnouncedBeforeItsCommit(boolean isOutside) {
        with(isOutside, (users, database) -> {
            Filter filter = new Filter(client, "users");
            users.setBeforeTheCommit(() -> assertThat(filter.contains(18L)).isTrue());
            users.save(18, "Eve");
            assertThat(users.find(18)).isEqualTo("Eve");
            users.setBeforeTheCommit(() -> assertThat(filter.contains(19L)).isTrue());
            users.put(19, "Joe");
            assertThat(users.find(19)).isEqualTo("Joe");
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aReadBetweenTheAnnouncementAndTheCommitCachesNothing(boolean isOutside) {
        with(isOutside, (users, database) -> {
            users.setBeforeTheCommit(() -> {
                assertThat(users.find(17)).isEqualTo("new");
                assertThat(CompletableFuture.supplyAsync(() -> users.find(17)).join()).isEqualTo("old");
            });
            users.save(17, "new");
            assertThat(users.find(17)).isEqualTo("new");
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aChangeThatCannotBeAnnouncedIsNotMadeThoughItsErrorIsHandled(boolean isOutside) {
        with(isOutside, (users, database) -> {
            server.commands().del("users");
            server.commands().set("users", "no filter");
            assertThatThrownBy(() -> users.save(17, "new")).hasMessageContaining("WRONGTYPE");
            assertThat(database.find(17)).isEqualTo("old");
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aChangeThatFailsIsConfirmed(boolean isOutside) {
        with(isOutside, (users, database) -> {
            users.setBeforeTheCommit(() -> {
                throw new IllegalStateException("refused");
            });
            assertThatThrownBy(() -> users.save(17, "new")).hasMessage("refused");
            Servers.eventually("the row is cached again", () ->
                    users.find(17).equals("old") && server.commands().exists("{users}:17") == 1);
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aChangeInAFutureIsConfirmedAfterIt(boolean isOutside) {
        with(isOutside, (users, database) -> {
            CompletableFuture<Void> start = new CompletableFuture<>();
            CompletableFuture<Void> saved = users.saveLater(18, "Eve", start);
            assertThat(new Filter(client, "users").contains(18L)).isTrue();
            assertThat(users.find(18)).isNull();
            start.complete(null);
            saved.join();
            assertThat(users.find(18)).isEqualTo("Eve");
        });
    }
}
