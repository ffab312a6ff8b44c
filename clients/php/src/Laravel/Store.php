<?php declare(strict_types=1);

namespace Bloomgate\Laravel;

use Bloomgate\{Guard, LeasedCache, Options};

/**
 * A guard as a cache store of Laravel. `put` stores a value that was loaded after a miss of `get`, and otherwise deletes the cached
 * value. `Repository::remember` waits for the process that loads.
 */
final class Store implements \Illuminate\Contracts\Cache\Store {
    private readonly LeasedCache $cache;

    public function __construct(public readonly Guard $guard) { $this->cache = new LeasedCache($guard); }

    public function get($key) { return $this->many([$key])[$key]; }

    public function many(array $keys) {
        $keys = array_map(strval(...), array_values($keys));
        $found = $this->cache->find($keys);
        return array_combine($keys, array_map(fn ($key) => $found[$key][0] ?? null, $keys));
    }

    public function put($key, $value, $seconds) { return $this->cache->store((string) $key, $value, (float) $seconds); }

    public function putMany(array $values, $seconds) {
        $isStored = array_map(fn ($key) => $this->put($key, $values[$key], $seconds), array_keys($values));
        return !in_array(false, $isStored, true);
    }

    public function increment($key, $value = 1) {
        throw new \BadMethodCallException('a guard caches rows of a database: it has no counters');
    }

    public function decrement($key, $value = 1) { return $this->increment($key, -$value); }

    public function forever($key, $value) { return $this->put($key, $value, Options::RANGES['ttl'][1]); }

    public function forget($key) { return $this->cache->delete([(string) $key]); }

    public function flush() { return $this->cache->clear(); }

    public function getPrefix() { return $this->guard->fetching->prefix; }
}
