<?php declare(strict_types=1);

/** The errors of this package. */

namespace Bloomgate;

/** The base class of the errors that a server or its connection causes. */
class BloomgateException extends \RuntimeException {
    /** @var list<bool|null> the answers of a batch that failed; null for an item whose answer is unknown */
    public array $answers = [];
}

/** An argument, an option or a row that this package refuses, before it sends anything. */
class Refused extends \InvalidArgumentException {}

/** The connection was lost, or could not be made. */
class ConnectionLost extends BloomgateException {}

/** The server has not answered within the time limit. The connection is closed, so that a late reply is never read. */
class TimedOut extends ConnectionLost {}

/** A write has not reached as many replicas as it must, or not the append-only file, in time. */
class NotDurable extends BloomgateException {}

/** A reply of a form that this package does not know. */
class UnexpectedReply extends BloomgateException {}

/** A row has no cached value, and its last load failed: it is not loaded before the back-off ends. */
class LoadFailed extends BloomgateException {
    public function __construct(public readonly string $id) {
        parent::__construct("the row \"$id\" has no cached value, and its last load has failed");
    }
}

/** A write was committed, but not confirmed in time: readers may get the old rows for up to one lease and one time to live. */
class Unconfirmed extends BloomgateException {
    /** @param list<string> $ids */
    public function __construct(public readonly array $ids, ?\Throwable $cause) {
        parent::__construct(sprintf('the change of %d row(s) could not be confirmed', count($ids)), 0, $cause);
    }
}

/** An error that the server has answered. */
class ServerError extends BloomgateException {
    private const GUARD = ['BF.FETCH', 'BF.MFETCH', 'BF.FILL', 'BF.CHANGED', 'BF.MCHANGED'];

    /** Returns the error of a command by its text. */
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

/** The server has not loaded the module, or an older version of it. */
class ModuleMissing extends ServerError {}
