package io.bloomgate.spring;

import java.time.Duration;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The settings of the guard's caches.
 *
 * @param uri the address of the server, such as redis://localhost:6379; without one, that of the connection factory of Spring Data
 * @param timeout how long a command may take
 * @param connectTimeout how long commands wait for a connection, before their own time limit begins
 * @param waitingConnections how many further connections may wait inside the server at a time
 * @param enabled whether the starter does anything
 * @param cache the settings of all guarded caches
 * @param caches the guarded caches by name, with settings in place of those of all; the other caches stay as they would be
 */
@ConfigurationProperties("bloomgate")
public record BloomgateProperties(
        String uri, Duration timeout, Duration connectTimeout, Integer waitingConnections, Boolean enabled, CacheSettings cache,
        Map<String, CacheSettings> caches) {

    /** Returns the name of the filter of a guarded cache. */
    String filter(String cache) {
        String own = caches.get(cache).filter();
        return own != null ? own : cache;
    }

    /**
     * Settings of a cache. Those that are missing have the guard's default.
     *
     * @param filter the name of the filter; by default that of the cache
     * @param ttl the time to live of a cached row
     * @param absentTtl the time to live of the knowledge that there is no row
     * @param lease how long one caller may load a row while others wait
     * @param waitTime how long a caller waits at a time for another one that loads the row
     * @param attempts how often it waits that long
     * @param failSafe how long a value is kept after its ttl, for a database that fails
     * @param softTimeout how long a caller waits for a load before it gets an old value, while the load continues
     * @param beta multiplies how long before its end a value is renewed; 0 turns renewal off
     * @param patience how long a confirmation is repeated
     * @param prefix what precedes an id in its cache key; by default it has the names of the filter and, if that differs, of the cache
     * @param feed whether bloomgate follow announces the changes, so that no writer has to; not in the settings of all caches
     * @param trust whether the method is called though the guard answers that there is no row: observe (the default) or filter
     */
    public record CacheSettings(
            String filter, Duration ttl, Duration absentTtl, Duration lease, Duration waitTime, Integer attempts, Duration failSafe,
            Duration softTimeout, Double beta, Duration patience, String prefix, Boolean feed, Trust trust) {}
}
