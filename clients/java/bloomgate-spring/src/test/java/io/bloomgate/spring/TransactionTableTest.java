package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Filter;
import io.bloomgate.Guard;
import io.bloomgate.Servers;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.dao.support.DataAccessUtils;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * The table in benches/results/reliability.md: the values that a transaction reads through a cache, and that others read after it, with each
 * isolation level of real databases, with and without a follower, compared with Spring's transaction-aware Redis cache.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class TransactionTableTest {
    private final Servers servers = new Servers();
    private final Map<String, SqlServer> databases = new HashMap<>();
    private final Map<String, AnnotationConfigApplicationContext> programs = new HashMap<>();
    private final Map<Row, Map<String, Set<String>>> table = new LinkedHashMap<>();
    private Servers.Server server;
    private Bloomgate client;
    private LettuceConnectionFactory factory;
    private long lastId = 1000;

    /** An ordinary service. */
    static class Users {
        private final JdbcTemplate jdbc;

        Users(JdbcTemplate jdbc) {
            this.jdbc = jdbc;
        }

        @Nullable
        @Cacheable("users")
        public String find(long id) {
            return DataAccessUtils.singleResult(jdbc.queryForList("SELECT name FROM users WHERE id = ?", String.class, id));
        }

        @CacheEvict(cacheNames = "users", key = "#p0")
        public void change(long id, String name) {
            jdbc.update("DELETE FROM users WHERE id = ?", id);
            if (name != null) {
                add(id, name);
            }
        }

        public void add(long id, String name) {
            jdbc.update("INSERT INTO users VALUES (?, ?)", id, name);
        }
    }

    @Configuration
    @EnableCaching
    static class Caching {}

    /** One of the programs, with ids that only this case uses: the row of {@code old} exists, the row of {@code missing} does not. */
    private final class Case {
        private final SqlServer database;
        private final String fedFilter;
        private final Users users;
        private final TransactionTemplate transaction;
        private final long old = ++lastId;
        private final long missing = ++lastId;

        Case(SqlServer database, int level, String fedFilter, AnnotationConfigApplicationContext program) {
            this.database = database;
            this.fedFilter = fedFilter;
            users = program.getBean(Users.class);
            transaction = new TransactionTemplate(new DataSourceTransactionManager(database.source()));
            transaction.setIsolationLevel(level);
            change(old, "old");
        }

        String find(long id) {
            return users.find(id);
        }

        void change(long id, String name) {
            users.change(id, name);
            awaitFollower();
        }

        String changeAndFind(long id, String name) {
            users.change(id, name);
            return users.find(id);
        }

        String inTransaction(boolean isRolledBack, Supplier<String> body) {
            String result = transaction.execute(status -> {
                if (isRolledBack) {
                    status.setRollbackOnly();
                }
                return body.get();
            });
            awaitFollower();
            return result;
        }

        private void awaitFollower() {
            if (fedFilter != null) {
                database.awaitFollower(fedFilter, client, ++lastId);
            }
        }
    }

    /** The rows of the table. */
    enum Row {
        AN_OLDER_SNAPSHOT("what it reads from an older snapshot is not cached") {
            @Override
            void run(Case one) {
                one.inTransaction(false, () -> {
                    one.database.jdbc.queryForList("SELECT * FROM users");
                    CompletableFuture.runAsync(() -> one.change(one.old, "new")).join();
                    return one.find(one.old);
                });
                assertThat(one.find(one.old)).isEqualTo("new");
            }
        },
        A_CHANGED_ROW("it reads a cached row that it has changed, and then others do") {
            @Override
            void run(Case one) {
                assertThat(one.find(one.old)).isEqualTo("old");
                assertThat(one.inTransaction(false, () -> one.changeAndFind(one.old, "new"))).isEqualTo("new");
                assertThat(one.find(one.old)).isEqualTo("new");
            }
        },
        A_CHANGE_THAT_IS_ROLLED_BACK("a change that is rolled back later is not cached") {
            @Override
            void run(Case one) {
                assertThat(one.inTransaction(true, () -> one.changeAndFind(one.old, "new"))).isEqualTo("new");
                assertThat(one.find(one.old)).isEqualTo("old");
            }
        },
        A_NEW_ROW("it reads a row that it has added, which was absent before") {
            @Override
            void run(Case one) {
                assertThat(one.find(one.missing)).isNull();
                assertThat(one.inTransaction(false, () -> {
                    one.users.add(one.missing, "Eve");
                    return one.find(one.missing);
                })).isEqualTo("Eve");
            }
        },
        A_NEW_ROW_THAT_IS_ROLLED_BACK("a new row that is rolled back later is not cached") {
            @Override
            void run(Case one) {
                assertThat(one.inTransaction(true, () -> one.changeAndFind(one.missing, "Eve"))).isEqualTo("Eve");
                assertThat(one.find(one.missing)).isNull();
            }
        },
        A_DELETED_ROW("it does not read a cached row that it has deleted, nor do others then") {
            @Override
            void run(Case one) {
                assertThat(one.find(one.old)).isEqualTo("old");
                assertThat(one.inTransaction(false, () -> one.changeAndFind(one.old, null))).isNull();
                assertThat(one.find(one.old)).isNull();
            }
        };

        private final String title;

        Row(String title) {
            this.title = title;
        }

        abstract void run(Case one);
    }

    static Stream<Arguments> cases() {
        List<Arguments> cases = new ArrayList<>();
        for (Row row : Row.values()) {
            for (String database : List.of("PostgreSQL", "MariaDB")) {
                for (String level : List.of("READ COMMITTED", "REPEATABLE READ")) {
                    cases.add(Arguments.of(row, database, level, false));
                    cases.add(Arguments.of(row, database, level, true));
                }
            }
        }
        return cases.stream();
    }

    @BeforeAll
    void start() {
        server = servers.start();
        client = Bloomgate.connect("redis://127.0.0.1:" + server.port());
        factory = new LettuceConnectionFactory("127.0.0.1", server.port());
        factory.start();
    }

    @AfterAll
    void end() throws Exception {
        programs.values().forEach(AnnotationConfigApplicationContext::close);
        factory.destroy();
        client.close();
        for (SqlServer database : databases.values()) {
            database.close();
        }
        servers.close();
        checkPage();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void theTable(Row row, String name, String levelName, boolean isFed) throws Exception {
        SqlServer database = database(name);
        int level = levelName.equals("READ COMMITTED") ? TransactionDefinition.ISOLATION_READ_COMMITTED
                : TransactionDefinition.ISOLATION_REPEATABLE_READ;
        String filter = name + (isFed ? "-fed" : "");
        row.run(new Case(database, level, isFed ? filter : null, program(filter, database, () -> guards(filter, isFed, database))));
        Case springs = new Case(database, level, null, program(name + " with Spring's cache", database, () ->
                RedisCacheManager.builder(Boot.blocking(factory)).transactionAware().build()));
        String right;
        try {
            row.run(springs);
            right = "both";
        } catch (AssertionError wrong) {
            right = "bloomgate";
        }
        table.computeIfAbsent(row, any -> new LinkedHashMap<>())
                .computeIfAbsent(name + ", " + levelName, any -> new LinkedHashSet<>()).add(right);
    }

    private SqlServer database(String name) throws IOException {
        SqlServer found = databases.get(name);
        if (found == null) {
            found = name.equals("PostgreSQL") ? SqlServer.postgres() : SqlServer.mariadb();
            databases.put(name, found);
        }
        return found;
    }

    /** Returns a program with a cache manager, created on first use. */
    private AnnotationConfigApplicationContext program(String name, SqlServer database, Callable<CacheManager> caches) throws Exception {
        AnnotationConfigApplicationContext found = programs.get(name);
        if (found == null) {
            CacheManager manager = caches.call();
            found = new AnnotationConfigApplicationContext();
            found.register(Caching.class);
            found.registerBean(CacheManager.class, () -> manager);
            found.registerBean(Users.class, () -> new Users(database.jdbc));
            if (manager instanceof GuardCacheManager) {
                found.registerBean(GuardedOperations.class, () -> new GuardedOperations());
            }
            found.refresh();
            programs.put(name, found);
        }
        return found;
    }

    private CacheManager guards(String filter, boolean isFed, SqlServer database) throws IOException {
        if (isFed) {
            database.follow(filter, server);
        } else {
            new Filter(client, filter).reserve(0.001, 10_000, CreationOptions.defaults().hash("siphash"));
        }
        Guard<Object, Object> guard = Guard.builder(client, filter, GuardCacheManager.serialization(getClass().getClassLoader())).feed(isFed).build();
        return new GuardCacheManager(List.of(new GuardCache("users", guard, Trust.FILTER)), null);
    }

    /** Prints the table if all cases have run, and compares it with the page. */
    private void checkPage() throws IOException {
        String head = "| in a transaction | " + String.join(" | ", table.getOrDefault(Row.AN_OLDER_SNAPSHOT, Map.of()).keySet()) + " |";
        String lines = Stream.concat(Stream.of(head, "| --- | --- | --- | --- | --- |"), table.entrySet().stream().map(entry ->
                "| " + entry.getKey().title + " | " + entry.getValue().values().stream().map(right -> String.join(" or ", right))
                        .collect(Collectors.joining(" | ")) + " |")).collect(Collectors.joining("\n"));
        System.out.println(lines);
        if (table.values().stream().mapToInt(Map::size).sum() == 24) {
            assertThat(Files.readString(Path.of("../../../benches/results/reliability.md")).contains(lines)).as("the page has this table").isTrue();
        }
    }
}
