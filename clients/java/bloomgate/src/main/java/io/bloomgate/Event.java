package io.bloomgate;

import java.util.Locale;

/** The events that a guard counts. */
public enum Event {
    /** BF.FETCH answered that the row does not exist. */
    ABSENT,
    /** BF.FETCH answered with a cached value. */
    HIT,
    /** BF.FETCH answered with an old value, and a lease to replace it. */
    STALE,
    /** BF.FETCH answered with a lease to load the row. */
    LOAD,
    /** BF.FETCH answered that another caller loads the row. */
    WAIT,
    /** BF.FETCH answered that the last load of the row failed, and that its back-off has not ended. */
    FAILED,
    /** A loaded row was cached. */
    FILLED,
    /** A loaded row was not cached, because it changed or another caller filled it during the load. */
    LEASE_LOST,
    /** A load failed. */
    LOAD_FAILED,
    /** An old value was served because a load failed. */
    STALE_SERVED,
    /** An old value was served because a load took too long. */
    SOFT_TIMEOUT,
    /** A row was read from the database without a lease: the server failed, or another caller took too long. */
    UNGUARDED,
    /** A caller's answer or error was shared with the callers of this process that waited for it. */
    SHARED,
    /** The codec could not decode a cached value. */
    UNDECODABLE,
    /** The server did not answer a command, or rejected it. */
    ERRORS;

    /** Returns the event's name, which is the same in every client. */
    public String label() {
        return name().toLowerCase(Locale.ROOT);
    }
}
