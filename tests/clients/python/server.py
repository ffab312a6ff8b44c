"""A server of a test's own: started in a fresh directory on a free port, stopped and started again as the test wants,
ended with the test. `BLOOMGATE_SERVER` names the server's program, `BLOOMGATE_MODULE` the module;
`scripts/test-clients` sets both. `server.py COMMAND...` runs a command beside such a server."""

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

# How long anything may take before a test gives up on it, in seconds. Not a measure of speed.
PATIENCE = 120

# What a server or the module writes to the log when it crashed.
CRASH_MARKS = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"]


def from_environment(name, what):
    path = os.environ.get(name, "")
    if not os.path.isfile(path):
        raise RuntimeError(f"{name} must name {what}, it is {path!r}: run scripts/test-clients")
    return path


def eventually(what, condition):
    """Waits until the condition holds, and gives what it gave."""
    begun = time.monotonic()
    while not (result := condition()):
        assert time.monotonic() - begun < PATIENCE, f"gave up waiting for: {what}"
        time.sleep(0.01)
    return result


def free_port():
    """A port that was free a moment ago. It and a cluster's second port, 10000 above, are below those that systems pick
    for outgoing connections: none of these takes the port of a server that is down and comes back."""
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
        # Where it can be had (Linux), the server ends with the tests even if those are killed the hard way.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self):
        """Waits until our server answers, not one that was there before; false where it ended instead."""
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
        """A client of redis-py's, closed with the server. It waits for an answer: by default it would ask again after
        five seconds, and an add that is asked for twice is not new."""
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
        """Ends the server; complains where it ended before, or crashed."""
        for client in self.clients:
            client.close()
        ended_alone = self.process is None or self.process.poll() is not None
        if not ended_alone:
            self.process.kill()
            self.process.wait()
        log = self.log_text()
        shutil.rmtree(self.folder)
        assert not ended_alone, f"the server ended by itself:\n{log}"
        for mark in CRASH_MARKS:
            assert mark not in log, f"the log has {mark!r}:\n{log}"


def version(client):
    """The server's version, and whether it is Valkey, which goes on from 7.2 with numbers of its own."""
    info = client.info("server")
    is_valkey = "valkey_version" in info
    number = info["valkey_version"] if is_valkey else info["redis_version"]
    return tuple(int(part) for part in str(number).split(".")[:2]), is_valkey


def run_beside_a_server(command):
    """Runs a command with a server's port for each `{port}` in its words; gives its exit status."""
    server = Server().start()
    try:
        return subprocess.call([word.replace("{port}", str(server.port)) for word in command])
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(run_beside_a_server(sys.argv[1:]))
