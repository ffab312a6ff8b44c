package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.BloomgateException;
import io.bloomgate.Filter;
import io.bloomgate.Info;
import java.util.LinkedHashMap;
import java.util.Map;

/** The current state of the guarded caches' filters, for the start of a program and for its health. */
final class FilterStates {
    private FilterStates() {}

    /** Returns for each cache the {@link Info} of its filter, or an error. A server that does not answer is asked once. */
    static Map<String, Object> ask(Bloomgate client, BloomgateProperties properties) {
        Map<String, Object> states = new LinkedHashMap<>();
        RuntimeException failure = null;
        for (String cache : properties.caches().keySet()) {
            try {
                states.put(cache, failure != null ? failure : new Filter(client, properties.filter(cache)).info());
            } catch (BloomgateException.TimedOut | BloomgateException.Disconnected error) {
                failure = error;
                states.put(cache, error);
            } catch (RuntimeException error) {
                states.put(cache, error);
            }
        }
        return states;
    }

    static boolean areUp(Map<String, Object> states) {
        return states.values().stream().allMatch(Info.class::isInstance);
    }

    /** Returns the details for a health endpoint. */
    static Map<String, Object> details(Map<String, Object> states, BloomgateProperties properties) {
        Map<String, Object> details = new LinkedHashMap<>();
        states.forEach((cache, state) -> {
            String filter = properties.filter(cache);
            details.put(cache, state instanceof Info info ? Map.of("filter", filter, "items", info.items(), "capacity", info.capacity())
                    : Map.of("filter", filter, "error", state.toString()));
        });
        return details;
    }
}
