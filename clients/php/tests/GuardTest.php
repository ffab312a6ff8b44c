<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\{Guard, LoadFailed, ModuleMissing, NotDurable, Options, Refused, Serialized, Unconfirmed};

final class GuardTest extends ServerTestCase {
    /** @dataProvider libraries */
    public function testReadingAndWriting(string $library): void {
        $guard = $this->guard($library);
        $row = ['name' => 'Zoë', 'n' => [1, null, 1.0]];
        $this->assertSame($row, $guard->get(17, fn (int $id) => $id === 17 ? $row : null));
        $this->assertSame($row, $guard->get('17', $this->unasked()));
        $this->assertNull($guard->get(1700, $this->unasked()));
        $this->assertSame('kept', $guard->changed(17, function () use (&$row) {
            $row['name'] = 'Ann';
            return 'kept';
        }));
        $this->assertSame($row, $guard->get(17, fn () => $row));
        $this->assertNull($guard->get(18, fn () => null));
        $this->assertNull($guard->get(18, $this->unasked()));
        $this->assertSame('new', $guard->changed(1700, fn () => 'new'));
        $this->assertSame('new', $guard->get(1700, fn () => 'new'));
        $guard->forget(1700);
        $this->assertNull($guard->get(1701, $this->unasked()));
        $this->assertSame(['load' => 4, 'filled' => 4, 'hit' => 1, 'absent' => 3], $guard->counts());
    }

    /** @dataProvider libraries */
    public function testManyRows(string $library): void {
        $guard = $this->guard($library);
        $asked = [];
        $load = function (array $ids) use (&$asked) {
            $asked = $ids;
            return [1 => 'one', 2 => 'two', 99 => 'other'];
        };
        $this->assertSame(['2' => 'two', 1 => 'one', 5 => null, 'x' => null], $guard->getMany(['2', 1, 5, 'x', 2], $load));
        $this->assertSame(['2', 1, 5], $asked);
        $this->assertSame([1 => 'one', 5 => null], $guard->getMany([1, 5], $this->unasked()));
        $guard->changedMany([1, 2], fn () => null);
        $this->assertSame([1 => 'eins'], $guard->getMany([1], fn () => [1 => 'eins']));
    }

    public function testChangeDuringALoadIsNotCached(): void {
        [$guard, $other] = [$this->guard(), $this->guard('predis')];
        $this->assertSame('old', $guard->get(1, fn () => $other->changed(1, fn () => 'old')));
        $this->assertSame('new', $guard->get(1, fn () => 'new'));
    }

    public function testUndecodableValuesAreReplaced(): void {
        $guard = $this->guard(codec: new Serialized(), warn: fn () => null);
        self::$server->send('MSET', '{users}:1', '{broken', '{users}:2', '{broken');
        $this->assertSame('one', $guard->get(1, fn () => 'one'));
        $this->assertSame('one', $guard->get(1, $this->unasked()));
        $this->assertSame([2 => false], $guard->getMany([2], fn () => [2 => false]));
        $this->assertSame([2 => false], $guard->getMany([2], $this->unasked()));
    }

    public function testOldValueIfTheLoadFails(): void {
        $guard = $this->guard(ttl: 0.05, failSafe: 60.0, warn: fn () => null);
        $down = fn () => throw new \DomainException('down');
        $guard->get(1, fn () => 'old');
        usleep(60000);
        $this->assertSame('old', $guard->get(1, $down));
        try {
            $guard->get(2, $down);
            $this->fail('nothing is cached');
        } catch (\DomainException) {
        }
        $this->expectException(LoadFailed::class);
        $guard->get(2, $this->unasked());
    }

    /** @dataProvider libraries */
    public function testDatabaseIsQueriedWithoutTheServer(string $library): void {
        $warnings = [];
        $guard = new Guard(Clients::connection($library, 1), 'users', warn: function (string $text) use (&$warnings) {
            $warnings[] = $text;
        });
        $this->assertSame('row', $guard->get(1, fn () => 'row'));
        $this->assertSame([1 => 'row', 2 => null], $guard->getMany([1, 2], fn () => [1 => 'row']));
        $this->assertCount(1, $warnings);
        $this->assertStringContainsString('ConnectionLost', $warnings[0]);
        $this->expectException(\Bloomgate\ConnectionLost::class);
        $guard->changed(1, $this->unasked());
    }

    public function testOlderModuleIsReported(): void {
        $older = stream_socket_server('tcp://127.0.0.1:0');
        $port = (int) substr(strrchr(stream_socket_get_name($older, false), ':'), 1);
        $pid = pcntl_fork();
        if ($pid === 0) {
            $client = stream_socket_accept($older, 60);
            while (fread($client, 65536)) fwrite($client, "-ERR syntax error\r\n");
            posix_kill(posix_getpid(), SIGKILL);
        }
        try {
            (new Guard(Clients::connection('phpredis', $port), 'users'))->announce(1);
            $this->fail('it was answered');
        } catch (ModuleMissing $error) {
            $this->assertStringContainsString('older than this client', $error->getMessage());
        } finally {
            posix_kill($pid, SIGKILL);
            pcntl_waitpid($pid, $status);
        }
    }

    /** @dataProvider libraries */
    public function testReplicasThatAreMissing(string $library): void {
        $guard = $this->guard($library, replicas: 1, replicasTimeout: 0.1, patience: 0.0, warn: fn () => null);
        try {
            $guard->announce(1);
            $this->fail('there is no replica');
        } catch (NotDurable $error) {
            $this->assertSame('0 of 1 replica(s) have the write', $error->getMessage());
        }
        $this->expectException(Unconfirmed::class);
        $guard->confirm(1);
    }

    public function testBothErrorsOfAChangeAreKept(): void {
        $guard = $this->guard(patience: 0.0, warn: fn () => null);
        try {
            $guard->changed(1, function () {
                self::$server->send('ACL', 'SETUSER', 'default', '-bf.changed');
                throw new \DomainException('of the transaction');
            });
            $this->fail('it was confirmed');
        } catch (Unconfirmed $error) {
            $this->assertSame(['1'], $error->ids);
            for ($last = $error; $last->getPrevious(); $last = $last->getPrevious());
            $this->assertSame('of the transaction', $last->getMessage());
        } finally {
            self::$server->send('ACL', 'SETUSER', 'default', '+bf.changed');
        }
    }

    /** @return array<string, array{string, int|float}> */
    public static function numbersOutOfRange(): array {
        $cases = [];
        foreach (Options::RANGES as $name => [$least, $most]) {
            $cases["$name below"] = [$name, $least - (is_int($least) ? 1 : 0.0005)];
            $cases["$name above"] = [$name, $most + 1];
        }
        return $cases;
    }

    /** @dataProvider numbersOutOfRange */
    public function testOptionOutOfRangeIsRefusedWithItsRange(string $name, int|float $value): void {
        [$least, $most] = Options::RANGES[$name];
        $this->expectException(Refused::class);
        $this->expectExceptionMessage("$name is from $least to $most, not $value");
        new Options(...[$name => $value]);
    }

    public function testRangesMatchTheSpecification(): void {
        $options = json_decode(file_get_contents(__DIR__ . '/../../specification/options.json'), true)['options'];
        $ranges = [];
        foreach ($options as $one) {
            if (!isset($one['least']) || $one['name'] === 'soft_timeout') continue;
            $unit = $one['unit'] === 'ms' ? 1000 : 1;
            $ranges[lcfirst(strtr(ucwords($one['name'], '_'), ['_' => '']))] = [$one['least'] / $unit, $one['most'] / $unit];
        }
        $this->assertSame($ranges, Options::RANGES);
    }

    public function testClearKeepsTheFollowersKeys(): void {
        $guard = $this->guard(feed: true);
        self::$server->send('MSET', '{users}:feed', '1', '{users}:feed:open', '1', '{users}:feeder', '1', '{users}:1', '1', 'other', '1');
        $guard->clear();
        $left = self::$server->send('KEYS', '*');
        sort($left);
        $this->assertSame(['other', 'users', '{users}:feed', '{users}:feed:open'], $left);
    }
}
