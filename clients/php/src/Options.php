<?php declare(strict_types=1);

namespace Bloomgate;

/** The options of a guard, which are its named arguments. Times are seconds. */
final class Options {
    /** The least and the most of every option that is a number. */
    public const RANGES = [
        // scripts/generate-options writes these lines.
        'ttl' => [0.001, 1_000_000_000],
        'absentTtl' => [0.001, 1_000_000_000],
        'lease' => [0.001, 3600],
        'wait' => [0, 86_400],
        'attempts' => [1, 1000],
        'failSafe' => [0, 1_000_000_000],
        'beta' => [0, 1000],
        'fresh' => [0, 3600],
        'patience' => [0, 86_400],
        'replicas' => [0, 1000],
        'replicasTimeout' => [0.001, 86_400],
    ];

    /** How long a value stays cached after its time to live, in milliseconds. */
    public readonly int $failSafeMs;

    /**
     * @param list<string> $announceTo
     * @param \Closure(string, int): void|null $observe called with the name of each event and its number of occurrences
     * @param \Closure(string): void|null $warn called with each warning, at most once a minute for each kind of problem:
     *                                          `$logger->warning(...)`. By default warnings go to `trigger_error`
     */
    public function __construct(
        // scripts/generate-options writes these lines.
        public readonly float $ttl = 60,
        public readonly float $absentTtl = 10,
        public readonly float $lease = 3,
        public readonly float $wait = 3,
        public readonly int $attempts = 3,
        public readonly float $failSafe = 0,
        public readonly float $beta = 1,
        public readonly bool $feed = false,
        public readonly float $fresh = 0,
        public readonly float $patience = 30,
        public readonly ?string $prefix = null,
        public readonly array $announceTo = [],
        public readonly int $replicas = 0,
        public readonly float $replicasTimeout = 1,
        public readonly bool $aof = false,
        public readonly Codec $codec = new Json(),
        public readonly ?\Closure $observe = null,
        public readonly ?\Closure $warn = null,
    ) {
        foreach (array_keys(self::RANGES) as $name) self::check($name, $this->$name);
        if ($feed && ($announceTo || $replicas || $aof)) {
            throw new Refused('with feed the follower announces changes: announceTo, replicas and aof have no effect');
        }
        if ($fresh > 0 && !$feed) throw new Refused('fresh needs feed: there is no heartbeat without it');
        if ($fresh > 0 && $fresh < $lease) {
            throw new Refused("fresh must be at least lease, $lease, not $fresh: a slow load would serve only its own caller");
        }
        $this->failSafeMs = (int) round($failSafe * 1000);
    }

    /** Returns a number; throws if it is out of range. */
    public static function check(string $name, int|float $value): int|float {
        [$least, $most] = self::RANGES[$name];
        return $value >= $least && $value <= $most ? $value : throw new Refused("$name is from $least to $most, not $value");
    }

    /**
     * Returns a time to live in milliseconds, shortened by up to a tenth at random, so that rows filled together do not expire
     * together.
     */
    public static function shortened(float $seconds): int {
        return max(1, (int) round($seconds * (1000 - mt_rand(0, 100))));
    }

    /**
     * Returns those options of a guard's fetches that differ from the server's defaults.
     *
     * @return list<string|int>
     */
    public function words(string $filter): array {
        [$heartbeat, $inFlight] = $this->feed ? Items::feedKeys($filter) : ['', ''];
        $lease = (int) round($this->lease * 1000);
        $renew = (int) round($this->beta * 100);
        return [
            ...($lease === 3000 ? [] : ['LEASE', $lease]),
            ...($this->failSafeMs > 0 ? ['STALE', $this->failSafeMs] : []),
            ...($renew > 0 ? ['RENEW', $renew] : []),
            ...($this->feed ? ['WHILE', $heartbeat, 'UNLESS', $inFlight] : []),
            ...($this->fresh > 0 ? ['FRESH', (int) round($this->fresh * 1000)] : []),
        ];
    }
}
