package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringBootVersion;

/** The releases of Spring Boot: the release under test, and the releases on the page. */
class ReleaseTest {
    @Test
    void theTestsRunOnTheReleaseThatMavenNames() {
        assertThat(SpringBootVersion.getVersion()).isEqualTo(System.getProperty("spring-boot.version"));
    }

    @Test
    void theMetadataForEditorsHasDescriptions() throws IOException {
        try (InputStream metadata = getClass().getResourceAsStream("/META-INF/spring-configuration-metadata.json")) {
            assertThat(new String(metadata.readAllBytes(), StandardCharsets.UTF_8)).containsIgnoringCase("time limit of a command");
        }
    }

    @Test
    void thePageNamesTheReleasesThatAreTested() throws IOException {
        String tested = Files.readString(Path.of("../pom.xml")).replaceAll("(?s).*<spring-boot.tested>(.*?)<.*", "$1");
        String page = Files.readString(Path.of("../README.md"));
        assertThat(tested.split(" ")).allSatisfy(release -> assertThat(page).contains("| " + release + " |"));
    }
}
