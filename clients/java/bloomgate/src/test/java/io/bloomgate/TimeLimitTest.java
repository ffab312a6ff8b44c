package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import org.junit.jupiter.api.condition.DisabledIfEnvironmentVariable;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Runs the cases with a short time limit by themselves: others would keep this process from answering in time. */
@DisabledIfEnvironmentVariable(named = "BLOOMGATE_SCRIPTED", matches = "no")
@Execution(ExecutionMode.CONCURRENT)
class TimeLimitTest {
    @ParameterizedTest(name = "{0}")
    @MethodSource("io.bloomgate.SpecificationTest#timed")
    void run(JsonNode one, boolean isAsync, int protocol) throws IOException {
        SpecificationTest.runScripted(one, isAsync, protocol);
    }
}
