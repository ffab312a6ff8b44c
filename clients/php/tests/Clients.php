<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\Connection;

/** Connections to a server on this machine. */
final class Clients {
    public const LIBRARIES = ['phpredis', 'predis'];

    public static function connection(string $library, int $port, float $timeout = 1.0): Connection {
        return new Connection(match ($library) {
            'phpredis' => function () use ($port, $timeout) {
                $redis = new \Redis();
                $redis->connect('127.0.0.1', $port, $timeout);
                return $redis;
            },
            'predis' => fn () => new \Predis\Client(['host' => '127.0.0.1', 'port' => $port, 'timeout' => $timeout]),
        }, $timeout);
    }
}
