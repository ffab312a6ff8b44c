package io.bloomgate;

import io.bloomgate.BloomgateException.TimedOut;
import io.bloomgate.Connection.Command;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Whether a write survives a failover or a restart.
 *
 * @param replicas how many replicas must have a write before it counts (WAIT)
 * @param timeout how long they, or the disk, may take
 * @param aof whether it must be in the append-only files on disk, that of the primary included (WAITAOF)
 */
public record Durability(int replicas, Duration timeout, boolean aof) {
    /** Writes count at once. */
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

    /** For how long the server may withhold the reply to a write. */
    long waitMs() {
        return isAsked() ? timeout.toMillis() : 0;
    }

    void check(Connection connection) {
        if (isAsked() && connection instanceof Cluster) {
            throw new IllegalArgumentException("replicas and aof need a single server, not a cluster");
        }
    }

    /**
     * Returns the command to send after writes, <b>on the same connection</b>: WAIT and WAITAOF wait for the writes of the connection
     * that they arrive on, and on another one answer at once.
     */
    List<Command> commands(byte[] key) {
        if (aof) {
            return List.of(Link.command(key, "WAITAOF", 1, replicas, timeout.toMillis()));
        }
        return replicas > 0 ? List.of(Link.command(key, "WAIT", replicas, timeout.toMillis())) : List.of();
    }

    /** Returns what is wrong with the outcome of `commands`, which is the last one, or null. */
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
