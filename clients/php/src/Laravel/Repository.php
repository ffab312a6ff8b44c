<?php declare(strict_types=1);

namespace Bloomgate\Laravel;

use Bloomgate\Options;

/**
 * Laravel's cache, with a `remember` that reads through the guard: if several processes request a missing key, one of them calls
 * the function, and the others wait for its value.
 */
final class Repository extends \Illuminate\Cache\Repository {
    /** If the function returns null, further calls return null for the guard's `absentTtl`. */
    public function remember($key, $ttl, \Closure $callback) {
        if ($ttl instanceof \Closure) return parent::remember($key, $ttl, $callback);
        $seconds = $ttl === null ? Options::RANGES['ttl'][1] : $this->getSeconds($ttl);
        // With a time in the past, Laravel calls the function, and stores nothing.
        return $seconds > 0 ? $this->getStore()->guard->get($this->itemKey($key), fn () => $callback(), (float) $seconds) : $callback();
    }

    public function rememberForever($key, \Closure $callback) { return $this->remember($key, null, $callback); }
}
