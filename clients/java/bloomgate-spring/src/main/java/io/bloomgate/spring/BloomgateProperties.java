package io.bloomgate.spring;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The settings of the guard's caches. META-INF/additional-spring-configuration-metadata.json has their defaults, for editors. A test
 * compares both, and the guard's ranges, with the table in README.md.
 *
 * @param uri Address of the server, such as redis://localhost:6379. Without it, the client of Spring Data's LettuceConnectionFactory is used.
 * @param timeout How long a command may take.
 * @param connectTimeout How long commands wait for a connection, before their own time limit begins.
 * @param waitingConnections How many additional connections may wait inside the server at a time.
 * @param executor Name of a bean of the type Executor, for loaders of futures and loads in the background. Without it, they run in threads of
 *     their own.
 * @param enabled Whether the starter does anything.
 * @param cache Settings of all guarded caches.
 * @param caches Guarded caches by name, with settings that override bloomgate.cache. Other caches are unchanged.
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
     * @param filter Name of the filter, by default the name of the cache.
     * @param ttl Time to live of a cached row.
     * @param absentTtl Time to live of a cached absence.
     * @param lease How long one caller may load a row while others wait.
     * @param waitTime How long a caller waits for another caller's load at a time.
     * @param attempts How many times a caller waits before it queries the database.
     * @param failSafe How long a value stays cached after its ttl, to be served if the database fails.
     * @param softTimeout How long a caller waits for a load before it gets an old value, while the load continues.
     * @param beta Scales how early values are renewed before they expire; 0 turns early renewal off.
     * @param patience How long a confirmation is repeated.
     * @param prefix Prefix of cache keys. By default it contains the name of the filter and, if it differs, of the cache.
     * @param feed Whether bloomgate follow announces the changes, so that writers need not.
     * @param fresh Limit of the age of an answer while the follower's heartbeat is missing; 0 sets no limit. Only for caches with a feed.
     * @param trust Whether the method is still called if the guard reports a row absent (observe), or not (filter).
     * @param replicas How many replicas must acknowledge a change. Caches with a feed ignore the setting of bloomgate.cache.
     * @param replicasTimeout Time limit for replicas, or the disk, to acknowledge a change.
     * @param aof Whether the append-only file on disk must contain a change. Caches with a feed ignore the setting of bloomgate.cache.
     * @param announceTo Names of filters that are being filled, to which each id is announced first.
     */
    public record CacheSettings(
            String filter, Duration ttl, Duration absentTtl, Duration lease, Duration waitTime, Integer attempts, Duration failSafe,
            Duration softTimeout, Double beta, Duration patience, String prefix, Boolean feed, Duration fresh, Trust trust,
            Integer replicas, Duration replicasTimeout, Boolean aof, List<String> announceTo) {}
}
