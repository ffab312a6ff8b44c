package io.bloomgate.spring;

import io.bloomgate.Guard;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/**
 * Looks for the follower of a cache with a feed. Its changes are the follower's to announce, but only if there is one, and if it deletes the
 * keys of this cache. Until such a follower has been seen, the program announces its own changes. A follower that was seen once reads them in
 * the log of the database, even if it pauses.
 */
final class FollowerCheck {
    private static final Log LOG = LogFactory.getLog(FollowerCheck.class);

    private final String cache;
    private final Guard<Object, Object> fed;
    private final Guard<Object, Object> announcing;
    private final Set<String> warned = ConcurrentHashMap.newKeySet();
    private volatile boolean isSeen;

    /** Takes the guard with the feed, and one without it, which should try once: a follower that starts later fills the filter. */
    FollowerCheck(String cache, Guard<Object, Object> fed, Guard<Object, Object> announcing) {
        this.cache = cache;
        this.fed = fed;
        this.announcing = announcing;
    }

    /** Asks for the follower, unless it has been seen, and logs what is wrong once. */
    void check() {
        if (!isSeen) {
            try {
                Optional<Boolean> isFollowed = fed.isFollowed();
                isSeen = isFollowed.orElse(false);
                if (isFollowed.isEmpty()) {
                    warn("no follower of its filter is alive", null);
                } else if (!isSeen) {
                    warn("the living follower of its filter deletes other keys than this cache has: compare cache-key in its configuration "
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

    /** Logs what is wrong, unless the same was logged before. */
    void warn(String what, Throwable error) {
        if (warned.add(what)) {
            LOG.warn("the cache " + cache + " has feed=true: " + what + "; the program announces its own changes until a follower does", error);
        }
    }
}
