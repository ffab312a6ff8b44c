<?php declare(strict_types=1);

namespace Bloomgate;

/**
 * Looking up and storing as two calls, as the cache interfaces of PHP have it. A value that was not loaded under a lease is never
 * stored, because it may be older than a change. So a lookup that finds nothing asks for the lease of the row, without waiting, and
 * the store that follows fills under it. A store without a lease announces a change: it deletes the cached value.
 *
 * @internal
 */
final class LeasedCache {
    /** How many lookups are remembered. */
    private const MOST = 1000;

    /** @var array<array{float, ?Fetched}> until when a store is the end of a load, and the lease, unless another caller loads */
    private array $loads = [];

    public function __construct(public readonly Guard $guard) {}

    /** Gives up the leases that no store has used. */
    public function __destruct() {
        $leases = array_filter(array_map(fn ($load) => $load[0] > Fetching::now() ? $load[1] : null, $this->loads));
        $this->guard->fetching->giveUp($leases);
    }

    /**
     * @param list<string> $keys
     * @return array<array{mixed}> the values that are cached, by key
     */
    public function find(array $keys): array {
        $rows = [];
        $end = Fetching::now() + $this->guard->fetching->options->lease;
        foreach ($keys ? $this->guard->fetching->fetch($keys) : [] as $key => $found) {
            if (!$found instanceof Fetched) continue;
            if ($found->word === 'hit' && $found->row !== null) $rows[$key] = $found->row;
            else $this->loads[$key] = [$end, $found->token === null ? null : $found];
        }
        $this->loads = array_slice($this->loads, -self::MOST, null, true);
        return $rows;
    }

    /** Stores a value that was loaded after `find`, or announces its change. Returns whether the server has answered. */
    public function store(string $key, mixed $value, ?float $ttl): bool {
        $fetching = $this->guard->fetching;
        [$end, $lease] = $this->loads[$key] ?? [0.0, null];
        unset($this->loads[$key]);
        if ($end <= Fetching::now()) return $this->delete([$key]);
        if ($lease !== null) {
            $fetching->fill([$key => $lease], [$key => $fetching->options->codec->encode($value)], $ttl ?? $fetching->options->ttl);
        }
        return true;
    }

    /** @param list<string> $keys */
    public function delete(array $keys): bool { return $this->answers(fn () => $this->guard->announce(...$keys)); }

    public function clear(): bool { return $this->answers($this->guard->clear(...)); }

    private function answers(\Closure $call): bool {
        try {
            $call();
            return true;
        } catch (BloomgateException $error) {
            $this->guard->fetching->failed($error);
            return false;
        }
    }
}
