<?php declare(strict_types=1);

namespace Bloomgate;

use Psr\SimpleCache\CacheInterface;

/**
 * A guard as a cache of PSR-16. `set` stores a value that was loaded after a miss of `get`, and otherwise deletes the cached value.
 * Use the codec Serialized if values must keep their types.
 */
final class SimpleCache implements CacheInterface {
    private readonly LeasedCache $cache;

    public function __construct(private readonly Guard $guard) { $this->cache = new LeasedCache($guard); }

    public function get($key, $default = null): mixed { return $this->getMultiple([$key], $default)[$key]; }

    public function set($key, $value, $ttl = null): bool { return $this->setMultiple([$key => $value], $ttl); }

    public function delete($key): bool { return $this->deleteMultiple([$key]); }

    public function clear(): bool { return $this->cache->clear(); }

    /** @return array<mixed> by key */
    public function getMultiple($keys, $default = null): array {
        $keys = self::checked($keys);
        $found = $this->cache->find($keys);
        return array_combine($keys, array_map(fn ($key) => isset($found[$key]) ? $found[$key][0] : $default, $keys));
    }

    public function setMultiple($values, $ttl = null): bool {
        $pairs = [];
        foreach (is_iterable($values) ? $values : throw new InvalidKey('values are iterable') as $key => $value) {
            $pairs[self::checked([$key])[0]] = $value;
        }
        if ($ttl instanceof \DateInterval) {
            $now = new \DateTimeImmutable();
            $ttl = $now->add($ttl)->getTimestamp() - $now->getTimestamp();
        }
        if ($ttl !== null && !is_int($ttl)) {
            throw new InvalidKey('ttl is an int, a DateInterval or null, not ' . get_debug_type($ttl));
        }
        if ($ttl !== null && $ttl <= 0) return $this->deleteMultiple(array_keys($pairs));
        $isStored = array_map(fn ($key) => $this->cache->store((string) $key, $pairs[$key], $ttl), array_keys($pairs));
        return !in_array(false, $isStored, true);
    }

    public function deleteMultiple($keys): bool {
        return $this->cache->delete(self::checked($keys));
    }

    public function has($key): bool {
        return $this->guard->cached(self::checked([$key])[0]) !== null;
    }

    /** @return list<string> the keys. As an array key, PHP converts the string "17" to an int. */
    private static function checked(mixed $keys): array {
        $checked = [];
        foreach (is_iterable($keys) ? $keys : throw new InvalidKey('keys are iterable') as $key) {
            if (!is_string($key) && !is_int($key) || preg_match('~^$|[{}()/\\\\@:]~D', (string) $key)) {
                throw new InvalidKey('a key is a text without {}()/\@: and not empty: ' . json_encode($key, JSON_PARTIAL_OUTPUT_ON_ERROR));
            }
            $checked[] = (string) $key;
        }
        return $checked;
    }
}

/** A key or a time to live that PSR-16 refuses. */
final class InvalidKey extends Refused implements \Psr\SimpleCache\InvalidArgumentException {}
