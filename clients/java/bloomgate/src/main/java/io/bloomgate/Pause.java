package io.bloomgate;

/** Skips commands to a server that has not answered in time. */
final class Pause {
    /** How long a pause lasts. */
    static final long PAUSE_NANOS = 2_000_000_000;

    private long end;
    private volatile boolean holds;

    synchronized void begin() {
        end = System.nanoTime() + PAUSE_NANOS;
        holds = true;
    }

    void end() {
        holds = false;
    }

    /** Whether the server has not answered since it exceeded a time limit. */
    boolean isOn() {
        return holds;
    }

    /** Whether to skip the command. After a pause, one caller probes the server; the rest stay paused. */
    boolean holds() {
        if (!holds) {
            return false;
        }
        synchronized (this) {
            if (System.nanoTime() - end < 0) {
                return holds;
            }
            begin();
            return false;
        }
    }
}
