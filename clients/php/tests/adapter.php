<?php declare(strict_types=1);

/**
 * Makes the calls of the cases in clients/specification, on phpredis or Predis: `php adapter.php phpredis`. Each process of a case is
 * a separate process, which makes one call at a time.
 */

namespace Bloomgate\Tests;

use Bloomgate\{Bytes, BloomgateException, Connection, ConnectionLost, Filter, Guard, Items, Json, LoadFailed, NotDurable, Refused};
use Bloomgate\{ServerError, Unconfirmed};

require __DIR__ . '/autoload.php';

/** The abilities of this client that cases may need. A process cannot make concurrent calls, or cancel a call. */
const ABILITIES = ['timeout', 'pause', 'fatal', 'transaction', 'resp2'];

/** The cases that a library cannot pass. */
const SKIPS = [
    'phpredis' => ['confirm-repeats-only-what-failed' => 'phpredis drops a whole list for an error in it that does not begin with ERR'],
    'predis' => [],
];

/** An element of a case that this adapter does not understand. */
final class Unknown extends \Exception {}

/** An error that a case raises inside a function. */
final class LoadError extends \Exception {}

final class Fatal extends \Error {}

function say(mixed $stream, array $message): void {
    $line = json_encode($message, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION | JSON_UNESCAPED_SLASHES) . "\n";
    for ($sent = 0; $sent < strlen($line); $sent += $written) {
        $written = fwrite($stream, substr($line, $sent));
        if (!$written) {
            exit(1);
        }
    }
}

/** One process of a case. */
final class Process {
    private readonly Connection $connection;
    private ?Filter $filter = null;
    private ?Guard $guard = null;
    private int $functions = 0;

    public function __construct(private readonly mixed $stream, private readonly array $of, string $library) {
        $timeout = ($of['client']['timeout_ms'] ?? 1000) / 1000;
        $this->connection = Clients::connection($library, $of['ports'][0], $timeout);
    }

    public function run(): void {
        while (($line = fgets($this->stream)) !== false) {
            $message = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
            foreach ($message['start'] ?? [] as $call) {
                say($this->stream, ['end' => $call['id'], ...$this->outcome($call)]);
            }
        }
    }

    private function outcome(array $call): array {
        try {
            return ['result' => plain($this->perform($call, $call['with']))];
        } catch (\Throwable $error) {
            $names = [];
            foreach ([
                'unknown' => Unknown::class, 'load' => LoadError::class, 'fatal' => Fatal::class, 'connection' => ConnectionLost::class,
                'server' => ServerError::class, 'TimeoutError' => NotDurable::class,
            ] as $name => $class) {
                if ($error instanceof $class) {
                    $names[] = $name;
                }
            }
            if ($error instanceof Refused || $error instanceof \TypeError) {
                $names[] = 'refused';
            }
            if ($error instanceof BloomgateException) {
                $names[] = (new \ReflectionClass($error))->getShortName();
            }
            return [
                'error' => $names, 'message' => $names ? $error->getMessage() : (string) $error,
                ...($error instanceof BloomgateException ? ['answers' => $error->answers] : []),
                ...($error instanceof Unconfirmed ? ['ids' => $error->ids] : []),
            ];
        }
    }

    private function perform(array $call, array $with): mixed {
        [$kind, $method] = [...explode('.', $call['call']), ''];
        $options = fn (string ...$others) => array_diff_key($with, array_flip($others));
        switch ($kind) {
            case 'item_bytes':
                return ['hex' => bin2hex(Items::bytes(item($with['item'])))];
            case 'cache_prefix':
                return Items::cachePrefix($with['filter']);
            case 'filling_name':
                return Items::fillingName($with['filter']);
            case 'plan':
                return Filter::plan($this->connection, ...$with);
            case 'fill_filter':
                return Filter::fill($this->connection, ...['ids' => items($with['ids'])] + $with);
            case 'filter':
                $this->filter ??= new Filter($this->connection, ...$this->of['filter']);
                return match ($method) {
                    'reserve' => $this->filter->reserve(...['existOk' => $with['exist_ok'] ?? false] + $options('exist_ok')),
                    'add', 'exists', 'delete', 'count' => $this->filter->$method(item($with['item'])),
                    'add_many', 'exists_many', 'delete_many' => $this->filter->{camel($method)}(items($with['items'])),
                    'card', 'info', 'stats', 'clear', 'drop' => $this->filter->$method(),
                    default => throw new Unknown($call['call']),
                };
            case 'guard':
                return $this->onGuard($call, $method, $with);
        }
        throw new Unknown($call['call']);
    }

    private function onGuard(array $call, string $method, array $with): mixed {
        $this->guard ??= $this->guard();
        $load = fn () => $this->row($this->called($call['id']));
        switch ($method) {
            case 'get':
                return $this->guard->get(item($with['id']), $load, $with['ttl'] ?? null);
            case 'get_in_transaction':
                return $this->guard->getInTransaction(item($with['id']), $load);
            case 'get_nested':
                return $this->guard->get(item($with['id']), fn ($id) => $this->guard->get($id, $load));
            case 'get_many':
                $ids = items($with['ids']);
                $loadMany = fn (array $wanted) => array_map($this->row(...), $this->called($call['id'], $wanted));
                $rows = $this->guard->getMany($ids, $loadMany, $with['ttl'] ?? null);
                return array_map(fn ($id) => [$id, $rows[$id]], $ids);
            case 'announce':
            case 'confirm':
            case 'forget':
                $this->guard->$method(...items($with['ids']));
                return null;
            case 'changed':
                $this->guard->changedMany(items($with['ids']), fn () => $this->called($call['id']));
                return null;
        }
        throw new Unknown($call['call']);
    }

    private function guard(): Guard {
        $options = ['codec' => new Bytes(), 'warn' => fn (string $text) => null];
        foreach ($this->of['guard'] as $name => $value) {
            match (true) {
                $name === 'filter' => null,
                $name === 'codec' => $options['codec'] = new Json(),
                str_ends_with($name, '_ms') => $options[camel(substr($name, 0, -3))] = $value / 1000,
                default => $options[camel($name)] = $value,
            };
        }
        return new Guard($this->connection, $this->of['guard']['filter'], ...$options);
    }

    /** Reports to the runner that the client has called a function. Returns the value that the runner determines. */
    private function called(int $call, ?array $ids = null): mixed {
        $function = $call * 1000 + ++$this->functions;
        say($this->stream, ['called' => $call, 'function' => $function, ...($ids === null ? [] : ['ids' => $ids])]);
        $line = fgets($this->stream);
        $message = $line === false ? exit(1) : json_decode($line, true, 512, JSON_THROW_ON_ERROR);
        if (($message['return'] ?? null) === $function) {
            return $message['value'];
        }
        throw ($message['raise'] ?? null) !== $function ? new Unknown("a function runs, and this came: $line")
            : ($message['fatal'] ? new Fatal($message['message']) : new LoadError($message['message']));
    }

    private function row(mixed $value): mixed {
        return isset($this->of['guard']['codec']) ? $value : (is_array($value) ? item($value) : $value);
    }
}

function camel(string $name): string {
    return lcfirst(strtr(ucwords($name, '_'), ['_' => '']));
}

/** Returns an item or an id. PHP has no integers above 64 bits, and its strings have no encoding. */
function item(mixed $of): mixed {
    return match (true) {
        !is_array($of) => $of,
        isset($of['hex']) => hex2bin($of['hex']),
        isset($of['integer']) => is_int($of['integer'] + 0) ? (int) $of['integer'] : $of['integer'],
        isset($of['utf16']) => throw new Refused('PHP has no such string'),
        isset($of['boolean']), isset($of['float']) => current($of),
        array_key_exists('null', $of) => null,
        default => throw new Unknown('item ' . json_encode($of)),
    };
}

function items(mixed $of): mixed {
    return is_array($of) ? array_map(item(...), $of) : $of;
}

/** Converts a result to the JSON form of the cases. */
function plain(mixed $value): mixed {
    return match (true) {
        is_array($value) => array_map(plain(...), $value),
        is_string($value) && !mb_check_encoding($value, 'UTF-8') => ['hex' => bin2hex($value)],
        default => $value,
    };
}

/** Starts a process of a case, and returns its number and the stream to it. */
function start(array $of, string $library, array $others): array {
    [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $pid = pcntl_fork();
    if ($pid === 0) {
        array_map(fclose(...), [$ours, STDIN, ...$others]);
        (new Process($theirs, $of, $library))->run();
        exit(0);
    }
    fclose($theirs);
    return [$pid, $ours];
}

$library = $argv[1] ?? '';
if (!in_array($library, Clients::LIBRARIES, true)) {
    fwrite(STDERR, "usage: php adapter.php phpredis|predis\n");
    exit(2);
}
[$pids, $streams, $functions] = [[], [], []];
say(STDOUT, ['abilities' => ABILITIES, 'skips' => (object) SKIPS[$library]]);
for (;;) {
    [$ready, $none] = [['in' => STDIN] + $streams, null];
    stream_select($ready, $none, $none, null);
    foreach ($ready as $process => $stream) {
        // A buffered line does not make its stream ready, so all available lines are read.
        stream_set_blocking($stream, false);
        while (($line = fgets($stream)) !== false) {
            while (!str_ends_with($line, "\n")) {
                $line .= fgets($stream);
            }
            $message = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
            if ($process !== 'in') {
                $functions[$message['function'] ?? 0] = $process;
                fwrite(STDOUT, $line);
            } elseif (isset($message['open'])) {
                [$pids[$message['open']], $streams[$message['open']]] = start($message, $library, $streams);
                say(STDOUT, ['done' => $message['id']]);
            } elseif (isset($message['close'])) {
                fclose($streams[$message['close']]);
                pcntl_waitpid($pids[$message['close']], $status);
                unset($streams[$message['close']]);
                say(STDOUT, ['done' => $message['id']]);
            } else {
                $to = $message['process'] ?? $functions[$message['return'] ?? $message['raise']];
                stream_set_blocking($streams[$to], true);
                say($streams[$to], $message);
            }
        }
        if (feof($stream)) {
            if ($process === 'in') {
                exit(0);
            }
            unset($streams[$process]);
        }
    }
}
