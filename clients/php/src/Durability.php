<?php declare(strict_types=1);

namespace Bloomgate;

/** Whether writes survive a failover or a restart: WAIT and WAITAOF after them, on the same connection. */
final class Durability {
    public function __construct(private readonly int $replicas, private readonly float $timeout, private readonly bool $aof) {}

    /**
     * Sends writes, and waits until the required replicas and the append-only files have them.
     *
     * @param list<list<string|int>> $commands
     * @return array{list<mixed>, ?BloomgateException} the replies of the writes, and what is wrong with their durability
     */
    public function ask(Connection $connection, array $commands): array {
        if (!$this->aof && $this->replicas === 0) return [$connection->ask($commands), null];
        $words = [$this->replicas, (int) round($this->timeout * 1000)];
        $wait = $this->aof ? ['WAITAOF', 1, ...$words] : ['WAIT', ...$words];
        $replies = $connection->ask([...$commands, $wait], $this->timeout);
        $reply = array_pop($replies);
        if ($reply instanceof ServerError) return [$replies, $reply];
        [$onDisk, $have] = $this->aof ? $reply : [1, $reply];
        return [$replies, match (true) {
            $onDisk < 1 => new NotDurable("the write is not in the server's append-only file yet"),
            $have < $this->replicas => new NotDurable("$have of {$this->replicas} replica(s) have the write"),
            default => null,
        }];
    }
}
