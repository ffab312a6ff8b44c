<?php declare(strict_types=1);

namespace Bloomgate;

/**
 * The guard in front of a database: reads rows by id through a filter and a cache. The filter contains the id of every row.
 *
 * If the server fails, readers get no error: the row is read from the database and not cached. Writers get the errors.
 */
final class Guard {
    /** The pause before a caller repeats a fetch or a confirmation. */
    private const REPEAT_S = 0.1;

    /** @internal */
    public readonly Fetching $fetching;

    private readonly Options $options;

    /** The rows that this process is loading. */
    private array $loading = [];

    /** @param mixed ...$options the named arguments of Options: `ttl: 300, failSafe: 3600` */
    public function __construct(private readonly Connection $connection, string $filter, mixed ...$options) {
        $this->options = new Options(...$options);
        $durability = new Durability($this->options->replicas, $this->options->replicasTimeout, $this->options->aof);
        $this->fetching = new Fetching($connection, $filter, $this->options, $durability);
    }

    /** @return array<string, int> the number of each event of this guard */
    public function counts(): array { return $this->fetching->counts; }

    /**
     * Returns a row, or null if it does not exist. `load` gets the id, and returns the row or null. It reads from the primary
     * database, in a transaction that begins with the call. If it throws, the lease is given up and the exception is rethrown; but
     * if `failSafe` is set and an old value is cached, the old value is returned.
     *
     * @param callable(string|int): mixed $load
     */
    public function get(string|int $id, callable $load, ?float $ttl = null): mixed {
        [$item, $ttl] = [(string) $id, Options::check('ttl', $ttl ?? $this->options->ttl)];
        return $this->getOne($item, [$item => $id], fn (array $ids) => [$item => $load($ids[0])], $ttl)[$item];
    }

    /**
     * Returns rows by id, with null for rows that do not exist. `loadMany` gets the ids that this caller has to load, and returns
     * the rows by id. It is called once, and again with ids whose loads by other callers did not complete.
     *
     * @param iterable<string|int> $ids
     * @param callable(list<string|int>): iterable<mixed> $loadMany
     * @return array<mixed> in the order of the ids; ids with the same bytes name one row
     */
    public function getMany(iterable $ids, callable $loadMany, ?float $ttl = null): array {
        [$asked, $ttl] = [[], Options::check('ttl', $ttl ?? $this->options->ttl)];
        foreach ($ids as $id) $asked[Items::bytes($id)] ??= $id;
        [$rows, $direct] = [[], array_intersect_key($asked, $this->loading)];
        $left = array_diff_key($asked, $direct);
        $deadline = Fetching::now() + $this->options->wait;
        while ($left) {
            [$found, $leases, $failed, $left] = $this->fetchMany($left);
            $rows += $found + ($leases ? $this->loadLeased($leases, $asked, $loadMany, $ttl) : []);
            $direct += $failed;
            if (!$left || Fetching::now() >= $deadline) break;
            // By the time the first row is loaded, most of the others are, too.
            $item = (string) array_key_first($left);
            $rows += $this->getOne($item, $asked, $loadMany, $ttl);
            unset($left[$item]);
        }
        $direct += $left;
        $rows += $direct ? $this->loadDirectly($direct, $loadMany) : [];
        return array_map(fn ($item) => $rows[$item], array_combine(array_keys($asked), array_keys($asked)));
    }

    /**
     * Returns a row inside a transaction, whose view may differ from the committed rows. Returns a cached row that is not old, or
     * else the result of `load`, which is not cached. If the transaction has changed the row, call `load` directly.
     *
     * @param callable(string|int): mixed $load
     */
    public function getInTransaction(string|int $id, callable $load): mixed {
        $found = current($this->fetching->fetch([(string) $id]));
        if ($found instanceof Fetched && $found->token !== null) $this->fetching->giveUp([(string) $id => $found]);
        return $found instanceof Fetched && $found->word === 'hit' && $found->row !== null ? $found->row[0] : $load($id);
    }

    /** @return array{mixed}|null the row, if it is cached; requests no lease */
    public function cached(string|int $id): ?array {
        $found = current($this->fetching->fetchWithoutLease([(string) $id]));
        return $found instanceof Fetched && $found->word === 'hit' ? $found->row : null;
    }

    /** Announces changes before their commit. If it throws, do not commit. With `feed` it does nothing. */
    public function announce(string|int ...$ids): void {
        foreach ($this->sendChanges(array_map(strval(...), $ids)) as $error) throw $error;
    }

    /**
     * Confirms changes after their commit. Repeats failed confirmations for up to `patience` seconds, then throws Unconfirmed. If
     * the outcome of the commit is unknown, determine it before this call: a commit after this call leaves the old row cached. With
     * `feed` it does nothing.
     */
    public function confirm(string|int ...$ids): void {
        $deadline = Fetching::now() + $this->options->patience;
        for ($left = array_map(strval(...), $ids); $errors = $this->sendChanges($left); usleep((int) (self::REPEAT_S * 1e6))) {
            $left = array_values(array_intersect_key($left, $errors));
            $this->fetching->failed(current($errors));
            if (Fetching::now() >= $deadline) throw new Unconfirmed($left, current($errors));
        }
    }

    /**
     * Announces a change of a row, runs `transaction`, and confirms the change, even if `transaction` throws. The database
     * transaction must end inside it, with a known outcome. Returns the result of `transaction`. If the confirmation also throws,
     * the exception of `transaction` is in the chain of previous exceptions. With `feed` it only runs `transaction`.
     */
    public function changed(string|int $id, callable $transaction): mixed {
        return $this->changedMany([$id], $transaction);
    }

    /** @param iterable<string|int> $ids */
    public function changedMany(iterable $ids, callable $transaction): mixed {
        $ids = is_array($ids) ? array_values($ids) : iterator_to_array($ids, false);
        $this->announce(...$ids);
        try {
            return $transaction();
        } finally {
            $this->confirm(...$ids);
        }
    }

    /**
     * Deletes ids from the filter after their rows were deleted inside `changed`. Deleted ids must never be used again. With
     * `feed` it does nothing.
     */
    public function forget(string|int ...$ids): void {
        foreach ($this->options->feed ? [] : array_chunk($ids, Items::PER_COMMAND) as $part) {
            $answers = $this->connection->one(['BF.MDEL', $this->fetching->filter, ...$part]);
            foreach (array_filter($answers, fn ($one) => $one instanceof ServerError) as $error) throw $error;
        }
    }

    /** Deletes all cached values. The filter keeps its ids. */
    public function clear(): void {
        $own = $this->options->feed ? Items::feedKeys($this->fetching->filter)[0] : null;
        [$cursor, $pattern] = ['0', addcslashes($this->fetching->prefix, '\\*?[]') . '*'];
        do {
            [$cursor, $keys] = $this->connection->one(['SCAN', $cursor, 'MATCH', $pattern, 'COUNT', 1000]);
            // The follower's keys begin with the prefix, too.
            $keys = array_filter($keys, fn ($key) => $own === null || $key !== $own && !str_starts_with($key, "$own:"));
            if ($keys) $this->connection->one(['UNLINK', ...array_values($keys)]);
        } while ($cursor !== '0');
    }

    /** @param array<string|int> $ids the ids of `item` and of other rows */
    private function getOne(string $item, array $ids, callable $load, float $ttl): array {
        // A call for a row inside the load of that row would wait for itself.
        $found = isset($this->loading[$item]) ? null : $this->find($item);
        return match (true) {
            $found === null => $this->loadDirectly([$item => $ids[$item]], $load),
            $found->token === null => [$item => $found->row[0]],
            default => $this->loadLeased([$item => $found], $ids, $load, $ttl),
        };
    }

    /**
     * Fetches a row until the answer is a row or a lease, for as long as a caller waits. Returns null if the server fails, or if no
     * caller loads the row in time. If the codec cannot decode a value, requests a lease to replace it.
     */
    private function find(string $item): ?Fetched {
        $deadline = Fetching::now() + $this->options->attempts * $this->options->wait;
        [$replace, $wait] = [[], null];
        for (;;) {
            $sent = Fetching::now();
            $found = $wait === null
                ? current($this->fetching->fetch([$item], ...$replace))
                : $this->fetching->await($item, $wait, ...$replace);
            if ($wait !== null && $found instanceof ServerError && $found->begins('UNBLOCKED')) {
                $found = new Fetched('wait');
            }
            if (!$found instanceof Fetched) return null;
            if ($found->word === 'failed') throw new LoadFailed($item);
            if ($found->word === 'wait') {
                $left = $deadline - Fetching::now();
                if ($left <= 0) return null;
                if ($wait !== null) {
                    // CLIENT UNBLOCK has ended the wait.
                    usleep((int) (1e6 * max(0, min(self::REPEAT_S, $wait) - (Fetching::now() - $sent))));
                }
                $wait = min($this->options->wait, $left);
                continue;
            }
            if ($found->row !== null && $replace) return $this->kept($item, $found);
            if ($found->row !== null || $found->token !== null) return $found;
            if ($replace) return null;
            [$replace, $wait] = [['REPLACE'], null];
        }
    }

    /** Gives up a lease to replace a value, because another caller has already replaced it. */
    private function kept(string|int $item, Fetched $found): Fetched {
        $this->fetching->giveUp($found->token === null ? [] : [$item => $found]);
        return new Fetched('hit', $found->row);
    }

    /**
     * Fetches rows, and fetches rows with undecodable values once more.
     *
     * @return array{array<mixed>, array<Fetched>, array<string|int>, array<string|int>} the rows, the leases, the ids for which
     *                                                                                   the server failed, and the ids that other
     *                                                                                   callers load
     */
    private function fetchMany(array $ids): array {
        [$rows, $leases, $failed, $waiting] = [[], [], [], []];
        foreach ([[], ['REPLACE']] as $words) {
            $again = [];
            foreach ($ids ? $this->fetching->fetch(array_map(strval(...), array_keys($ids)), ...$words) : [] as $item => $found) {
                match (true) {
                    !$found instanceof Fetched => $failed[$item] = $ids[$item],
                    $found->word === 'wait' || $found->word === 'failed' => $waiting[$item] = $ids[$item],
                    $found->token !== null && (!$words || $found->row === null) => $leases[$item] = $found,
                    $found->row !== null => $rows[$item] = $this->kept($item, $found)->row[0],
                    default => $again[$item] = $ids[$item],
                };
            }
            $ids = $again;
        }
        return [$rows, $leases, $failed, $waiting + $ids];
    }

    /**
     * Loads rows under leases and fills them, or gives the leases up and returns old values, if there are any.
     *
     * @param array<Fetched> $leases
     * @param array<string|int> $ids
     */
    private function loadLeased(array $leases, array $ids, callable $load, float $ttl): array {
        try {
            $encoded = $this->load(array_intersect_key($ids, $leases), $load);
            $rows = $this->decoded($encoded);
        } catch (\Throwable $error) {
            $this->fetching->giveUp($leases, ...($this->options->failSafeMs > 0 ? ['BACKOFF'] : []));
            $hasOld = array_filter($leases, fn ($lease) => $lease->row === null) === [];
            $old = $hasOld ? $this->fetching->peek(array_map(strval(...), array_keys($leases))) : null;
            if ($old === null) throw $error;
            $this->fetching->count('stale_served', count($old));
            $this->fetching->warn('rows could not be loaded, and their old values were served', $error);
            return $old;
        }
        $this->fetching->fill($leases, $encoded, $ttl);
        return $rows;
    }

    /** Loads rows without leases, and fills nothing. */
    private function loadDirectly(array $ids, callable $load): array {
        $this->fetching->count('unguarded', count($ids));
        return $this->decoded($this->load($ids, $load));
    }

    /** Calls a function that loads rows, and returns the rows encoded for the cache. */
    private function load(array $ids, callable $load): array {
        $before = $this->loading;
        $this->loading += $ids;
        try {
            $loaded = $load(array_values($ids));
        } catch (\Throwable $error) {
            $this->fetching->count('load_failed', count($ids));
            throw $error;
        } finally {
            $this->loading = $before;
        }
        $loaded = is_array($loaded) ? $loaded : iterator_to_array($loaded);
        $encode = fn ($item) => isset($loaded[$item]) ? $this->options->codec->encode($loaded[$item]) : null;
        return array_combine(array_keys($ids), array_map($encode, array_keys($ids)));
    }

    /** Decodes encoded rows, so that every caller gets the value that the cache would return. */
    private function decoded(array $encoded): array {
        return array_map(fn ($data) => $data === null ? null : $this->options->codec->decode($data), $encoded);
    }

    /**
     * Announces a change of each row, to the filters that are being filled first.
     *
     * @param list<string> $items
     * @return array<int, BloomgateException> the errors, by the positions of their items
     */
    private function sendChanges(array $items): array {
        $errors = [];
        foreach ($this->options->feed ? [] : array_chunk($items, Items::PER_COMMAND, true) as $part) {
            $pairs = array_merge(...array_map(fn ($item) => [$item, $this->fetching->prefix . $item], $part));
            $one = fn ($filter) => count($part) > 1 ? ['BF.MCHANGED', $filter, 'ITEMS', ...$pairs] : ['BF.CHANGED', $filter, ...$pairs];
            $commands = array_map($one, [...$this->options->announceTo, $this->fetching->filter]);
            [$replies, $lost] = $this->fetching->ask($commands, durably: true);
            foreach (array_keys($part) as $index => $place) {
                foreach ($replies as $reply) {
                    $answer = is_array($reply) ? $reply[$index] : $reply;
                    $error = $lost ?? ($answer instanceof BloomgateException ? $answer : null);
                    if ($error !== null) $errors[$place] ??= $error;
                }
            }
        }
        return $errors;
    }
}
