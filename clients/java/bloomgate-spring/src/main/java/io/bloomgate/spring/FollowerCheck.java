package io.bloomgate.spring;

import io.bloomgate.Guard;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/**
 * Checks the follower of a cache with a feed. A follower that is alive and deletes the keys of this cache announces its changes. Until such
 * a follower has been seen, the program announces its own changes. After that they are in the database's log, which the follower reads even
 * after an interruption.
 */
final class FollowerCheck {
    private static final Log LOG = LogFactory.getLog(FollowerCheck.class);

    private final String cache;
    private final Guard<Object, Object> fed;
    private final Guard<Object, Object> announcing;
    private final Set<String> warned = ConcurrentHashMap.newKeySet();
    private volatile boolean isSeen;

    /**
     * Creates a check for a guard with the feed and a guard without it. The latter should try only once, because a follower that starts
     * later fills the filter.
     */
    FollowerCheck(String cache, Guard<Object, Object> fed, Guard<Object, Object> announcing) {
        this.cache = cache;
        this.fed = fed;
        this.announcing = announcing;
    }

    /** Checks whether the follower is alive, unless it has been seen, and logs each problem once. */
    void check() {
        if (!isSeen) {
            try {
                Optional<Boolean> isFollowed = fed.isFollowed();
                isSeen = isFollowed.orElse(false);
                if (isFollowed.isEmpty()) {
                    warn("no follower of its filter is alive", null);
                } else if (!isSeen) {
                    warn("the follower of its filter deletes other keys than this cache has: compare cache-key in its configuration "
                            + "with the prefix", null);
                }
            } catch (RuntimeException error) {
                warn("the follower cannot be asked for", error);
            }
        }
    }

    /** Returns the guard that announces changes, which does nothing once the follower has been seen. */
    Guard<Object, Object> writer() {
        return isSeen ? fed : announcing;
    }

    /** Logs a problem unless the same one was logged before. */
    void warn(String what, Throwable error) {
        if (warned.add(what)) {
            LOG.warn("the cache " + cache + " has feed=true: " + what + "; the program announces its own changes until a follower does", error);
        }
    }
}
