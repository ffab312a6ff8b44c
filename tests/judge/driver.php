<?php declare(strict_types=1);

/**
 * The judge's driver for the PHP package: `php driver.php phpredis|predis SETTINGS`. README.md has the protocol.
 *
 * A process of PHP makes one call at a time, so the calls run in several processes, as under PHP-FPM. To cancel a call, its process
 * is killed.
 */

use Bloomgate\Guard;
use Bloomgate\Tests\Clients;

require __DIR__ . '/../../clients/php/tests/autoload.php';
ini_set('display_errors', 'stderr');

function tell(mixed $stream, mixed ...$words): void { fwrite($stream, json_encode($words, JSON_THROW_ON_ERROR) . "\n"); }

/**
 * Returns the next message, or null at the end, which is in the middle of a line if the sender was killed. Without
 * JSON_OBJECT_AS_ARRAY an object stays one, so that `tell` repeats an empty one as `{}`.
 */
function hear(mixed $stream, int $flags = 0): ?array {
    $line = (string) fgets($stream);
    return str_ends_with($line, "\n") ? json_decode($line, null, 512, JSON_THROW_ON_ERROR | $flags) : null;
}

function guard(string $library, string $address, array $of): Guard {
    return new Guard(
        Clients::connection($library, (int) explode(':', $address)[1]), 'rows',
        announceTo: ['{rows}~filling'], ttl: $of['ttl'], absentTtl: $of['absent_ttl'], lease: $of['lease'], wait: $of['wait'],
        patience: $of['patience'], failSafe: $of['fail_safe'], replicas: $of['replicas'], warn: fn (string $text) => null,
    );
}

/**
 * Makes the calls that arrive in the stream, until it ends. The number of a load or a commit is the number of its call.
 *
 * @param Closure(): Guard $guard returns the guard for a call
 */
function work(mixed $stream, Closure $guard): void {
    while ([$word, $number, $ids] = hear($stream, JSON_OBJECT_AS_ARRAY)) {
        $ask = function (string $word, mixed $value) use ($stream, $number): array {
            tell($stream, $word, $number, $value);
            [$word, , $answer] = hear($stream, JSON_OBJECT_AS_ARRAY) ?? exit(1);
            return $word === 'row' ? $answer : throw new RuntimeException($answer);
        };
        try {
            $rows = match (true) {
                $word === 'write' => $guard()->changedMany($ids, fn () => $ask('commit', $number)),
                count($ids) > 1 => $guard()->getMany($ids, fn (array $wanted) => $ask('load', $wanted)),
                default => [$ids[0] => $guard()->get($ids[0], fn (string $id) => $ask('load', [$id])[$id] ?? null)],
            };
            tell($stream, $word, $number, (object) $rows);
        } catch (Throwable $error) {
            tell($stream, 'error', $number, $error::class . ': ' . $error->getMessage());
        }
    }
}

/** The processes that make calls. */
final class Processes {
    /** The streams to the processes, by process id. */
    public array $streams = [];

    /** The process ids, by the numbers of the calls that run. */
    private array $calls = [];

    private int $started = 0;

    /** @param Closure(): Guard $guard makes a guard with a new connection */
    public function __construct(private readonly Closure $guard) {}

    /** Passes a message of the judge to a process. A cancelled call may be over. */
    public function pass(string $word, int $number, mixed $value): void {
        if ($word === 'read' || $word === 'write') {
            $idle = array_key_first(array_diff_key($this->streams, array_flip($this->calls)));
            $this->calls[$number] = $idle ?? $this->start();
        }
        $process = $this->calls[$number] ?? null;
        if ($process === null) return;
        $word === 'cancel' ? posix_kill($process, SIGKILL) : tell($this->streams[$process], $word, $number, $value);
    }

    /** Passes a message of a process to the judge. */
    public function receive(string $word, int $number, mixed $value): void {
        if ($word !== 'load' && $word !== 'commit') unset($this->calls[$number]);
        tell(STDOUT, $word, $number, $value);
    }

    /** Removes a process that has ended. */
    public function ended(int $process): void {
        pcntl_waitpid($process, $status);
        $reason = pcntl_wifsignaled($status) && pcntl_wtermsig($status) === SIGKILL ? 'cancelled' : 'the process has ended';
        foreach (array_keys($this->calls, $process, true) as $number) $this->receive('error', $number, $reason);
        unset($this->streams[$process]);
    }

    /** Starts a process. Half of them keep their guard; the others make one for each call, as PHP-FPM does for each request. */
    private function start(): int {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $keeps = ++$this->started % 2 === 0;
        $process = pcntl_fork();
        if ($process === 0) {
            array_map(fclose(...), [$ours, STDIN, ...$this->streams]);
            // By default, an idle process would end after a minute.
            stream_set_timeout($theirs, 86_400);
            $kept = ($this->guard)();
            work($theirs, $keeps ? fn () => $kept : $this->guard);
            exit(0);
        }
        fclose($theirs);
        $this->streams[$process] = $ours;
        return $process;
    }
}

[, $library, $settings] = $argv;
['address' => $address, 'guard' => $options] = json_decode($settings, true);
$processes = new Processes(fn () => guard($library, $address, $options));
tell(STDOUT, 'ready', 0, null);
for (;;) {
    [$ready, $none] = [[0 => STDIN] + $processes->streams, null];
    stream_select($ready, $none, $none, null);
    foreach ($ready as $process => $stream) {
        $message = hear($stream);
        match (true) {
            $process === 0 => $message ? $processes->pass(...$message) : exit(0),
            $message === null => $processes->ended($process),
            default => $processes->receive(...$message),
        };
    }
}
