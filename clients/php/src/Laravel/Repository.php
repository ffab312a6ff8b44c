<?php declare(strict_types=1);

namespace Bloomgate\Laravel;

use Bloomgate\Options;

/**
 * Laravel's cache, with a `remember` that reads through the guard: of all processes that ask for a missing key, one calls the
 * function, and the others wait for its value.
 */
final class Repository extends \Illuminate\Cache\Repository {
    /** If the function returns null, so do the calls of the guard's `absentTtl`. */
    public function remember($key, $ttl, \Closure $callback) {
        if ($ttl instanceof \Closure) return parent::remember($key, $ttl, $callback);
        $seconds = $ttl === null ? Options::RANGES['ttl'][1] : $this->getSeconds($ttl);
        // A time that is over: Laravel calls the function, and stores nothing.
        return $seconds > 0 ? $this->getStore()->guard->get($this->itemKey($key), fn () => $callback(), (float) $seconds) : $callback();
    }

    public function rememberForever($key, \Closure $callback) { return $this->remember($key, null, $callback); }
}
