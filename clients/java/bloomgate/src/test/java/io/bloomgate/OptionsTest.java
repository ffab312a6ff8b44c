package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Values of options that the cases of the specification do not have: durations with nanoseconds, null and NaN. */
class OptionsTest {
    private static Guard.Builder<byte[]> guard(Bloomgate client) {
        return Guard.builder(client, "users", Codec.bytes());
    }

    @Test
    void anOptionOutOfItsRangeIsRefusedWithTheRange() throws IOException {
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:1")) {
            Guard.Builder<byte[]> builder = guard(client);
            String message = assertThrows(IllegalArgumentException.class, () -> builder.lease(Duration.ofHours(1).plusNanos(1))).getMessage();
            assertTrue(message.contains("lease is from 1 to 3600000 ms"), message);
            Guard<Integer, byte[]> guard = guard(client).build();
            List<Executable> refused = List.of(() -> builder.lease(Duration.ofNanos(1)), () -> builder.ttl(null), () -> builder.beta(Double.NaN),
                    () -> guard(client).feed(true).fresh(Duration.ofMillis(2999)).build(),
                    () -> guard.get(17, id -> new byte[0], Duration.ofDays(20_000)));
            refused.forEach(call -> assertThrows(IllegalArgumentException.class, call));
        }
    }
}
