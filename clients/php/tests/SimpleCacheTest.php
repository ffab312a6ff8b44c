<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\{Guard, InvalidKey, Serialized, SimpleCache};

final class SimpleCacheTest extends ServerTestCase {
    private SimpleCache $cache;

    protected function setUp(): void {
        parent::setUp();
        $this->cache = $this->cache();
    }

    private function cache(string $library = 'phpredis'): SimpleCache {
        return new SimpleCache(new Guard($this->connection($library), 'missing', beta: 0.0, codec: new Serialized()));
    }

    public function testValueThatWasLoadedIsStored(): void {
        foreach ([1, 1.0, false, null, '', [1, ['a' => new \DateTimeImmutable('2026-01-01')]]] as $index => $value) {
            $this->assertSame('default', $this->cache->get("key$index", 'default'));
            $this->assertTrue($this->cache->set("key$index", $value));
            $this->assertEquals($value, $this->cache('predis')->get("key$index", 'default'));
            $this->assertTrue($this->cache->has("key$index"));
        }
    }

    public function testValueThatWasNotLoadedDeletesTheCachedOne(): void {
        $this->cache->get('key');
        $this->cache->set('key', 'old');
        $this->assertTrue($this->cache->set('key', 'new'));
        $this->assertFalse($this->cache->has('key'));
    }

    public function testValueThatWasReadBeforeAChangeIsNotStored(): void {
        $this->cache->get('key');
        $this->cache('predis')->delete('key');
        $this->assertTrue($this->cache->set('key', 'old'));
        $this->assertFalse($this->cache->has('key'));
    }

    public function testOneOfSeveralLoadersStores(): void {
        $other = $this->cache('predis');
        $this->assertNull($this->cache->get('key'));
        $this->assertNull($other->get('key'));
        $this->assertTrue($other->set('key', 'value of the other'));
        $this->assertTrue($this->cache->set('key', 'value'));
        $this->assertSame('value', $other->get('key'));
    }

    public function testUnusedLeaseIsGivenUp(): void {
        $other = $this->cache('predis');
        $other->get('key');
        unset($other);
        $this->cache->get('key');
        $this->cache->set('key', 'value');
        $this->assertSame('value', $this->cache->get('key'));
    }

    public function testSeveralKeys(): void {
        $this->assertSame(['a' => 0, 'b' => 0], $this->cache->getMultiple(new \ArrayIterator(['a', 'b']), 0));
        $this->assertTrue($this->cache->setMultiple(['a' => 1, 'b' => 2], new \DateInterval('PT1H')));
        $this->assertSame(['b' => 2, 'c' => null, 'a' => 1], $this->cache->getMultiple(['b', 'c', 'a']));
        $this->assertGreaterThan(3000, self::$server->send('TTL', '{missing}:a'));
        $this->assertTrue($this->cache->deleteMultiple(['a', 'b']));
        $this->assertSame(['a' => null], $this->cache->getMultiple(['a']));
        $this->cache->setMultiple(['a' => 1]);
        self::$server->send('SET', 'other', '1');
        $this->assertTrue($this->cache->clear());
        $this->assertSame(['other'], self::$server->send('KEYS', '*'));
    }

    public function testExpiredTimeDeletes(): void {
        $this->cache->get('key');
        $this->assertTrue($this->cache->set('key', 'value', 0));
        $this->assertFalse($this->cache->has('key'));
    }

    public function testUnreachableServerIsAMiss(): void {
        $cache = new SimpleCache(new Guard(Clients::connection('phpredis', 1), 'missing', warn: fn () => null));
        $this->assertSame(7, $cache->get('key', 7));
        $this->assertFalse($cache->set('key', 1));
        $this->assertFalse($cache->has('key'));
        $this->assertFalse($cache->clear());
    }

    /** @dataProvider keysThatAreRefused */
    public function testKeyIsRefused(mixed $key): void {
        $this->expectException(InvalidKey::class);
        $this->cache->get($key);
    }

    /** @return list<array{mixed}> */
    public static function keysThatAreRefused(): array {
        return array_map(fn ($key) => [$key], ['', null, true, 1.5, ...str_split('{}()/\\@:')]);
    }
}
