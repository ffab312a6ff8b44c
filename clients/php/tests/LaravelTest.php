<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\Laravel\{Repository, Store};
use Bloomgate\{Guard, Serialized};

final class LaravelTest extends ServerTestCase {
    private function laravel(string $library = 'phpredis', float ...$options): Repository {
        $connection = $this->connection($library, 60);
        return new Repository(new Store(new Guard($connection, 'missing', ...$options, beta: 0.0, codec: new Serialized())));
    }

    /** @dataProvider libraries */
    public function testHundredColdProcessesLoadOnce(string $library): void {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pids = [];
        for ($process = 0; $process < 100; $process++) {
            if ($pids[] = pcntl_fork()) continue;
            fclose($ours);
            try {
                // The other end is closed once all processes have started.
                fread($theirs, 1);
                $row = $this->laravel($library, lease: 60.0, wait: 60.0)->remember('article', 60, function () {
                    self::$server->send('INCR', 'loads');
                    usleep(500000);
                    return ['title' => 'one'];
                });
                self::$server->send('HINCRBY', 'rows', serialize($row), 1);
            } finally {
                posix_kill(posix_getpid(), SIGKILL);
            }
        }
        fclose($ours);
        foreach ($pids as $pid) pcntl_waitpid($pid, $status);
        $this->assertSame('1', self::$server->send('GET', 'loads'));
        $this->assertSame([serialize(['title' => 'one']), '100'], self::$server->send('HGETALL', 'rows'));
    }

    public function testStoreWithTheRepositoryOfLaravel(): void {
        $laravel = new \Illuminate\Cache\Repository($this->laravel()->getStore());
        $this->assertSame(1, $laravel->remember('a', 60, fn () => 1));
        $this->assertSame(1, $laravel->remember('a', 60, $this->unasked()));
        $this->assertSame(['a' => 1, 'b' => null], $laravel->many(['a', 'b']));
        $laravel->putMany(['b' => 2], 60);
        $this->assertSame(2, $laravel->get('b'));
        $laravel->forever('b', 3);
        $this->assertNull($laravel->get('b'), 'a value that was not loaded is not stored');
        $laravel->forever('b', 3);
        $this->assertSame(3, $laravel->get('b'));
        $laravel->forget('a');
        $this->assertSame('again', $laravel->get('a', 'again'));
        $laravel->flush();
        $this->assertNull($laravel->get('b'));
    }

    public function testRememberThroughTheGuard(): void {
        $laravel = $this->laravel();
        try {
            $laravel->remember('a', 60, fn () => throw new \DomainException('down'));
            $this->fail('the load has failed');
        } catch (\DomainException) {
        }
        $this->assertSame(1, $laravel->rememberForever('a', fn () => 1));
        $this->assertSame(1, $laravel->remember('a', new \DateInterval('PT1M'), $this->unasked()));
        $this->assertSame(2, $laravel->remember('b', 0, fn () => 2));
        $this->assertNull($laravel->get('b'));
        $this->expectException(\BadMethodCallException::class);
        $laravel->increment('hits');
    }
}
