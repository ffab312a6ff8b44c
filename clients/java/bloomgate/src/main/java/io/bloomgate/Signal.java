package io.bloomgate;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Notifies the parts of a call that it was cancelled, or that its thread was interrupted. */
final class Signal {
    private final Set<Runnable> listeners = new LinkedHashSet<>();
    private boolean aborted;

    synchronized boolean isAborted() {
        return aborted;
    }

    /** Calls a listener when the call is aborted, or at once if it already is. */
    void add(Runnable listener) {
        synchronized (this) {
            if (!aborted) {
                listeners.add(listener);
                return;
            }
        }
        listener.run();
    }

    synchronized void remove(Runnable listener) {
        listeners.remove(listener);
    }

    void abort() {
        List<Runnable> called;
        synchronized (this) {
            aborted = true;
            called = List.copyOf(listeners);
            listeners.clear();
        }
        called.forEach(Runnable::run);
    }
}
