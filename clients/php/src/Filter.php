<?php declare(strict_types=1);

namespace Bloomgate;

/** A filter in a server. Every method throws the errors of Errors.php. */
final class Filter {
    private const FLAGS = ['nonscaling', 'rolling', 'sliding', 'cuckoo', 'counting'];
    private const VALUES = ['expansion', 'seed', 'layout', 'hash', 'window', 'buckets', 'ex', 'px', 'tightening', 'items'];

    /** @param bool $create with false, an add to a missing filter throws FilterMissing instead of creating one */
    public function __construct(
        private readonly Connection $connection, public readonly string $key, private readonly bool $create = true,
    ) {}

    /**
     * Creates the filter for a false positive rate and a number of items. The options are the options of BF.RESERVE in lower case:
     * `hash: 'siphash', nonscaling: true`. Returns true; with `existOk`, returns false if the filter exists and leaves it
     * unchanged.
     */
    public function reserve(float $rate, int $capacity, bool $existOk = false, string|int|float|bool ...$options): bool {
        try {
            $this->one('BF.RESERVE', $rate, $capacity, ...self::words($options));
        } catch (FilterExists $error) {
            if (!$existOk) throw $error;
            // The reply is the same for a key of another type: this throws then.
            $this->info();
            return false;
        }
        return true;
    }

    /** Adds an item. Returns true if it is certainly new, false if it was present or is a false positive. */
    public function add(string|int $item): bool { return $this->addMany([$item])[0]; }

    /**
     * Adds any number of items, 500 or 1 MiB per command and 16 commands together. An error carries the answers so far.
     *
     * @param iterable<string|int> $items
     * @return list<bool> in the order of the items
     */
    public function addMany(iterable $items): array {
        return $this->batch($this->create ? ['BF.MADD', $this->key] : ['BF.INSERT', $this->key, 'NOCREATE', 'ITEMS'], $items);
    }

    /** Returns false if the item is certainly not in the filter, true if it is or is a false positive. */
    public function exists(string|int $item): bool { return (bool) $this->one('BF.EXISTS', $item); }

    /**
     * @param iterable<string|int> $items
     * @return list<bool>
     */
    public function existsMany(iterable $items): array { return $this->batch(['BF.MEXISTS', $this->key], $items); }

    /** Deletes an item from a filter with `cuckoo`, `hash: 'siphash'` or `counting`. Returns whether it was found. */
    public function delete(string|int $item): bool { return (bool) $this->one('BF.DEL', $item); }

    /**
     * @param iterable<string|int> $items
     * @return list<bool>
     */
    public function deleteMany(iterable $items): array { return $this->batch(['BF.MDEL', $this->key], $items); }

    /** Returns how often the item is in a filter with `cuckoo` (from 4 on: or more) or `counting` (at most 15). */
    public function count(string|int $item): int { return $this->one('BF.COUNT', $item); }

    /** Returns the number of items; 0 if there is no filter. */
    public function card(): int { return $this->one('BF.CARD'); }

    /** @return array<string, int|null> the filter's capacity, size and number of items: the fields of `Replies::INFO` */
    public function info(): array { return Replies::fields($this->one('BF.INFO'), Replies::INFO); }

    /** @return array<string, mixed> the filter's kind, fill and current error rate: the fields of `Replies::STATS` */
    public function stats(): array { return Replies::fields($this->one('BF.STATS'), Replies::STATS); }

    /** Removes all items and keeps the options. */
    public function clear(): void { $this->one('BF.CLEAR'); }

    /** Deletes the key. Returns whether it existed. */
    public function drop(): bool { return (bool) $this->one('UNLINK'); }

    /**
     * Returns the size of a filter with these options, when it is created or once it has `items` items.
     *
     * @return array<string, mixed> the fields of `Replies::PLAN`
     */
    public static function plan(Connection $connection, float $rate, int $capacity, string|int|float|bool ...$options): array {
        return Replies::fields($connection->one(['BF.PLAN', $rate, $capacity, ...self::words($options)]), Replies::PLAN);
    }

    /**
     * Fills the filter of a guard under its filling name, and renames it to `key` once it contains every id. Returns how many ids
     * were new. Until the rename, writers must announce to both names. With `replicas` or `aof`, each batch and the rename must
     * be acknowledged within `replicasTimeout` seconds.
     *
     * After an exception the key with the filling name may exist: delete it and start again. While it exists, this throws
     * FilterExists, because another client may be filling it.
     *
     * @param iterable<string|int> $ids
     */
    public static function fill(
        Connection $connection, string $key, iterable $ids, float $rate, int $capacity, int $replicas = 0,
        float $replicasTimeout = 3.0, bool $aof = false, string|int|float|bool ...$options,
    ): int {
        $durability = new Durability($replicas, $replicasTimeout, $aof);
        $filling = new self($connection, Items::fillingName($key));
        $filling->reserve($rate, $capacity, false, ...$options);
        $new = $filling->batch(['BF.INSERT', $filling->key, 'NOCREATE', 'SYNC', 'ITEMS'], $ids, $durability);
        [$renamed, $lost] = $durability->ask($connection, [['RENAME', $filling->key, $key]]);
        if ($error = $renamed[0] instanceof ServerError ? $renamed[0] : $lost) throw $error;
        return count(array_filter($new));
    }

    /**
     * @param array<string, mixed> $options
     * @return list<string>
     */
    private static function words(array $options): array {
        $words = [];
        foreach ($options as $name => $value) {
            $isFlag = in_array($name, self::FLAGS, true);
            if (is_bool($value) !== $isFlag || !$isFlag && !in_array($name, self::VALUES, true)) {
                throw new Refused("there is no option $name, or its value has another type: " . json_encode($value));
            }
            array_push($words, ...($isFlag ? array_fill(0, (int) $value, strtoupper($name)) : [strtoupper($name), (string) $value]));
        }
        return $words;
    }

    private function one(string $command, string|int|float ...$words): mixed {
        return $this->connection->one([$command, $this->key, ...$words]);
    }

    /**
     * Sends one command per chunk. Throws the first error, with the answers of all other commands. A command that failed midway
     * answers a shorter array, whose last element is the error.
     *
     * @return list<bool>
     */
    private function batch(array $words, iterable $items, Durability $durability = new Durability(0, 1.0, false)): array {
        $answers = [];
        foreach (Items::windows($items) as $window) {
            $commands = array_map(fn ($chunk) => [...$words, ...$chunk], $window);
            try {
                [$replies, $failure] = $durability->ask($this->connection, $commands);
            } catch (ConnectionLost $failure) {
                $replies = array_fill(0, count($window), $failure);
            }
            $first = null;
            foreach ($window as $index => $chunk) {
                $reply = is_array($replies[$index]) ? $replies[$index] : [$replies[$index]];
                foreach (array_keys($chunk) as $place) {
                    $one = $reply[$place] ?? null;
                    $first ??= $one instanceof BloomgateException ? $one : null;
                    $answers[] = is_int($one) ? $one !== 0 : null;
                }
            }
            if ($error = $first ?? $failure) {
                $error->answers = $answers;
                throw $error;
            }
        }
        return $answers;
    }
}
