package io.bloomgate;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** Warnings of a guard that continues without its server, at most one of each kind per minute. */
final class Warnings {
    private static final Logger LOGGER = System.getLogger("io.bloomgate");
    private static final long EVERY_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final Map<String, Long> last = new ConcurrentHashMap<>();

    void about(String what, @Nullable Throwable error) {
        long now = System.nanoTime();
        Long kept = last.merge(what, now, (before, after) -> after - before < EVERY_NANOS ? before : after);
        if (kept == now) {
            LOGGER.log(Level.WARNING, error == null ? what : what + ": " + error, (Throwable) null);
        }
    }
}
