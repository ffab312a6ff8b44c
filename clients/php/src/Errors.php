<?php declare(strict_types=1);

/** The errors of this package. */

namespace Bloomgate;

/** The base class of the errors that a server or its connection causes. */
class BloomgateException extends \RuntimeException {
    /** @var list<bool|null> the answers of a batch that failed; null for an item whose answer is unknown */
    public array $answers = [];
}

/** An argument, an option or a row that this package refuses. Nothing was sent. */
class Refused extends \InvalidArgumentException {}

/** The connection was lost, or could not be opened. */
class ConnectionLost extends BloomgateException {}

/** The server did not answer within the time limit. The connection is closed, so that a late reply is never read. */
class TimedOut extends ConnectionLost {}

/** A write did not reach the required number of replicas, or the append-only file, in time. */
class NotDurable extends BloomgateException {}

/** A reply in an unknown form. */
class UnexpectedReply extends BloomgateException {}

/** A row has no cached value, and its last load failed: the row is not loaded again until the back-off ends. */
class LoadFailed extends BloomgateException {
    public function __construct(public readonly string $id) {
        parent::__construct("the row \"$id\" has no cached value, and its last load failed");
    }
}

/**
 * A write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to a lease and a
 * time to live.
 */
class Unconfirmed extends BloomgateException {
    /** @param list<string> $ids */
    public function __construct(public readonly array $ids, ?\Throwable $cause) {
        parent::__construct(sprintf('the change of %d row(s) could not be confirmed', count($ids)), 0, $cause);
    }
}

/** An error reply of the server. */
class ServerError extends BloomgateException {
    private const GUARD = ['BF.FETCH', 'BF.MFETCH', 'BF.FILL', 'BF.CHANGED', 'BF.MCHANGED'];

    /** Returns the error of a command with this text. */
    public static function of(string $text, string $command): self {
        $plain = preg_replace('/^ERR /', '', $text);
        return match (true) {
            $plain === 'not found' => new FilterMissing($text),
            $plain === 'item exists' => new FilterExists($text),
            str_contains($text, 'non scaling filter is full') => new FilterFull($text),
            str_contains($text, 'filter is still being loaded') => new FilterLoading($text),
            str_starts_with($text, 'ERR unknown command') && str_starts_with($command, 'BF.') => new ModuleMissing(
                "the server has not loaded bloomgate: $text"
            ),
            $text === 'ERR syntax error' && in_array($command, self::GUARD, true) => new ModuleMissing(
                "the module is older than this client: $command was answered with: $text"
            ),
            default => new self($text),
        };
    }

    public function begins(string ...$words): bool { return in_array(strtok($this->getMessage(), ' '), $words, true); }
}

/** There is no filter at this key. */
class FilterMissing extends ServerError {}

/** The key exists already. */
class FilterExists extends ServerError {}

/** A filter that does not grow has reached its capacity. The items before the first null in `answers` were added. */
class FilterFull extends ServerError {}

/** The filter is still being loaded. */
class FilterLoading extends ServerError {}

/** The server has not loaded the module, or has loaded an older version. */
class ModuleMissing extends ServerError {}
