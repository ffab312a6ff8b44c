package io.bloomgate;

import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The acknowledgements that a write waits for, to survive a failover or a restart.
 *
 * @param replicas the number of replicas that must acknowledge a write (WAIT)
 * @param timeout how long to wait for the replicas or the disk
 * @param aof whether the append-only files on disk must contain it, including the primary's (WAITAOF)
 */
public record Durability(int replicas, Duration timeout, boolean aof) {
    /** Writes wait for no acknowledgement. */
    public static final Durability NONE = new Durability(0, Duration.ofSeconds(1), false);

    /** Checks the values. */
    public Durability {
        Options.REPLICAS.number(replicas);
        Options.REPLICAS_TIMEOUT.milliseconds(timeout);
    }

    /** Whether writes are followed by WAIT or WAITAOF. */
    boolean isAsked() {
        return aof || replicas > 0;
    }

    /** The time in milliseconds by which the server may delay the reply to a write. */
    long waitMs() {
        return isAsked() ? timeout.toMillis() : 0;
    }

    void check(Connection connection) {
        if (isAsked() && connection instanceof Cluster) {
            throw new IllegalArgumentException("replicas and aof need a single server, not a cluster");
        }
    }

    /**
     * Returns the command to send after writes, <b>on the same connection</b>: WAIT and WAITAOF wait for the writes on their own
     * connection, and answer at once on another.
     */
    List<Command> commands(byte[] key) {
        if (aof) {
            return List.of(Link.command(key, "WAITAOF", 1, replicas, timeout.toMillis()));
        }
        return replicas > 0 ? List.of(Link.command(key, "WAIT", replicas, timeout.toMillis())) : List.of();
    }

    /** Returns the error of the last outcome, which is the outcome of `commands`, or null. */
    @Nullable RuntimeException error(List<Object> outcomes) {
        if (!isAsked()) {
            return null;
        }
        Object outcome = outcomes.get(outcomes.size() - 1);
        if (outcome instanceof RuntimeException error) {
            return error;
        }
        if (aof && Replies.integer(Replies.list(outcome).get(0)) == 0) {
            return new TimedOut("the write is not in the server's append-only file yet");
        }
        long reached = Replies.integer(aof ? Replies.list(outcome).get(1) : outcome);
        return reached < replicas ? new TimedOut(reached + " of " + replicas + " replica(s) have the write") : null;
    }
}
