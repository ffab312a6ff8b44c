package io.bloomgate;

import java.util.Locale;

/** What a guard counts. */
public enum Event {
    /** BF.FETCH has answered that there is no such row. */
    ABSENT,
    /** BF.FETCH has answered a cached value. */
    HIT,
    /** BF.FETCH has answered an old value, and a lease to replace it. */
    STALE,
    /** BF.FETCH has answered a lease to load the row. */
    LOAD,
    /** BF.FETCH has answered that another caller loads the row. */
    WAIT,
    /** BF.FETCH has answered that the load of the row has failed, and its back-off has not ended. */
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
    /** A caller of this process got an answer, or an error, that those waiting for it share. */
    SHARED,
    /** The codec could not decode a cached value. */
    UNDECODABLE,
    /** The server did not answer a command, or refused it. */
    ERRORS;

    /** Returns the name that the event has in every language. */
    public String label() {
        return name().toLowerCase(Locale.ROOT);
    }
}
