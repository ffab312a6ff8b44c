<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\Unconfirmed;

final class GuardTest extends ServerTestCase {
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

    public function testClearKeepsTheFollowersKeys(): void {
        $guard = $this->guard(feed: true);
        self::$server->send('MSET', '{users}:feed', '1', '{users}:feed:open', '1', '{users}:feeder', '1', '{users}:1', '1', 'other', '1');
        $guard->clear();
        $left = self::$server->send('KEYS', '*');
        sort($left);
        $this->assertSame(['other', 'users', '{users}:feed', '{users}:feed:open'], $left);
    }
}
