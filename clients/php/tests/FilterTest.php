<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\{Filter, Refused};

final class FilterTest extends ServerTestCase {
    /** @dataProvider libraries */
    public function testRoundTrip(string $library): void {
        $connection = $this->connection($library);
        $filter = new Filter($connection, 'seen');
        $this->assertTrue($filter->reserve(0.0001, 10000, hash: 'siphash', seed: str_repeat('0f', 16)));
        $this->assertFalse($filter->reserve(0.0001, 10000, existOk: true));
        $this->assertTrue($filter->add("a\0\xff"));
        $this->assertFalse($filter->add("a\0\xff"));
        $this->assertSame(array_fill(0, 9000, true), $filter->addMany((fn () => yield from range(0, 8999))()));
        $this->assertSame([true, true, false], $filter->existsMany([0, '17', 'x']));
        $this->assertTrue($filter->delete(17));
        $this->assertSame([false, true], $filter->deleteMany(['17', 18]));
        $this->assertSame(8999, $filter->card());
        $this->assertSame(10000, $filter->info()['capacity']);
        $this->assertSame(['siphash', 2], [$filter->stats()['hash'], $filter->stats()['itemsDeleted']]);
        $this->assertSame('counting', Filter::plan($connection, 0.01, 1000, counting: true, items: 500)['kind']);
        $filter->clear();
        $this->assertSame(0, $filter->card());
        $this->assertTrue($filter->drop());
        $this->assertFalse($filter->exists(1));
    }

    /** @dataProvider libraries */
    public function testFilling(string $library): void {
        $this->assertSame(1200, Filter::fill($this->connection($library), 'rows', range(1, 1200), 0.000001, 2000, hash: 'siphash'));
        $this->assertSame([1, 0], [self::$server->send('BF.EXISTS', 'rows', 1200), self::$server->send('EXISTS', '{rows}~filling')]);
    }

    public function testOptionsAreRefused(): void {
        $this->expectException(Refused::class);
        (new Filter($this->connection(), 'seen'))->reserve(0.01, 100, hash: true);
    }
}
