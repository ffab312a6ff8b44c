<?php declare(strict_types=1);

namespace Bloomgate;

/**
 * Lookups and stores as separate calls, for PHP's cache interfaces. A value that was not loaded under a lease is never stored,
 * because it may be older than a change. So a lookup that finds nothing requests the lease of the row, without waiting, and the
 * following store fills under this lease. A store without a lease announces a change, which deletes the cached value.
 *
 * @internal
 */
final class LeasedCache {
    /** The maximum number of remembered lookups. */
    private const MOST = 1000;

    /**
     * @var array<array{float, ?Fetched}> by key: until when a store counts as the end of a load, and the lease, unless another
     * caller loads the row
     */
    private array $loads = [];

    public function __construct(public readonly Guard $guard) {}

    /** Gives up unused leases. */
    public function __destruct() {
        $leases = array_filter(array_map(fn ($load) => $load[0] > Fetching::now() ? $load[1] : null, $this->loads));
        $this->guard->fetching->giveUp($leases);
    }

    /**
     * @param list<string> $keys
     * @return array<array{mixed}> the cached values, by key
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
