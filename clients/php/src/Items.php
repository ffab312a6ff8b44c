<?php declare(strict_types=1);

namespace Bloomgate;

/** Converts items to bytes and to the names of keys, and splits batches into commands. */
final class Items {
    /** The maximum number of items in one command. Larger commands gain nothing, and delay other clients of the server. */
    public const PER_COMMAND = 500;

    /** The maximum size of one command's items in bytes, unless it has one item. */
    public const BYTES_PER_COMMAND = 1 << 20;

    /** The commands that are sent together, before their replies are read. */
    public const COMMANDS_TOGETHER = 16;

    /** Returns the bytes of an item, which the filter hashes. An integer is written in decimal. */
    public static function bytes(mixed $item): string {
        if (is_string($item) || is_int($item)) return (string) $item;
        throw new Refused('an item is a string or an int, not ' . get_debug_type($item));
    }

    /**
     * Splits items into the commands of a batch.
     *
     * @return \Generator<int, list<string>>
     */
    public static function chunks(iterable $items): \Generator {
        [$chunk, $bytes] = [[], 0];
        foreach ($items as $item) {
            $item = self::bytes($item);
            if ($chunk && (count($chunk) >= self::PER_COMMAND || $bytes + strlen($item) > self::BYTES_PER_COMMAND)) {
                yield $chunk;
                [$chunk, $bytes] = [[], 0];
            }
            $chunk[] = $item;
            $bytes += strlen($item);
        }
        if ($chunk) yield $chunk;
    }

    /**
     * Collects the commands of a batch that are sent together. Reads no further ahead.
     *
     * @return \Generator<int, list<list<string>>>
     */
    public static function windows(iterable $items): \Generator {
        $window = [];
        foreach (self::chunks($items) as $chunk) {
            if (array_push($window, $chunk) < self::COMMANDS_TOGETHER) continue;
            yield $window;
            $window = [];
        }
        if ($window) yield $window;
    }

    /** Returns the prefix of cache keys. */
    public static function cachePrefix(string $filter): string { return self::inSlotOf($filter) . ':'; }

    /** Returns the name under which a filter is filled. */
    public static function fillingName(string $filter): string { return self::inSlotOf($filter) . '~filling'; }

    /**
     * Returns the keys of `bloomgate follow`: its heartbeat, and the hash of the writes in flight.
     *
     * @return array{string, string}
     */
    public static function feedKeys(string $filter): array {
        $base = self::inSlotOf($filter);
        return ["$base:feed", "$base:feed:open"];
    }

    /**
     * Returns a prefix of key names in the cluster slot of the filter. Its hash tag is the text between the first `{` and the next
     * `}`.
     */
    private static function inSlotOf(string $filter): string {
        if (preg_match('/^[^{]*\{[^}]+\}/', $filter)) return $filter;
        if (str_contains($filter, '}')) {
            throw new Refused("no other key shares the slot of \"$filter\": rename the filter, or, without a feed, pass a prefix");
        }
        return '{' . $filter . '}';
    }
}
