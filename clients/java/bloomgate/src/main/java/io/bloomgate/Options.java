package io.bloomgate;

import java.math.BigDecimal;
import java.time.Duration;

/** Checks options, and formats them as words of commands. */
final class Options {
    private static final long DAY_MS = 86_400_000;

    // The ranges of a guard's options: scripts/generate-options writes them.
    static final Range TTL = new Range("ttl", 1, 1_000_000_000_000L);
    static final Range ABSENT_TTL = new Range("absentTtl", 1, 1_000_000_000_000L);
    static final Range LEASE = new Range("lease", 1, 3_600_000);
    static final Range WAIT = new Range("wait", 0, 86_400_000);
    static final Range ATTEMPTS = new Range("attempts", 1, 1000);
    static final Range FAIL_SAFE = new Range("failSafe", 0, 1_000_000_000_000L);
    static final Range SOFT_TIMEOUT = new Range("softTimeout", 0, 86_400_000);
    static final Range BETA = new Range("beta", 0, 1000);
    static final Range FRESH = new Range("fresh", 0, 3_600_000);
    static final Range PATIENCE = new Range("patience", 0, 86_400_000);
    static final Range REPLICAS = new Range("replicas", 0, 1000);
    static final Range REPLICAS_TIMEOUT = new Range("replicasTimeout", 1, 86_400_000);

    static final Range TIMEOUT = new Range("timeout", 1, DAY_MS);
    static final Range CONNECT_TIMEOUT = new Range("connectTimeout", 1, DAY_MS);
    static final Range WAITING_CONNECTIONS = new Range("waitingConnections", 1, 10_000);

    private Options() {}

    /** The range of an option: times in milliseconds. */
    record Range(String name, long least, long most) {
        /** Converts a time to milliseconds, rounded up. */
        long milliseconds(Duration time) {
            boolean isIn = time != null && time.compareTo(Duration.ofMillis(least)) >= 0 && time.compareTo(Duration.ofMillis(most)) <= 0;
            if (!isIn) {
                throw new IllegalArgumentException(name + " is from " + least + " to " + most + " ms, not " + time);
            }
            return time.toMillis() + (time.toNanosPart() % 1_000_000 == 0 ? 0 : 1);
        }

        int number(int number) {
            return (int) factor(number);
        }

        double factor(double number) {
            if (!(number >= least && number <= most)) {
                throw new IllegalArgumentException(name + " is from " + least + " to " + most + ", not " + number);
            }
            return number;
        }
    }

    /** Formats a number without an exponent. */
    static String decimal(double number) {
        BigDecimal exact = new BigDecimal(Double.toString(finite(number)));
        return exact.signum() == 0 ? "0" : exact.stripTrailingZeros().toPlainString();
    }

    /** Returns a finite number; throws for any other. */
    static double finite(double number) {
        if (Double.isNaN(number) || Double.isInfinite(number)) {
            throw new IllegalArgumentException(number + " is not a finite number");
        }
        return number;
    }
}
