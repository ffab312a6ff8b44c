package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import org.springframework.boot.ApplicationArguments;
import org.springframework.boot.ApplicationRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

/** Fills the filter when a program starts. README.md links to this file. */
@Component
class FillUsers implements ApplicationRunner {
    private final Bloomgate client;
    private final JdbcTemplate jdbc;

    FillUsers(Bloomgate client, JdbcTemplate jdbc) {
        this.client = client;
        this.jdbc = jdbc;
    }

    @Override
    @Transactional
    public void run(ApplicationArguments arguments) {
        boolean isLocked = !jdbc.queryForList("SELECT name FROM filters WHERE name = 'users' FOR UPDATE SKIP LOCKED").isEmpty();
        if (isLocked && new Filter(client, "users").card() == 0) {
            new Filter(client, "{users}~filling").drop(); // remains of a killed instance
            Iterable<Long> ids = () -> jdbc.queryForStream("SELECT id FROM users", (row, index) -> row.getLong(1)).iterator();
            Filter.fill(client, "users", ids, 0.001, 1_000_000, CreationOptions.defaults().hash("siphash"), Durability.NONE);
        }
    }

    @Bean
    static GuardCustomizer announceDuringFills() {
        return (cache, guard) -> {
            if (cache.equals("users")) {
                guard.announceTo("{users}~filling");
            }
        };
    }
}
