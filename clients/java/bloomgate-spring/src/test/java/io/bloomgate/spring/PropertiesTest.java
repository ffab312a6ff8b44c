package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.bloomgate.Bloomgate;
import io.bloomgate.BloomgateException;
import io.bloomgate.Codec;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.yaml.snakeyaml.Yaml;

/** The properties, and their metadata for editors. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class PropertiesTest {
    private final Servers servers = new Servers();
    private Servers.Server server;
    private ApplicationContextRunner runner;

    @BeforeAll
    void start() {
        server = servers.start();
        try (Bloomgate client = Bloomgate.connect("redis://127.0.0.1:" + server.port())) {
            Filter.fill(client, "users", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        }
        runner = new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(BloomgateAutoConfiguration.class))
                .withPropertyValues("bloomgate.uri=redis://127.0.0.1:" + server.port(), "bloomgate.caches.users.ttl=1h");
    }

    @AfterAll
    void end() throws IOException {
        servers.close();
    }

    /** Parses JSON as YAML, because every Spring Boot has a YAML parser, which lacks one escape of JSON. */
    private static List<Map<String, Object>> objects(InputStream json, String list) throws IOException {
        Map<String, List<Map<String, Object>>> parsed =
                new Yaml().load(new String(json.readAllBytes(), StandardCharsets.UTF_8).replace("\\/", "/"));
        return parsed.get(list);
    }

    private static List<Map<String, Object>> options() throws IOException {
        return objects(Files.newInputStream(Path.of("../../specification/options.json")), "options");
    }

    /** Returns the property of an option of the guard. */
    private static String property(Map<String, Object> option) {
        return "bloomgate.cache." + option.get("name").toString().replaceFirst("^wait$", "wait-time").replace('_', '-');
    }

    private static long number(Object value) {
        return value instanceof Number number ? number.longValue() : DurationStyle.detectAndParse(value.toString()).toMillis();
    }

    @Test
    void theDefaultsMatchTheGuard() throws IOException {
        Map<String, Long> guard = new HashMap<>();
        options().stream().filter(option -> option.get("default") instanceof Number)
                .forEach(option -> guard.put(property(option), number(option.get("default"))));
        Map<String, Long> shown = new HashMap<>();
        objects(getClass().getResourceAsStream("/META-INF/spring-configuration-metadata.json"), "properties").stream()
                .filter(one -> guard.containsKey(one.get("name")) && one.containsKey("defaultValue"))
                .forEach(one -> shown.put(one.get("name").toString(), number(one.get("defaultValue"))));
        assertThat(shown).isEqualTo(guard);
    }

    static Stream<Arguments> ranges() throws IOException {
        Stream<Arguments> ofCaches = options().stream().filter(option -> option.containsKey("least")).map(option -> Arguments.of(
                property(option), number(option.get("least")), number(option.get("most")), option.get("unit").equals("ms") ? "ms" : ""));
        return Stream.concat(ofCaches, Stream.of(Arguments.of("bloomgate.timeout", 1, 86_400_000, "ms"),
                Arguments.of("bloomgate.connect-timeout", 1, 86_400_000, "ms"), Arguments.of("bloomgate.waiting-connections", 1, 10_000, "")));
    }

    @ParameterizedTest
    @MethodSource("ranges")
    void theRangesMatchTheGuard(String name, long least, long most, String unit) {
        for (long inside : new long[] {least, most}) {
            runner.withPropertyValues(name + "=" + inside + unit).run(context -> assertThat(context).hasNotFailed());
        }
        for (long outside : new long[] {least - 1, most + 1}) {
            runner.withPropertyValues(name + "=" + outside + unit).run(context -> assertThat(context).getFailure().rootCause()
                    .hasMessageContaining(" is from " + least + " to " + most));
        }
    }

    @Test
    void writersWaitForReplicasAndTheDisk() {
        runner.withPropertyValues("bloomgate.cache.replicas=1", "bloomgate.cache.replicas-timeout=50ms", "bloomgate.cache.patience=0s",
                "bloomgate.caches.fed.feed=true").run(context -> {
                    Cache users = context.getBean(CacheManager.class).getCache("users");
                    assertThat(catchThrowable(() -> users.evict(17L)))
                            .isInstanceOf(BloomgateException.Unconfirmed.class).hasStackTraceContaining("0 of 1 replica(s)");
                });
        runner.withPropertyValues("bloomgate.caches.users.aof=true", "bloomgate.cache.patience=0s").run(context ->
                assertThat(catchThrowable(
                        () -> context.getBean(CacheManager.class).getCache("users").evict(17L)))
                        .isInstanceOf(BloomgateException.Unconfirmed.class));
    }

    @Test
    void idsAreAnnouncedToFiltersThatAreBeingFilled() {
        runner.withPropertyValues("bloomgate.caches.users.announce-to=next,{users}next").run(context -> {
            new Filter(context.getBean(Bloomgate.class), "next").reserve(0.01, 100);
            new Filter(context.getBean(Bloomgate.class), "{users}next").reserve(0.01, 100);
            context.getBean(CacheManager.class).getCache("users").evict(18L);
            assertThat(new Filter(context.getBean(Bloomgate.class), "next").contains(18L)).isTrue();
            assertThat(new Filter(context.getBean(Bloomgate.class), "{users}next").contains(18L)).isTrue();
        });
    }

    @Test
    void loadersOfFuturesRunInTheExecutorOfTheProgram() {
        Executor own = task -> new Thread(task, "own").start();
        runner.withBean("mine", Executor.class, () -> own).withPropertyValues("bloomgate.executor=mine").run(context ->
                assertThat(context.getBean(CacheManager.class).getCache("users").retrieve(17L,
                        () -> CompletableFuture.completedFuture(Thread.currentThread().getName())).join()).isEqualTo("own"));
    }

    /** A codec of one class, in which a row's bytes can be recognised. */
    static final class Durations implements Codec<Duration> {
        @Override
        public byte[] encode(Duration row) {
            return ("codec " + row).getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public Duration decode(byte[] bytes) {
            return Duration.parse(new String(bytes, StandardCharsets.US_ASCII).substring(6));
        }
    }

    @Test
    void aCodecOfAnyClassIsUsed() {
        server.commands().del("{users}:17");
        runner.withBean(Durations.class).run(context -> {
            Cache users = context.getBean(CacheManager.class).getCache("users");
            for (int time = 0; time < 2; time++) {
                assertThat(users.get(17L, () -> Duration.ofDays(1))).isEqualTo(Duration.ofDays(1));
            }
            assertThat(server.commands().get("{users}:17")).contains("codec PT24H");
        });
        server.commands().del("{users}:17");
    }
}
