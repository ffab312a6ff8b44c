package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.NullNode;
import io.bloomgate.BloomgateException.Disconnected;
import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.BloomgateException.Unconfirmed;
import io.bloomgate.CaseProcess.Call;
import io.bloomgate.CaseProcess.FatalError;
import io.bloomgate.CaseProcess.LoadError;
import io.bloomgate.ScriptedServer.Arrival;
import io.bloomgate.Words.SpecificationError;
import io.lettuce.core.RedisCommandExecutionException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.StreamSupport;

/** One run of one case, on a scripted server or, without one, on a real one. */
final class Run {
    /** The steps, and the further members of each. */
    private static final Map<String, List<String>> STEPS = Map.ofEntries(
            Map.entry("call", List.of("with", "process", "result", "error", "message", "answers", "ids")),
            Map.entry("start", List.of("call", "with", "process")),
            Map.entry("expect", List.of("reply", "hold", "on", "not_on")),
            Map.entry("expect_all", List.of()),
            Map.entry("answer", List.of("reply")),
            Map.entry("called", List.of("ids")),
            Map.entry("return", List.of("value")),
            Map.entry("raise", List.of("message", "fatal")),
            Map.entry("cancel", List.of()),
            Map.entry("end", List.of("result", "error", "message", "answers", "ids")),
            Map.entry("quiet", List.of()),
            Map.entry("pause", List.of()));

    private static final List<String> SCRIPTED_ONLY = List.of("expect", "expect_all", "answer", "quiet");

    private final JsonNode given;
    private final ScriptedServer scripted;
    private final Function<String, CaseProcess> processes;
    private final Map<String, Call> calls = new HashMap<>();
    private final Set<String> running = new LinkedHashSet<>();
    private final Map<String, Arrival> held = new HashMap<>();
    private final Map<String, ScriptedServer.Connected> connections = new HashMap<>();

    Run(JsonNode given, Function<String, CaseProcess> processes, ScriptedServer scripted) {
        this.given = given;
        this.processes = processes;
        this.scripted = scripted;
    }

    void run() {
        int number = 0;
        for (JsonNode step : given.get("steps")) {
            number++;
            Iterator<String> members = step.fieldNames();
            String name = members.next();
            if (!STEPS.containsKey(name)) {
                throw new SpecificationError("unknown step " + step);
            }
            Words.known("step " + number, members, STEPS.get(name));
            if (scripted == null && SCRIPTED_ONLY.contains(name)) {
                continue;
            }
            try {
                step(name, step);
            } catch (Throwable error) {
                throw new AssertionError("step " + number + ", " + step + ": " + error, error);
            }
        }
        assertEquals(Set.of(), running, "these calls have no step `end`");
        if (scripted != null) {
            assertNull(scripted.unexpected(), "unexpected");
            assertEquals(List.of(), List.copyOf(scripted.violations));
        }
    }

    private void step(String name, JsonNode step) throws Exception {
        String actor = step.get(name).asText();
        switch (name) {
            case "call" -> {
                Call call = new Call(actor, step.path("with"));
                processes.apply(step.path("process").asText("A")).begin(call);
                checkOutcome(call, step);
            }
            case "start" -> {
                Call call = new Call(step.get("call").textValue(), step.path("with"));
                calls.put(actor, call);
                running.add(actor);
                processes.apply(step.path("process").asText("A")).begin(call);
            }
            case "expect" -> expect(List.of(step));
            case "expect_all" -> expect(StreamSupport.stream(step.get(name).spliterator(), false).toList());
            case "answer" -> {
                Arrival arrival = held.remove(actor);
                assertNotNull(arrival, "no command is held as " + actor);
                arrival.answer(reply(step));
            }
            case "called" -> {
                Set<Object> ids = call(actor).untilCalled();
                if (step.has("ids")) {
                    assertEquals(Set.copyOf(texts(Words.itemList(step.get("ids")))), Set.copyOf(texts(ids)));
                }
            }
            case "return" -> call(actor).takePending().complete(step.get("value"));
            case "raise" -> {
                String message = step.get("message").textValue();
                call(actor).takePending().completeExceptionally(
                        step.path("fatal").asBoolean(false) ? new FatalError(message) : new LoadError(message));
            }
            case "cancel" -> call(actor).cancel();
            case "end" -> {
                assertTrue(running.remove(actor), actor + " has not begun");
                checkOutcome(call(actor), step);
            }
            case "quiet" -> {
                Thread.sleep(step.get(name).longValue());
                assertNull(scripted.unexpected(), "a command arrived");
            }
            case "pause" -> Thread.sleep(step.get(name).longValue());
            default -> throw new SpecificationError("unknown step " + name);
        }
    }

    private static List<String> texts(Iterable<?> items) {
        List<String> texts = new ArrayList<>();
        items.forEach(item -> texts.add(String.valueOf(item)));
        return texts;
    }

    private static JsonNode reply(JsonNode step) {
        return step.has("reply") ? step.get("reply") : NullNode.getInstance();
    }

    private Call call(String actor) {
        Call call = calls.get(actor);
        assertNotNull(call, "there is no call " + actor);
        return call;
    }

    /** Takes as many commands as are expected, in any order. */
    private void expect(List<JsonNode> expected) throws Exception {
        List<JsonNode> left = new ArrayList<>(expected);
        while (!left.isEmpty()) {
            Arrival arrival = scripted.next(left);
            JsonNode step = left.stream().filter(one -> Words.commandMatches(one.get("expect"), arrival.words)).findFirst()
                    .orElseThrow(() -> new AssertionError(arrival + " arrived"));
            left.remove(step);
            Iterator<String> members = step.fieldNames();
            members.next();
            Words.known("expect", members, STEPS.get("expect"));
            serve(step, arrival);
        }
    }

    /** Checks the connection of a command, and replies to it or holds it. */
    private void serve(JsonNode step, Arrival arrival) throws Exception {
        if (step.has("on")) {
            String name = step.get("on").textValue();
            connections.putIfAbsent(name, arrival.connection);
            assertSame(connections.get(name), arrival.connection, arrival + " arrived on another connection than " + name);
        }
        if (step.has("not_on")) {
            String name = step.get("not_on").textValue();
            assertNotNull(connections.get(name));
            assertNotSame(connections.get(name), arrival.connection, arrival + " arrived on the connection " + name);
        }
        if (step.has("hold")) {
            held.put(step.get("hold").textValue(), arrival);
        } else {
            arrival.answer(reply(step));
        }
    }

    private void checkOutcome(Call call, JsonNode step) throws Exception {
        try {
            JsonNode result = call.ended.get(ScriptedServer.PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertTrue(!step.has("error"), "no error, the result is " + result);
            JsonNode wanted = step.has("result") ? step.get("result") : NullNode.getInstance();
            assertTrue(equal(wanted, result), "the result is " + result);
        } catch (TimeoutException late) {
            throw new AssertionError(call.name + " has not ended");
        } catch (ExecutionException failed) {
            checkError(failed.getCause(), step);
        } catch (CancellationException cancelled) {
            checkError(cancelled, step);
        }
        assertNull(call.called.peek(), call.name + " called its function once more");
    }

    private static void checkError(Throwable error, JsonNode step) {
        if (error instanceof SpecificationError unknown) {
            throw unknown;
        }
        if (!step.has("error") || !isRight(step.get("error").textValue(), error, step)) {
            throw new AssertionError("the call threw " + error, error);
        }
        if (step.has("answers")) {
            assertEquals(step.get("answers"), Words.MAPPER.valueToTree(((BloomgateException) error).answers()));
        }
        if (step.has("ids")) {
            List<String> ids = ((Unconfirmed) error).ids().stream().map(id -> new String(id, StandardCharsets.UTF_8)).toList();
            assertEquals(texts(Words.itemList(step.get("ids"))), ids);
        }
    }

    private static boolean isRight(String name, Throwable error, JsonNode step) {
        return switch (name) {
            case "FilterMissing", "FilterExists", "FilterFull", "FilterLoading", "ModuleMissing", "LoadFailed", "Unconfirmed" ->
                error instanceof BloomgateException && error.getClass().getSimpleName().equals(name);
            case "refused" -> error instanceof IllegalArgumentException;
            case "load", "shared" ->
                error instanceof LoadError && error.getMessage().equals(step.path("message").textValue());
            case "fatal" -> error instanceof FatalError && error.getMessage().equals(step.path("message").textValue());
            case "server" -> error instanceof RedisCommandExecutionException;
            case "connection" -> error instanceof Disconnected || error instanceof TimedOut;
            case "cancelled" -> error instanceof CancellationException;
            case "TimeoutError" -> error instanceof TimedOut;
            default -> throw new SpecificationError("unknown error " + name);
        };
    }

    /** Compares JSON values: floating-point numbers with a tolerance. */
    private static boolean equal(JsonNode expected, JsonNode found) {
        if (expected.has("repeat") && expected.has("times")) {
            boolean isEqual = found.size() == expected.get("times").intValue();
            for (JsonNode one : found) {
                isEqual &= equal(expected.get("repeat"), one);
            }
            return isEqual;
        }
        if (expected.isArray() && found.isArray()) {
            boolean isEqual = expected.size() == found.size();
            for (int index = 0; isEqual && index < expected.size(); index++) {
                isEqual = equal(expected.get(index), found.get(index));
            }
            return isEqual;
        }
        if (expected.isObject() && found.isObject()) {
            boolean isEqual = expected.size() == found.size();
            for (Iterator<String> names = expected.fieldNames(); isEqual && names.hasNext();) {
                String name = names.next();
                isEqual = found.has(name) && equal(expected.get(name), found.get(name));
            }
            return isEqual;
        }
        if (expected.isFloatingPointNumber() && found.isNumber()) {
            return Math.abs(expected.doubleValue() - found.doubleValue()) <= 1e-9 * Math.abs(expected.doubleValue());
        }
        if (expected.isIntegralNumber() && found.isIntegralNumber()) {
            return expected.longValue() == found.longValue();
        }
        return expected.equals(found);
    }
}
