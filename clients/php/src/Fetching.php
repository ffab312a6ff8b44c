<?php declare(strict_types=1);

namespace Bloomgate;

/** An answer to a fetch. */
final class Fetched {
    /**
     * @param string $word absent, hit, stale, load, wait or failed
     * @param array{mixed}|null $row the row, if it is known: null if there is no value, or if the codec cannot decode it
     * @param string|null $token the token of the lease, for stale and load
     */
    public function __construct(public readonly string $word, public readonly ?array $row = null, public readonly ?string $token = null) {}
}

/**
 * The commands of one guard: fetches rows, and fills rows or ends their leases. Rows are arrays by the bytes of their items. An
 * error of the server or of the connection is returned in place of an answer.
 *
 * @internal
 */
final class Fetching {
    /** The length of the pause, in which no fetch is sent after a command has timed out. */
    private const PAUSE_S = 2.0;

    /** The time between two warnings of the same kind. */
    private const WARNINGS_S = 60.0;

    public readonly string $prefix;

    /** @var array<string, int> */
    public array $counts = [];

    /** The options of every fetch. */
    private readonly array $words;

    private float $pauseEnd = 0.0;

    /** Whether the server answers, but refuses BF.FILL. The pause is then not ended by an answer. */
    private bool $isRefused = false;

    /** @var array<string, float> the time of the last warning of each kind */
    private array $warned = [];

    public function __construct(
        private readonly Connection $connection, public readonly string $filter, public readonly Options $options,
        private readonly Durability $durability,
    ) {
        $this->prefix = $options->prefix ?? Items::cachePrefix($filter);
        $this->words = $options->words($filter);
    }

    public static function now(): float { return hrtime(true) / 1e9; }

    public function count(string $event, int $times = 1): void {
        $this->counts[$event] = ($this->counts[$event] ?? 0) + $times;
        $this->options->observe?->__invoke($event, $times);
    }

    public function warn(string $problem, \Throwable $error): void {
        if (self::now() - ($this->warned[$problem] ?? -self::WARNINGS_S) < self::WARNINGS_S) return;
        $this->warned[$problem] = self::now();
        $text = "bloomgate: $problem: " . $error::class . ': ' . $error->getMessage();
        try {
            $this->options->warn ? ($this->options->warn)($text) : trigger_error($text, E_USER_WARNING);
        } catch (\Throwable) {
            // A failure to warn must not fail the call.
            error_log($text);
        }
    }

    public function failed(BloomgateException $error): void {
        $this->count('errors');
        $this->warn('the server could not be queried', $error);
    }

    /**
     * Sends commands together; with `durably`, waits for the replicas or the disk. Returns the replies, and an error if they are not
     * durable. A timed-out command begins a pause, and any answer ends it.
     *
     * @return array{list<mixed>, ?BloomgateException}
     */
    public function ask(array $commands, float $wait = 0.0, bool $durably = false): array {
        try {
            $outcome = $durably
                ? $this->durability->ask($this->connection, $commands)
                : [$this->connection->ask($commands, $wait), null];
            $this->pauseEnd = $this->isRefused ? $this->pauseEnd : 0.0;
            return $outcome;
        } catch (ConnectionLost $error) {
            if ($error instanceof TimedOut) $this->pauseEnd = self::now() + self::PAUSE_S;
            return [array_fill(0, count($commands), $error), $error];
        }
    }

    /** Fetches rows without waiting. */
    public function fetch(array $items, string|int ...$words): array { return $this->fetchFor(0.0, $items, $words); }

    /** Fetches one row, and waits in the server for up to `wait` seconds. */
    public function await(string $item, float $wait, string ...$words): Fetched|BloomgateException {
        return current($this->fetchFor($wait, [$item], [...$words, 'WAIT', (int) ceil($wait * 1000), 'BACKOFF']));
    }

    private function fetchFor(float $wait, array $items, array $words): array {
        $found = [];
        foreach (array_chunk($items, Items::PER_COMMAND) as $part) {
            if ($this->holds()) {
                $found += array_fill_keys($part, new TimedOut('the server is left alone for a while'));
                continue;
            }
            foreach ($this->replies($part, $words, $wait) as $index => $reply) {
                $found[$part[$index]] = $one = $this->parse($reply);
                $one instanceof Fetched ? $this->count($one->word) : $this->failed($one);
            }
        }
        return $found;
    }

    /** Whether to skip the fetch. After a pause, one caller probes the server; the rest stay paused. */
    private function holds(): bool {
        if ($this->pauseEnd === 0.0 || self::now() < $this->pauseEnd) return $this->pauseEnd !== 0.0;
        $this->isRefused = false;
        $this->pauseEnd = self::now() + self::PAUSE_S;
        return false;
    }

    private function replies(array $items, array $words, float $wait): array {
        $pairs = array_merge(...array_map(fn ($item) => [$item, $this->prefix . $item], $items));
        $words = [...$this->words, ...$words];
        if (count($items) === 1) return $this->ask([['BF.FETCH', $this->filter, ...$pairs, ...$words]], $wait)[0];
        $reply = $this->ask([['BF.MFETCH', $this->filter, ...$words, 'ITEMS', ...$pairs]])[0][0];
        return is_array($reply) ? $reply : array_fill(0, count($items), $reply);
    }

    private function parse(mixed $reply): Fetched|BloomgateException {
        if ($reply instanceof BloomgateException) return $reply;
        [$word, $second, $third] = [...(is_array($reply) ? $reply : []), null, null, null];
        return match (true) {
            $word === 'absent' && $second === null => new Fetched($word, [null]),
            $word === 'hit' && is_string($second) => new Fetched($word, $this->decode($second)),
            $word === 'stale' && is_string($second) && is_string($third) => new Fetched($word, $this->decode($second), $third),
            $word === 'load' && is_string($second) => new Fetched($word, null, $second),
            ($word === 'wait' || $word === 'failed') && is_int($second) => new Fetched($word),
            default => new UnexpectedReply('BF.FETCH answered ' . json_encode($reply, JSON_PARTIAL_OUTPUT_ON_ERROR)),
        };
    }

    /** @return array{mixed}|null the row, or null if the codec cannot decode it */
    private function decode(string $data): ?array {
        try {
            return [$this->options->codec->decode($data)];
        } catch (\Throwable $error) {
            $this->count('undecodable');
            $this->warn('a cached value could not be decoded, and is replaced', $error);
            return null;
        }
    }

    /** Fetches rows without leases. */
    public function fetchWithoutLease(array $items): array { return $this->fetch($items, 'PEEK'); }

    /**
     * Fetches cached values that may be old. Returns null unless all items have a value. Values that were fetched before a load
     * must not be used: a row may have changed during the load, which deletes its value.
     */
    public function peek(array $items): ?array {
        $rows = array_map(fn ($one) => $one instanceof Fetched ? $one->row : null, $this->fetchWithoutLease($items));
        return in_array(null, $rows, true) ? null : array_map(fn ($row) => $row[0], $rows);
    }

    /**
     * Caches rows or their absence. If the server refuses a fill, it ends the lease. After a lost connection the leases are given
     * up; after a time-out nothing more is sent.
     *
     * @param array<Fetched> $leases
     * @param array<string|null> $encoded
     */
    public function fill(array $leases, array $encoded, float $ttl): void {
        $words = fn ($item) => isset($encoded[$item])
            ? ['VALUE', $encoded[$item], 'PX', Options::shortened($ttl) + $this->options->failSafeMs]
            : ['NONE', 'PX', Options::shortened($this->options->absentTtl)];
        foreach (Items::chunks(array_map(fn ($item) => $encoded[$item] ?? '', array_keys($leases))) as $chunk) {
            if (self::now() < $this->pauseEnd) return;
            $part = array_slice($leases, 0, count($chunk), true);
            $leases = array_diff_key($leases, $part);
            $lost = [];
            foreach ($this->sendFills($part, $words) as $item => $reply) {
                if (!$reply instanceof BloomgateException) {
                    $this->count($reply === null ? 'lease_lost' : 'filled');
                    continue;
                }
                $this->failed($reply);
                if ($reply instanceof ConnectionLost && !$reply instanceof TimedOut) $lost[$item] = $part[$item];
            }
            $this->giveUp($lost);
        }
    }

    /**
     * Ends leases, so that other callers may load.
     *
     * @param array<Fetched> $leases
     */
    public function giveUp(array $leases, string ...$words): void {
        foreach (array_chunk($leases, Items::PER_COMMAND, true) as $part) {
            $this->sendFills($part, fn () => ['GIVEUP', ...$words]);
        }
    }

    /** If the user has no permission to fill, a pause begins, because otherwise each caller would wait until a lease ends. */
    private function sendFills(array $leases, \Closure $rest): array {
        $commands = [];
        foreach ($leases as $item => $lease) {
            $commands[] = ['BF.FILL', $this->filter, $item, $this->prefix . $item, $lease->token, ...$rest($item)];
        }
        $replies = $commands ? $this->ask($commands)[0] : [];
        foreach ($replies as $reply) {
            if ($reply instanceof ServerError && $reply->begins('NOPERM')) {
                [$this->pauseEnd, $this->isRefused] = [self::now() + self::PAUSE_S, true];
            }
        }
        return array_combine(array_keys($leases), $replies);
    }
}
