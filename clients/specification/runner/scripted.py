"""A server that sends the replies of a case."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections import deque
from typing import Any

from resp import encode, read_commands

HELLO = [
    ("server", b"redis"),
    ("version", b"7.0.15"),
    ("proto", 3),
    ("id", 1),
    ("mode", b"standalone"),
    ("role", b"master"),
    ("modules", []),
]
INFO = b"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
AUTOMATIC = {b"HELLO", b"AUTH", b"CLIENT", b"SELECT", b"READONLY", b"COMMAND", b"PING", b"QUIT", b"INFO"}
"""Commands that client libraries send by themselves, which cases do not mention."""


class Arrival:
    """A command that has arrived, and its reply once it is known."""

    def __init__(self, connection: Connection, words: list[bytes]) -> None:
        self.connection = connection
        self.words = words
        self.reply: bytes | None = None
        name = words[0].upper()
        self.waits = name == b"BF.FETCH" and b"WAIT" in (word.upper() for word in words[4:])

    def __str__(self) -> str:
        shown = [word if len(word) <= 100 else word[:100] + b"..." for word in self.words[:40]]
        return " ".join(word.decode(errors="backslashreplace") for word in shown)


class Connection:
    """One connection of the client. Replies are sent in the order of the commands."""

    def __init__(self, server: ScriptedServer, peer: socket.socket) -> None:
        self.server = server
        self.peer = peer
        self.protocol = 2
        self.unanswered: deque[Arrival] = deque()
        self.lock = threading.Lock()

    def serve(self) -> None:
        with contextlib.suppress(OSError, ValueError), self.peer.makefile("rb") as file:
            for words in read_commands(file):
                arrival = Arrival(self, words)
                name = words[0].upper()
                with self.lock:
                    if any(earlier.waits for earlier in self.unanswered):
                        self.server.violations.append(f"`{arrival}` came behind an unanswered BF.FETCH with WAIT")
                    self.unanswered.append(arrival)
                if name in AUTOMATIC:
                    self.answer(arrival, self.automatic(name, words))
                else:
                    self.server.arrived.put(arrival)

    def automatic(self, name: bytes, words: list[bytes]) -> bytes:
        if name == b"HELLO":
            self.protocol = int(words[1]) if len(words) > 1 else self.protocol
            flat = [part for field in HELLO for part in field]
            flat[5] = self.protocol
            head = b"*%d\r\n" % len(flat) if self.protocol == 2 else b"%%%d\r\n" % len(HELLO)
            return head + b"".join(encode(part, self.protocol) for part in flat)
        if name == b"INFO":
            return encode(INFO, self.protocol)
        if name == b"COMMAND":
            return encode([], self.protocol)
        if name == b"PING":
            return b"+PONG\r\n"
        if name == b"CLIENT" and words[1].upper() == b"MAINT_NOTIFICATIONS":
            return b"-ERR unknown subcommand\r\n"
        if name == b"CLIENT" and words[1].upper() == b"ID":
            return b":1\r\n"
        return b"+OK\r\n"

    def answer(self, arrival: Arrival, reply: bytes) -> None:
        with self.lock, contextlib.suppress(OSError):
            arrival.reply = reply
            while self.unanswered and (ready := self.unanswered[0].reply) is not None:
                self.unanswered.popleft()
                self.peer.sendall(ready)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)


class ScriptedServer:
    """Listens on `port`. `arrived` contains the commands of all connections, in the order of their arrival."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[Arrival] = queue.Queue()
        self.violations: list[str] = []
        self.connections: list[Connection] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, peer)
            self.connections.append(connection)
            threading.Thread(target=connection.serve, daemon=True).start()

    def answer(self, arrival: Arrival, reply: Any) -> None:
        if reply == {"close": True}:
            arrival.connection.close()
        else:
            arrival.connection.answer(arrival, encode(reply, arrival.connection.protocol))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()
            connection.peer.close()
