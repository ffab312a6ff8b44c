<?php declare(strict_types=1);

namespace Bloomgate;

use Predis\Command\RawCommand;
use Predis\Response\ErrorInterface;

/**
 * A connection of phpredis or Predis that sends each command only once, and is closed if a reply may arrive late.
 *
 * phpredis keeps a connection open after a timeout, and would return the late reply for the next command. It stores only the last
 * error of a pipeline: if one of several commands fails, every reply that may be an error counts as that error.
 */
final class Connection {
    /** Replies of a server that is not an active primary. A new connection to the same address may reach another server. */
    private const NO_PRIMARY = ['READONLY', 'MASTERDOWN', 'LOADING', 'CLUSTERDOWN'];

    private \Redis|\Predis\ClientInterface|null $client = null;

    /**
     * @param \Closure(): (\Redis|\Predis\ClientInterface) $connect makes a connection; it is called for the first command, and again
     *                                                             after a connection was lost
     * @param float $timeout how many seconds a command may take, apart from its wait in the server
     */
    public function __construct(private readonly \Closure $connect, public readonly float $timeout = 1.0) {
        if (!($timeout > 0)) throw new Refused("timeout must be more than 0 seconds, not $timeout");
    }

    /**
     * Sends commands together, and returns their replies in order; an error reply is returned as a ServerError. Throws
     * ConnectionLost.
     *
     * @param list<list<string|int>> $commands
     * @param float $wait how many seconds more than others these may take
     * @return list<mixed>
     */
    public function ask(array $commands, float $wait = 0.0): array {
        $commands = array_map(fn (array $words) => array_map(strval(...), $words), $commands);
        $begun = Fetching::now();
        // phpredis reports some failed writes as notices, and returns false.
        set_error_handler(fn (int $level, string $text) => throw new \ErrorException($text, 0, $level), E_NOTICE | E_WARNING);
        try {
            $this->client ??= ($this->connect)();
            $replies = $this->client instanceof \Redis
                ? self::askPhpredis($this->client, $commands, $this->timeout + $wait)
                : self::askPredis($this->client, $commands, $this->timeout + $wait);
        } catch (\Throwable $error) {
            // After any exception, even from a signal handler, a reply may be unread.
            $this->close();
            $isLost = $error instanceof \RedisException || $error instanceof \Predis\PredisException || $error instanceof \ErrorException;
            $took = Fetching::now() - $begun;
            throw match (true) {
                !$isLost => $error,
                $took < $this->timeout + $wait => new ConnectionLost($error->getMessage(), 0, $error),
                default => new TimedOut(sprintf('the server has not answered within %.3f s', $took), 0, $error),
            };
        } finally {
            restore_error_handler();
        }
        foreach ($replies as $reply) {
            if ($reply instanceof ServerError && $reply->begins(...self::NO_PRIMARY)) $this->close();
        }
        return $replies;
    }

    /**
     * Sends one command. Returns its reply, or throws its error.
     *
     * @param list<string|int> $words
     */
    public function one(array $words): mixed {
        $reply = $this->ask([$words])[0];
        return $reply instanceof ServerError ? throw $reply : $reply;
    }

    public function close(): void {
        try {
            $this->client instanceof \Redis ? $this->client->close() : $this->client?->disconnect();
        } catch (\RedisException | \Predis\PredisException) {
            // The connection is already closed.
        }
        $this->client = null;
    }

    private static function askPhpredis(\Redis $redis, array $commands, float $limit): array {
        $redis->setOption(\Redis::OPT_REPLY_LITERAL, true);
        $redis->setOption(\Redis::OPT_READ_TIMEOUT, $limit);
        $redis->clearLastError();
        $replies = array_fill(0, count($commands), false);
        try {
            if (count($commands) === 1) {
                $replies = [$redis->rawCommand(...$commands[0])];
            } else {
                $redis->multi(\Redis::PIPELINE);
                foreach ($commands as $words) $redis->rawCommand(...$words);
                $replies = $redis->exec();
            }
        } catch (\RedisException $error) {
            // phpredis throws some errors of the server, after reading all replies.
            if ($error->getMessage() !== $redis->getLastError()) throw $error;
        }
        if (!is_array($replies)) throw new \RedisException('the connection was lost');
        $text = $redis->getLastError();
        return array_map(fn ($reply, $words) => self::fromPhpredis($reply, $text, $words[0]), $replies, $commands);
    }

    private static function fromPhpredis(mixed $reply, ?string $text, string $command): mixed {
        if ($reply === false) return $text === null ? null : ServerError::of($text, $command);
        return is_array($reply) ? array_map(fn ($one) => self::fromPhpredis($one, $text, $command), $reply) : $reply;
    }

    private static function askPredis(\Predis\ClientInterface $client, array $commands, float $limit): array {
        $connection = $client->getConnection();
        if (!$connection instanceof \Predis\Connection\NodeConnectionInterface) {
            throw new Refused('pass a Predis client of a single server: aggregate connections repeat commands');
        }
        stream_set_timeout($connection->getResource(), (int) $limit, (int) (fmod($limit, 1) * 1e6));
        $sent = array_map(fn ($words) => RawCommand::create(...$words), $commands);
        array_walk($sent, $connection->writeRequest(...));
        return array_map(fn ($one, $words) => self::fromPredis($connection->readResponse($one), $words[0]), $sent, $commands);
    }

    private static function fromPredis(mixed $reply, string $command): mixed {
        return match (true) {
            $reply instanceof ErrorInterface => ServerError::of($reply->getMessage(), $command),
            is_array($reply) => array_map(fn ($one) => self::fromPredis($one, $command), $reply),
            $reply instanceof \Predis\Response\Status => $reply->getPayload(),
            default => $reply,
        };
    }
}
