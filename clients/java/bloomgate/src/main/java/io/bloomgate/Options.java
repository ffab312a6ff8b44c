package io.bloomgate;

import java.math.BigDecimal;
import java.time.Duration;

/** Checks options, and writes them as words of commands. */
final class Options {
    /** The longest time that is accepted, some 317 years. */
    private static final long MOST_MS = 10_000_000_000_000L;

    private Options() {}

    /** Converts a time, which is at least some milliseconds. One with a fraction of a millisecond is rounded up. */
    static long milliseconds(String name, Duration time, long least) {
        if (time == null || time.isNegative() || time.compareTo(Duration.ofMillis(MOST_MS)) > 0) {
            throw new IllegalArgumentException(name + " is a time of at most " + MOST_MS + " ms, not " + time);
        }
        long ms = time.toMillis() + (time.toNanosPart() % 1_000_000 == 0 ? 0 : 1);
        if (ms < least) {
            throw new IllegalArgumentException(name + " is at least " + least + " ms, not " + time);
        }
        return ms;
    }

    static int atLeast(String name, int number, int least) {
        if (number < least) {
            throw new IllegalArgumentException(name + " is at least " + least + ", not " + number);
        }
        return number;
    }

    /** Writes a number without an exponent. */
    static String decimal(double number) {
        if (Double.isNaN(number) || Double.isInfinite(number)) {
            throw new IllegalArgumentException(number + " is not a number");
        }
        BigDecimal exact = new BigDecimal(Double.toString(number));
        return exact.signum() == 0 ? "0" : exact.stripTrailingZeros().toPlainString();
    }
}
