package io.bloomgate;

/** Keeps callers from a server that has not answered in time. */
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

    /** Whether a caller has to leave the server alone. After a pause this lets one caller through, while it goes on for the others. */
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
