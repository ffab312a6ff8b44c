package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The time at which a fill opens its source of ids. */
class FillSourceTest {
    /** A row that is committed after the source was opened is announced to the filling name, so this key must exist before. */
    @Test
    void theSourceIsOpenedWhenWritersCanAnnounceToTheFillingName() throws IOException {
        try (Servers servers = new Servers()) {
            var server = servers.start();
            try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
                Iterable<Long> ids = () -> {
                    assertEquals(1, server.commands().exists("{users}~filling"));
                    return List.of(17L).iterator();
                };
                assertEquals(1, Filter.fill(client, "users", ids, 0.001, 1000, CreationOptions.defaults(), Durability.NONE));
            }
        }
    }
}
