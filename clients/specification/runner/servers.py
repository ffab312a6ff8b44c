"""Real servers with the module: BLOOMGATE_SERVER, by default the redis-server on the PATH, and BLOOMGATE_MODULE, by default
the release build. Each has a separate folder, and ends with the runner."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from adapter import PATIENCE_S
from resp import Client, ErrorReply

MODULE = Path(__file__).parents[3] / "target/release/libbloomgate.so"
SLOTS = (("0", "5460"), ("5461", "10922"), ("10923", "16383"))
CRASHES = ("BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal")
"""Lines that a server or the module logs when it crashes."""


def eventually(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"gave up waiting for {what}")
        time.sleep(0.02)


def free_port() -> int:
    """Returns a free port. It and the port of the cluster bus, 10000 higher, are below the range of outgoing connections."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(12_000, 22_000))) as listener:
            return int(listener.getsockname()[1])


class Server:
    def __init__(self, *lines: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bloomgate-"))
        for _ in range(20):
            self.port = free_port()
            if self.starts(lines):
                return
        raise OSError(f"the server does not start:\n{self.log()}")

    def starts(self, lines: tuple[str, ...]) -> bool:
        module = Path(os.environ.get("BLOOMGATE_MODULE", MODULE)).resolve()
        lines = (*lines, f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", 'save ""', f"loadmodule {module}")
        configuration = self.folder / "redis.conf"
        configuration.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("wb") as log:
            program = os.environ.get("BLOOMGATE_SERVER", "redis-server")
            self.process = subprocess.Popen([program, configuration], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually("the server", lambda: self.process.poll() is not None or self.answers())
        return self.process.poll() is None

    def answers(self) -> bool:
        """Whether this server, and not another one on the port, answers."""
        with contextlib.suppress(OSError, ErrorReply):
            return b"process_id:%d\r" % self.process.pid in self.command("INFO", "server")
        return False

    def command(self, *words: str) -> bytes:
        with contextlib.closing(Client(self.port, PATIENCE_S)) as client:
            return client.command(*words)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def end(self) -> None:
        """Ends the server. Raises an error if it has crashed."""
        has_ended = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        log = self.log()
        shutil.rmtree(self.folder)
        if has_ended or any(mark in log for mark in CRASHES):
            raise OSError(f"the server has crashed:\n{log[-5000:]}")


@contextlib.contextmanager
def running(kind: str) -> Iterator[list[Server]]:
    """Starts a real server, or a cluster of three."""
    with contextlib.ExitStack() as stack:

        def start(*lines: str) -> Server:
            server = Server(*lines)
            stack.callback(server.end)
            return server

        yield [start()] if kind == "real" else cluster(start)


def cluster(start: Callable[..., Server]) -> list[Server]:
    # The timeout is long, so that on a busy machine a slow node is not considered dead.
    nodes = [start("cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage yes") for _ in SLOTS]
    for epoch, (node, slots) in enumerate(zip(nodes, SLOTS, strict=True), 1):
        node.command("CLUSTER", "ADDSLOTSRANGE", *slots)
        node.command("CLUSTER", "SET-CONFIG-EPOCH", str(epoch))
        node.command("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port))

    def is_one() -> bool:
        infos = [node.command("CLUSTER", "INFO") for node in nodes]
        return all(b"cluster_known_nodes:3\r" in info and b"cluster_state:ok\r" in info for info in infos)

    eventually("the cluster", is_one)
    return nodes


def set_up(servers: list[Server], commands: list[list[str]]) -> None:
    """Empties the servers, and sends each command to the one that serves it."""
    for server in servers:
        server.command("FLUSHALL")
    for words in commands:
        for server in servers:
            try:
                server.command(*words)
                break
            except ErrorReply as error:
                if not str(error).startswith("MOVED"):
                    raise
