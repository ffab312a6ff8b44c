package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Guard;
import io.bloomgate.Servers;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.h2.jdbcx.JdbcConnectionPool;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.cache.Cache;
import org.springframework.dao.support.DataAccessUtils;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * What a transaction reads through a cache, and what others read after it, with each isolation level, with and without a feed. The database
 * is H2.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class TransactionTableTest {
    private final Servers servers = new Servers();
    private final JdbcConnectionPool pool = JdbcConnectionPool.create("jdbc:h2:mem:table;DB_CLOSE_DELAY=-1", "sa", "");
    private final JdbcTemplate jdbc = new JdbcTemplate(pool);
    private Servers.Server server;
    private Bloomgate client;
    private Guard<Object> writer;
    private TransactionTemplate transaction;
    private Cache cache;
    private boolean isFed;

    @BeforeAll
    void start() {
        server = servers.start();
        client = Bloomgate.connect("redis://127.0.0.1:" + server.port());
        jdbc.execute("CREATE TABLE users (id bigint PRIMARY KEY, name varchar(100))");
    }

    @AfterAll
    void end() throws IOException {
        client.close();
        servers.close();
        pool.dispose();
    }

    /** The rows of the table. */
    enum Row {
        AN_OLDER_SNAPSHOT_IS_NOT_CACHED {
            @Override
            void run(TransactionTableTest test) {
                test.inTransaction(false, () -> {
                    test.jdbc.queryForList("SELECT * FROM users");
                    elsewhere(() -> {
                        test.change(17, "new");
                        return null;
                    });
                    return test.read(17);
                });
                assertThat(test.read(17)).isEqualTo("new");
            }
        },
        A_CHANGED_ROW_IS_READ_AS_IT_IS_NOW {
            @Override
            void run(TransactionTableTest test) {
                assertThat(test.read(17)).isEqualTo("old");
                assertThat(test.inTransaction(false, () -> test.changeAndRead(17, "new"))).isEqualTo("new");
                assertThat(test.read(17)).isEqualTo("new");
            }
        },
        A_CHANGE_THAT_IS_ROLLED_BACK_IS_NOT_CACHED {
            @Override
            void run(TransactionTableTest test) {
                assertThat(test.inTransaction(true, () -> test.changeAndRead(17, "new"))).isEqualTo("new");
                assertThat(test.read(17)).isEqualTo("old");
            }
        },
        A_NEW_ROW_IS_FOUND {
            @Override
            void run(TransactionTableTest test) {
                assertThat(test.read(18)).isNull();
                assertThat(test.inTransaction(false, () -> {
                    test.save(18, "Eve");
                    return test.read(18);
                })).isEqualTo("Eve");
            }
        },
        A_NEW_ROW_THAT_IS_ROLLED_BACK_IS_NOT_CACHED {
            @Override
            void run(TransactionTableTest test) {
                assertThat(test.inTransaction(true, () -> test.changeAndRead(18, "Eve"))).isEqualTo("Eve");
                assertThat(test.read(18)).isNull();
            }
        },
        A_DELETED_ROW_IS_NOT_FOUND {
            @Override
            void run(TransactionTableTest test) {
                assertThat(test.read(17)).isEqualTo("old");
                assertThat(test.inTransaction(false, () -> test.changeAndRead(17, null))).isNull();
                assertThat(test.read(17)).isNull();
            }
        };

        abstract void run(TransactionTableTest test);
    }

    static Stream<Arguments> cases() {
        return Stream.of(Row.values()).flatMap(row ->
                Stream.of(TransactionDefinition.ISOLATION_READ_COMMITTED, TransactionDefinition.ISOLATION_REPEATABLE_READ).flatMap(
                        level -> Stream.of(Arguments.of(row, level, false), Arguments.of(row, level, true))));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void theTable(Row row, int level, boolean isFed) {
        this.isFed = isFed;
        server.commands().flushall();
        Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        jdbc.update("DELETE FROM users");
        save(17, "old");
        transaction = new TransactionTemplate(new DataSourceTransactionManager(pool));
        transaction.setIsolationLevel(level);
        // A writer who announces its changes, or stands for the follower.
        writer = Guard.builder(client, "users", GuardCacheManager.serialization(getClass().getClassLoader())).build();
        cache = new GuardCache("users", Guard.builder(client, "users",
                GuardCacheManager.serialization(getClass().getClassLoader())).feed(isFed).build());
        row.run(this);
    }

    private static <T> T elsewhere(Supplier<T> task) {
        return CompletableFuture.supplyAsync(task).join();
    }

    private String read(long id) {
        return cache.get(id, () -> DataAccessUtils.singleResult(
                jdbc.queryForList("SELECT name FROM users WHERE id = ?", String.class, id)));
    }

    private void save(long id, String name) {
        jdbc.update("DELETE FROM users WHERE id = ?", id);
        if (name != null) {
            jdbc.update("INSERT INTO users VALUES (?, ?)", id, name);
        }
    }

    /** A change by another program. */
    private void change(long id, String name) {
        writer.changed(id, () -> save(id, name));
    }

    private String changeAndRead(long id, String name) {
        save(id, name);
        cache.evict(id);
        return read(id);
    }

    private String inTransaction(boolean isRolledBack, Supplier<String> body) {
        String result = transaction.execute(status -> {
            if (isRolledBack) {
                status.setRollbackOnly();
            }
            return body.get();
        });
        if (isFed && !isRolledBack) {
            // The follower reads the commit in the log.
            writer.confirm(17L, 18L);
        }
        return result;
    }
}
