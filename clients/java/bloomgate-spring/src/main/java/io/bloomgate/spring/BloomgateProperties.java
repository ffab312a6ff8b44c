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
 * @param waitingConnections How many further connections may wait inside the server at a time.
 * @param executor Name of a bean of the type Executor, for loaders of futures and loads in the background. Without it, they run in threads of
 *     their own.
 * @param enabled Whether the starter does anything.
 * @param cache Settings of all guarded caches.
 * @param caches Guarded caches by name, with settings in place of those of bloomgate.cache. The other caches stay as they would be.
 */
@ConfigurationProperties("bloomgate")
public record BloomgateProperties(
        String uri, Duration timeout, Duration connectTimeout, Integer waitingConnections, String executor, Boolean enabled,
        CacheSettings cache, Map<String, CacheSettings> caches) {

    /** Returns the filter's name of a guarded cache. */
    String filter(String cache) {
        String own = caches.get(cache).filter();
        return own != null ? own : cache;
    }

    /**
     * Settings of a cache. Missing settings have the guard's default.
     *
     * @param filter Name of the filter. By default it is that of the cache.
     * @param ttl Time to live of a cached row.
     * @param absentTtl Time to live of the knowledge that there is no row.
     * @param lease How long one caller may load a row while others wait.
     * @param waitTime How long a caller waits at a time for another one that loads the row.
     * @param attempts How many times it waits that long.
     * @param failSafe How long a value is kept after its ttl, for a database that fails.
     * @param softTimeout How long a caller waits for a load before it gets an old value, while the load continues.
     * @param beta Multiplies how long before its end a value is renewed; 0 turns renewal off.
     * @param patience How long a confirmation is repeated.
     * @param prefix What precedes an id in its cache key. By default it has the names of the filter and, if that differs, of the cache.
     * @param feed Whether bloomgate follow announces the changes, so that no writer has to.
     * @param fresh How old an answer may be while the follower's heartbeat is missing; 0 is no limit. Only for caches with a feed.
     * @param trust Whether the method is still called if the guard answers that there is no row (observe), or not (filter).
     * @param replicas How many replicas must have a change before it counts. Caches with a feed ignore that of bloomgate.cache.
     * @param replicasTimeout How long the replicas, or the disk, may take.
     * @param aof Whether a change must be in the append-only file on disk before it counts. Caches with a feed ignore that of bloomgate.cache.
     * @param announceTo Names of filters that are being filled, to which each id is announced first.
     */
    public record CacheSettings(
            String filter, Duration ttl, Duration absentTtl, Duration lease, Duration waitTime, Integer attempts, Duration failSafe,
            Duration softTimeout, Double beta, Duration patience, String prefix, Boolean feed, Duration fresh, Trust trust,
            Integer replicas, Duration replicasTimeout, Boolean aof, List<String> announceTo) {}
}
