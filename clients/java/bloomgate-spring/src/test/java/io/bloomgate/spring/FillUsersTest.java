package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.bloomgate.Bloomgate;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cache.CacheManager;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.core.env.Environment;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.core.RowMapper;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.annotation.EnableTransactionManagement;

/** The filter that FillUsers fills at the start of a program: with several instances, and after an instance was killed. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class FillUsersTest {
    private static final int ROWS = 20_000;
    private static final int BEFORE_THE_PAUSE = 15_000;

    private final Servers servers = new Servers();
    private Servers.Server server;
    private SqlServer database;

    @BeforeAll
    void start() throws IOException {
        database = SqlServer.postgres();
        database.jdbc.update("INSERT INTO users SELECT id, 'a name' FROM generate_series(1, ?) AS id", ROWS);
        database.jdbc.execute("CREATE TABLE filters (name varchar(100) PRIMARY KEY)");
        database.jdbc.update("INSERT INTO filters VALUES ('users')");
        server = servers.start();
    }

    @AfterAll
    void end() throws IOException {
        if (database != null) {
            database.close();
        }
        servers.close();
    }

    @BeforeEach
    void clear() {
        server.commands().flushall();
        server.commands().configResetstat();
    }

    /** A program whose table is read slowly on request. */
    @Configuration
    @EnableTransactionManagement
    @EnableAutoConfiguration(excludeName = {
        "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
        "org.springframework.boot.autoconfigure.jdbc.JdbcTemplateAutoConfiguration"
    })
    @Import(FillUsers.class)
    static class Program {
        static final CountDownLatch CONTINUES = new CountDownLatch(1);

        @Bean
        PlatformTransactionManager transactionManager(JdbcTemplate jdbc) {
            return new DataSourceTransactionManager(jdbc.getDataSource());
        }

        @Bean
        JdbcTemplate jdbc(Environment environment) {
            JdbcTemplate jdbc = new JdbcTemplate(new DriverManagerDataSource(environment.getProperty("test.database"), "guard", "")) {
                @Override
                public <T> Stream<T> queryForStream(String sql, RowMapper<T> mapper) {
                    Stream<T> rows = super.queryForStream(sql, mapper);
                    return environment.getProperty("test.pauses", Boolean.class, false) ? rows.peek(Program::pause) : rows;
                }
            };
            jdbc.setFetchSize(1000);
            return jdbc;
        }

        private static void pause(Object id) {
            if (id.equals((long) BEFORE_THE_PAUSE)) {
                try {
                    CONTINUES.await();
                } catch (InterruptedException interrupt) {
                    throw new IllegalStateException(interrupt);
                }
            }
        }

        /** An instance in a separate process. */
        public static void main(String[] properties) {
            launch(properties);
        }

        static ConfigurableApplicationContext launch(String... properties) {
            return new SpringApplicationBuilder(Program.class).web(WebApplicationType.NONE).bannerMode(Banner.Mode.OFF)
                    .properties(properties).run();
        }
    }

    private String[] properties(boolean pauses) {
        return new String[] {"bloomgate.uri=redis://127.0.0.1:" + server.port(), "bloomgate.caches.users.trust=filter",
                "test.database=" + database.url(), "test.pauses=" + pauses};
    }

    private void checkFilled() {
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            Filter users = new Filter(client, "users");
            assertThat(users.containsAll(LongStream.rangeClosed(1, ROWS).boxed().toList())).doesNotContain(false);
            assertThat(server.commands().exists("{users}~filling")).isZero();
        }
    }

    private Process launchPaused() throws IOException {
        Process process = new ProcessBuilder(Stream.concat(
                Stream.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp", System.getProperty("java.class.path"),
                        Program.class.getName()), Stream.of(properties(true))).toList()).inheritIO().start();
        Servers.eventually("a filter that is being filled", () -> {
            assertThat(process.isAlive()).isTrue();
            return server.commands().exists("{users}~filling") == 1;
        });
        return process;
    }

    @Test
    void twoInstancesThatStartAtOnceFillOnce() {
        List<CompletableFuture<ConfigurableApplicationContext>> both = Stream.of(1, 2).map(instance ->
                CompletableFuture.supplyAsync(() -> Program.launch(properties(false)))).toList();
        both.forEach(instance -> instance.join().close());
        checkFilled();
        assertThat(server.commands().info("commandstats")).contains("cmdstat_rename:calls=1,");
    }

    @Test
    void anInstanceStartsWhileAnotherFillsAndAnnouncesToItsFilter() throws IOException {
        Process filling = launchPaused();
        try (var second = Program.launch(properties(false))) {
            assertThat(server.commands().exists("users")).isZero();
            second.getBean(CacheManager.class).getCache("users").evict(ROWS + 1L);
            try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
                assertThat(new Filter(client, "{users}~filling").contains(ROWS + 1L)).isTrue();
            }
        } finally {
            filling.destroyForcibly().onExit().join();
        }
    }

    @Test
    void anInstanceThatWasKilledDuringTheFillIsReplaced() throws IOException {
        launchPaused().destroyForcibly().onExit().join();
        assertThat(server.commands().exists("{users}~filling")).isEqualTo(1);
        // The database releases the lock a moment later.
        Servers.eventually("the lock", () -> !database.jdbc.queryForList("SELECT name FROM filters FOR UPDATE SKIP LOCKED").isEmpty());
        Program.launch(properties(false)).close();
        checkFilled();
    }
}
