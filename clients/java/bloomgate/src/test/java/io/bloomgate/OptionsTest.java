package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.Locale;
import org.junit.jupiter.api.Test;

/** The ranges and defaults of a guard's options match clients/specification/options.json. */
class OptionsTest {
    private static Guard.Builder<byte[]> guard(Bloomgate client) {
        return Guard.builder(client, "users", Codec.bytes());
    }

    private static Object field(Object from, Class<?> type, String name) throws ReflectiveOperationException {
        var field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(from);
    }

    @Test
    void theOptionsMatchTheSpecification() throws Exception {
        JsonNode options = Adapter.MAPPER.readTree(new File("../../specification/options.json")).get("options");
        int ranges = 0;
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:1")) {
            for (JsonNode option : options) {
                String name = option.get("name").textValue();
                if (!option.has("least")) {
                    continue;
                }
                ranges++;
                var range = (Options.Range) field(null, Options.class, name.toUpperCase(Locale.ROOT));
                assertEquals(CaseProcess.camel(name), range.name());
                assertEquals(option.get("least").longValue(), range.least(), name);
                assertEquals(option.get("most").longValue(), range.most(), name);
                boolean isTime = option.get("unit").textValue().equals("ms") && !name.equals("replicas_timeout");
                Object found = field(guard(client), Guard.Builder.class, range.name() + (isTime ? "Ms" : ""));
                double value = found instanceof Duration time ? time.toMillis() : found == null ? -1 : ((Number) found).doubleValue();
                assertEquals(option.get("default").isNull() ? -1 : option.get("default").doubleValue(), value, name);
            }
        }
        assertTrue(ranges >= 11, "the file has " + ranges + " ranges");
    }

    @Test
    void anOptionOutOfItsRangeIsRefusedWithTheRange() throws IOException {
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:1")) {
            Guard.Builder<byte[]> builder = guard(client);
            String message = assertThrows(IllegalArgumentException.class, () -> builder.lease(Duration.ofHours(1).plusNanos(1))).getMessage();
            assertTrue(message.contains("lease is from 1 to 3600000 ms"), message);
            builder.lease(Duration.ofHours(1)).ttl(Duration.ofMillis(1));
            assertThrows(IllegalArgumentException.class, () -> builder.lease(Duration.ofNanos(1)));
            assertThrows(IllegalArgumentException.class, () -> builder.ttl(Duration.ofMillis(-1)));
            assertThrows(IllegalArgumentException.class, () -> builder.ttl(null));
            assertThrows(IllegalArgumentException.class, () -> builder.beta(Double.NaN));
            assertThrows(IllegalArgumentException.class, () -> builder.attempts(1001));
            assertThrows(IllegalArgumentException.class, () -> guard(client).fresh(Duration.ofSeconds(5)).build());
            assertThrows(IllegalArgumentException.class, () -> guard(client).feed(true).fresh(Duration.ofMillis(2999)).build());
            assertThrows(IllegalArgumentException.class, () -> builder.replicas(-1).build());
            Guard<Integer, byte[]> guard = guard(client).build();
            assertThrows(IllegalArgumentException.class, () -> guard.get(17, id -> new byte[0], Duration.ofDays(20_000)));
        }
    }
}
