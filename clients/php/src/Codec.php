<?php declare(strict_types=1);

/** Converts rows to the bytes that a guard caches, and back. */

namespace Bloomgate;

/**
 * Converts rows to bytes and back. If `decode` throws, the guard loads the row and replaces the cached value. Every caller gets the
 * result of `decode`, including the caller that loaded the row.
 */
interface Codec {
    public function encode(mixed $row): string;

    public function decode(string $data): mixed;
}

/** The guard's default codec: JSON in UTF-8. Objects are read as arrays, and an empty object as an empty list. */
final class Json implements Codec {
    private const FLAGS = JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_LINE_TERMINATORS
        | JSON_PRESERVE_ZERO_FRACTION;

    public function encode(mixed $row): string {
        try {
            return json_encode($row, self::FLAGS);
        } catch (\JsonException $error) {
            throw new Refused('the row cannot be written as JSON: ' . $error->getMessage(), 0, $error);
        }
    }

    public function decode(string $data): mixed { return json_decode($data, true, 512, JSON_THROW_ON_ERROR); }
}

/** The codec of `serialize`, which keeps the types of PHP. Use it only with a server to which only trusted programs can write. */
final class Serialized implements Codec {
    public function encode(mixed $row): string { return serialize($row); }

    public function decode(string $data): mixed {
        $row = @unserialize($data);
        return $row === false && $data !== serialize(false) ? throw new Refused('the value is not serialized') : $row;
    }
}

/** The codec of rows that are strings, which are cached unchanged. */
final class Bytes implements Codec {
    public function encode(mixed $row): string {
        return is_string($row) ? $row : throw new Refused('the row is ' . get_debug_type($row) . ', not a string: pass a codec');
    }

    public function decode(string $data): string { return $data; }
}
