<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\{Connection, Guard};
use PHPUnit\Framework\TestCase;

abstract class ServerTestCase extends TestCase {
    protected static Server $server;

    public static function setUpBeforeClass(): void { self::$server = new Server(); }

    public static function tearDownAfterClass(): void { self::$server->stop(); }

    protected function setUp(): void { self::$server->send('FLUSHALL'); }

    /** @return array<string, array{string}> */
    public static function libraries(): array {
        return array_combine(Clients::LIBRARIES, array_map(fn ($library) => [$library], Clients::LIBRARIES));
    }

    protected function connection(string $library = 'phpredis', float $timeout = 1.0): Connection {
        return Clients::connection($library, self::$server->port, $timeout);
    }

    /** Returns a guard of the filter `users`, which contains the ids 1 to 100. */
    protected function guard(string $library = 'phpredis', mixed ...$options): Guard {
        if (!self::$server->send('EXISTS', 'users')) {
            self::$server->send('BF.RESERVE', 'users', '0.000001', '1000', 'HASH', 'siphash');
            self::$server->send('BF.MADD', 'users', ...range(1, 100));
        }
        return new Guard($this->connection($library), 'users', ...['beta' => 0.0] + $options);
    }

    /** Returns a function that fails the test. */
    protected function unasked(): \Closure {
        return fn () => $this->fail('the database was asked');
    }
}
