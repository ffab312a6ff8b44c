package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.slf4j.LoggerFactory;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.context.ApplicationContext;
import org.springframework.transaction.support.TransactionTemplate;

/** A cache with {@code feed=true}: its evictions end only when a follower that deletes its keys has been seen. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class FollowerCheckTest {
    private final Servers servers = new Servers();
    private final Logger logger = (Logger) LoggerFactory.getLogger(FollowerCheck.class);
    private final ListAppender<ILoggingEvent> log = new ListAppender<>();
    private Servers.Server server;
    private String uri;
    private ApplicationContextRunner runner;

    @BeforeAll
    void start() {
        server = servers.start("user reader on >secret ~users ~{users}* -@all +bf.fetch +bf.fill +bf.info +ping +hello +client");
        uri = "redis://127.0.0.1:" + server.port();
        runner = new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class))
                .withPropertyValues("bloomgate.uri=" + uri, "bloomgate.caches.users.feed=true");
        logger.setLevel(Level.WARN);
        logger.addAppender(log);
    }

    @AfterAll
    void end() throws IOException {
        logger.detachAppender(log);
        logger.setLevel(null);
        servers.close();
    }

    @BeforeEach
    void fill() {
        server.commands().flushall();
        try (Bloomgate client = Bloomgate.connect(uri)) {
            Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().hash("siphash"), Durability.NONE);
        }
        server.commands().configResetstat();
        log.list.clear();
        log.start();
    }


    private List<String> warnings() {
        return log.list.stream().map(ILoggingEvent::getFormattedMessage).toList();
    }

    private static Cache users(ApplicationContext context) {
        return context.getBean(CacheManager.class).getCache("users");
    }

    private boolean hasAnnounced() {
        boolean isCounted = server.commands().info("commandstats").contains("cmdstat_bf.changed:");
        server.commands().configResetstat();
        return isCounted;
    }

    @Test
    void evictionsEndWhenAFollowerHasBeenSeen() {
        runner.run(context -> {
            assertThat(warnings()).singleElement().asString().contains("the cache users", "no follower of its filter is alive");
            Cache users = users(context);
            assertThat(users.get(17L, () -> "old")).isEqualTo("old");
            users.evict(17L);
            assertThat(users.get(17L, () -> "new")).isEqualTo("new");
            assertThat(hasAnnounced()).isTrue();
            server.commands().set("{users}:feed", "1764400000000\n={users}:");
            users.evict(17L);
            server.commands().del("{users}:feed");
            users.evict(17L);
            assertThat(hasAnnounced()).isFalse();
            assertThat(warnings()).hasSize(1);
        });
    }

    @Test
    void aFollowerOfOtherKeysIsReportedAndEvictionsContinue() {
        for (String heartbeat : List.of("1\n={users}:name:", "1\n={users}2:\n^{people}:", "1\n={users}")) {
            server.commands().set("{users}:feed", heartbeat);
            log.list.clear();
            runner.run(context -> {
                assertThat(warnings()).singleElement().asString().contains("the cache users", "deletes other keys");
                users(context).evict(17L);
                assertThat(hasAnnounced()).isTrue();
                new TransactionTemplate(new Database()).executeWithoutResult(status -> users(context).evict(17L));
                assertThat(hasAnnounced()).isTrue();
            });
        }
    }

    @Test
    void aFollowerOfTheKeysIsEnough() {
        for (String heartbeat : List.of("1", "1\n={users}:name:\n={users}:", "1\n^{users}", "1\n^{users}:name:")) {
            server.commands().set("{users}:feed", heartbeat);
            runner.run(context -> {
                users(context).evict(17L);
                assertThat(hasAnnounced()).isFalse();
                assertThat(warnings()).isEmpty();
            });
        }
    }

    @Test
    void aUserWhoMayNotAnnounceIsNotStopped() {
        runner.withPropertyValues("bloomgate.uri=" + uri.replace("//", "//reader:secret@")).run(context -> {
            for (int time = 0; time < 2; time++) {
                users(context).evict(17L);
                new TransactionTemplate(new Database()).executeWithoutResult(status -> users(context).evict(17L));
            }
            assertThat(warnings()).hasSize(2).anySatisfy(line -> assertThat(line).contains("the follower cannot be asked for"))
                    .anySatisfy(line -> assertThat(line).contains("a change could not be announced"));
        });
    }

    @Test
    void aRealFollowerThatStartsLaterIsSeen() throws IOException {
        try (SqlServer database = SqlServer.postgres()) {
            runner.run(context -> {
                assertThat(warnings()).hasSize(1);
                database.follow("users", server);
                server.commands().configResetstat();
                users(context).evict(17L);
                assertThat(hasAnnounced()).isFalse();
                runner.withPropertyValues("bloomgate.cache.prefix={users}~").run(other ->
                        assertThat(warnings()).hasSize(2).last().asString().contains("deletes other keys"));
            });
        }
    }
}
