package io.bloomgate.spring;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The settings of the guard's caches, as editors show them. META-INF/additional-spring-configuration-metadata.json has their defaults. A test
 * compares the defaults and the ranges with the guard's options.
 *
 * @param uri Address of the server, such as redis://localhost:6379. Without it, the client of Spring Data's LettuceConnectionFactory is used.
 * @param timeout Time limit of a command.
 * @param connectTimeout Time limit of a connection attempt.
 * @param waitingConnections Maximum number of further connections, which wait inside the server.
 * @param executor Name of an Executor bean for background loads and for loaders of futures.
 * @param enabled Turns the starter on.
 * @param cache Settings of all guarded caches.
 * @param caches Guarded caches by name, with settings that override bloomgate.cache.
 */
@ConfigurationProperties("bloomgate")
public record BloomgateProperties(
        String uri, Duration timeout, Duration connectTimeout, Integer waitingConnections, String executor, Boolean enabled,
        CacheSettings cache, Map<String, CacheSettings> caches) {

    /** Returns the name of a guarded cache's filter. */
    String filter(String cache) {
        String own = caches.get(cache).filter();
        return own != null ? own : cache;
    }

    /**
     * Settings of a cache. Missing settings have the guard's default.
     *
     * @param filter Name of the filter, by default the cache's name.
     * @param ttl Time to live of a cached row.
     * @param absentTtl Time to live of a NONE: there is no such row.
     * @param lease Time for which one caller may load a row while others wait.
     * @param waitTime Time for which a caller waits for another caller's load, per attempt.
     * @param attempts Maximum number of such waits.
     * @param failSafe Time for which a value is kept after its ttl, in case the database fails.
     * @param softTimeout Time after which a caller gets an old value, while its load continues.
     * @param beta Multiplies the time of early renewal; 0 turns renewal off.
     * @param patience Time for which a failed confirmation is repeated.
     * @param prefix Prefix of cache keys. By default it contains the names of the filter and the cache.
     * @param feed Set it if bloomgate follow announces the changes.
     * @param fresh Maximum age of answers without the follower's heartbeat, for caches with a feed; 0 is no limit.
     * @param trust With observe, the method is called even if the guard answers that there is no row; with filter, it is not.
     * @param replicas Number of replicas that must have each change. Ignored by caches with a feed.
     * @param replicasTimeout Time limit of the replicas or the disk.
     * @param aof Requires each change to be in the append-only file on disk. Ignored by caches with a feed.
     * @param announceTo Names of filters that are being filled, to which each id is announced first.
     */
    public record CacheSettings(
            String filter, Duration ttl, Duration absentTtl, Duration lease, Duration waitTime, Integer attempts, Duration failSafe,
            Duration softTimeout, Double beta, Duration patience, String prefix, Boolean feed, Duration fresh, Trust trust,
            Integer replicas, Duration replicasTimeout, Boolean aof, List<String> announceTo) {}
}
