<?php declare(strict_types=1);

namespace Bloomgate\Tests;

/** A separate server for a test class, on a free port and in a folder that is deleted at the end. */
final class Server {
    public readonly int $port;
    private readonly string $folder;
    /** @var resource */
    private $process;

    public function __construct() {
        [$program, $module] = [getenv('BLOOMGATE_SERVER'), getenv('BLOOMGATE_MODULE')];
        if (!$program || !$module) throw new \RuntimeException('set BLOOMGATE_SERVER and BLOOMGATE_MODULE: scripts/test --only php does');
        $free = stream_socket_server('tcp://127.0.0.1:0');
        $this->port = (int) substr(strrchr(stream_socket_get_name($free, false), ':'), 1);
        fclose($free);
        $this->folder = sys_get_temp_dir() . '/bloomgate-php-' . bin2hex(random_bytes(6));
        mkdir($this->folder);
        $command = [
            $program, '--port', (string) $this->port, '--bind', '127.0.0.1', '--dir', $this->folder, '--save', '', '--loadmodule', $module,
        ];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', '/dev/null', 'w']], $pipes);
        for ($end = time() + 60; time() < $end; usleep(20000)) {
            $socket = @stream_socket_client("tcp://127.0.0.1:$this->port");
            if ($socket && fwrite($socket, "PING\r\n") && fgets($socket) === "+PONG\r\n") return;
        }
        throw new \RuntimeException('the server has not started');
    }

    public function stop(): void {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
        array_map(unlink(...), glob("$this->folder/*"));
        rmdir($this->folder);
    }

    /** Sends a command on a separate connection. */
    public function send(string|int ...$words): mixed {
        return Clients::connection('predis', $this->port, 10)->one($words);
    }
}
