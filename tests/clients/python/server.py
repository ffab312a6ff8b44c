"""A server for a test: started in a fresh directory on a free port, stopped and restarted as the test requires, and stopped
at its end. `BLOOMGATE_SERVER` names the server's program, `BLOOMGATE_MODULE` the module; `scripts/test --only libraries` sets both.
`server.py COMMAND...` runs a command with such a server, which also has the lines of configuration in `BLOOMGATE_LINES`."""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# The timeout of every wait, in seconds. It is not a measure of speed.
PATIENCE = 120

# Lines that a server or the module logs when it crashes.
CRASH_MARKS = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"]


def from_environment(name, what):
    path = os.environ.get(name, "")
    if not os.path.isfile(path):
        raise RuntimeError(f"{name} must name {what}, it is {path!r}: run scripts/test --only libraries")
    return path


def eventually(what, condition):
    """Waits until the condition returns something true, and returns that."""
    begun = time.monotonic()
    while not (result := condition()):
        assert time.monotonic() - begun < PATIENCE, f"gave up waiting for: {what}"
        time.sleep(0.01)
    return result


def free_port():
    """Returns a port that was free a moment ago. It and the cluster bus port, 10000 above, are below the range of outgoing
    connections, so none of these takes the port of a server that is being restarted."""
    while True:
        port = random.randrange(12_000, 22_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Server:
    """A server with the module and with lines of configuration; `Server.start` brings it up."""

    def __init__(self, *lines):
        self.program = from_environment("BLOOMGATE_SERVER", "a server's program")
        self.folder = Path(tempfile.mkdtemp(prefix="bloomgate-"))
        self.log = self.folder / "server.log"
        self.log.touch()
        self.lines = lines
        self.port = None
        self.process = None
        self.clients = []

    def start(self):
        for _ in range(20):
            self.port = self.port or free_port()
            before = len(self.log_text())
            self._launch()
            if self._answers():
                return self
            self.process = None
            assert "Address already in use" in self.log_text()[before:], f"ended at its start:\n{self.log_text()}"
            self.port = None
        raise AssertionError("no free port in 20 attempts")

    def _launch(self):
        module = from_environment("BLOOMGATE_MODULE", "the module")
        lines = ["bind 127.0.0.1", 'save ""', "enable-debug-command yes", "repl-diskless-sync-delay 0"]
        lines += [f"port {self.port}", f"dir {self.folder}", *self.lines, f"loadmodule {module}"]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")
        command = [self.program, str(self.folder / "redis.conf")]
        # If setpriv exists (Linux), the server exits with the tests even if they are killed with SIGKILL.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self):
        """Waits until our server answers, and not another one on the port; returns false if it exited."""
        probe = redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0))
        begun = time.monotonic()
        try:
            while self.process.poll() is None:
                assert time.monotonic() - begun < PATIENCE, f"does not answer:\n{self.log_text()}"
                try:
                    if probe.info("server")["process_id"] == self.process.pid:
                        return True
                except redis.RedisError:
                    pass
                time.sleep(0.005)
            return False
        finally:
            probe.close()

    def client(self, protocol=2, **options):
        """Returns a redis-py client that is closed with the server. It has a long timeout: by default it would resend a
        command after five seconds, and an add that is sent twice is not new."""
        client = redis.Redis(port=self.port, protocol=protocol, socket_timeout=PATIENCE, **options)
        self.clients.append(client)
        return client

    def log_text(self):
        return self.log.read_text(errors="replace")

    def restart(self):
        self.process.kill()
        self.process.wait()
        return self.start()

    def end(self):
        """Stops the server; fails if it had already exited, or crashed."""
        for client in self.clients:
            client.close()
        ended_alone = self.process is None or self.process.poll() is not None
        if not ended_alone:
            self.process.kill()
            self.process.wait()
        log = self.log_text()
        shutil.rmtree(self.folder)
        assert not ended_alone, f"the server exited by itself:\n{log}"
        for mark in CRASH_MARKS:
            assert mark not in log, f"the log has {mark!r}:\n{log}"


def version(client):
    """Returns the server's version, and whether it is Valkey, which has its own version numbers after 7.2."""
    info = client.info("server")
    is_valkey = "valkey_version" in info
    number = info["valkey_version"] if is_valkey else info["redis_version"]
    return tuple(int(part) for part in str(number).split(".")[:2]), is_valkey


def run_with_a_server(command):
    """Runs a command with each `{port}` in its arguments replaced by a server's port. Returns its exit status."""
    server = Server(*os.environ.get("BLOOMGATE_LINES", "").splitlines()).start()
    try:
        return subprocess.call([word.replace("{port}", str(server.port)) for word in command])
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(run_with_a_server(sys.argv[1:]))
