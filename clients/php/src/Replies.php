<?php declare(strict_types=1);

namespace Bloomgate;

/**
 * Parses the replies of BF.INFO, BF.STATS and BF.PLAN: flat lists of names and values, with some numbers as text. Unknown fields
 * are ignored, and missing ones are null.
 */
final class Replies {
    public const INFO = [
        'capacity' => 'Capacity', 'sizeBytes' => 'Size', 'layers' => 'Number of filters', 'items' => 'Number of items inserted',
        'expansion' => 'Expansion rate',
    ];
    public const PLAN = [
        'kind' => 'Kind', 'layout' => 'Layout', 'hash' => 'Hash', 'errorRate' => 'Error rate', 'capacity' => 'Capacity',
        'sizeBytes' => 'Size', 'bitsPerItem' => 'Bits per item', 'layers' => 'Layers',
    ];
    public const STATS = [
        'kind' => 'Kind', 'layout' => 'Layout', 'hash' => 'Hash', 'errorRate' => 'Error rate', 'errorRateNow' => 'Error rate now',
        'items' => 'Number of items inserted', 'itemsEstimated' => 'Number of items estimated', 'capacity' => 'Capacity',
        'sizeBytes' => 'Size', 'pendingBytes' => 'Size of pending adds', 'layers' => 'Layers',
        'itemsDeleted' => 'Number of items deleted', 'roomForDeleted' => 'Room for items deleted', 'windowS' => 'Window',
        'sliding' => 'Sliding', 'buckets' => 'Buckets',
    ];
    private const LAYER = [
        'capacity' => 'Capacity', 'sizeBytes' => 'Size', 'hashes' => 'Hashes', 'items' => 'Number of items inserted', 'fill' => 'Fill',
    ];
    private const BUCKET = ['slot' => 'Slot', 'items' => 'Number of items inserted', 'beginMs' => 'Begin', 'endMs' => 'End'];

    /**
     * Returns the fields of a reply by their names in PHP.
     *
     * @param array<string, string> $names
     * @return array<string, mixed>
     */
    public static function fields(mixed $reply, array $names): array {
        if (!is_array($reply)) {
            throw new UnexpectedReply('the server has sent ' . json_encode($reply) . ' in place of a list');
        }
        $found = [];
        foreach (array_chunk($reply, 2) as $pair) $found[$pair[0]] = $pair[1] ?? null;
        $fields = [];
        foreach ($names as $field => $name) {
            $value = $found[$name] ?? null;
            $fields[$field] = match (true) {
                is_array($value) => array_map(fn ($one) => self::fields($one, $field === 'layers' ? self::LAYER : self::BUCKET), $value),
                $field === 'buckets' => [],
                $field === 'sliding' => (bool) $value,
                default => is_numeric($value) ? $value + 0 : $value,
            };
        }
        return $fields;
    }
}
