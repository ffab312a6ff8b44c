"""Sends the commands of a case to a real server, in the order of its steps, and compares the replies with those that the case
scripts: a scripted server must answer as a real one does. No client takes part."""

from __future__ import annotations

from typing import Any

import redis
from server import PATIENCE

from .words import SpecificationError


class Replay:
    """One case, on a server that is empty but for its `setup`."""

    def __init__(self, case: dict[str, Any], port: int) -> None:
        self.case = case
        self.port = port
        self.tokens: dict[str, bytes] = {}
        self.held: dict[str, Any] = {}
        self.compared = 0

    def run(self) -> None:
        for step in self.case["steps"]:
            if "expect" in step:
                self.expect(step)
            for one in step.get("expect_all", []):
                self.expect(one)
            if "answer" in step:
                self.compare(self.held.pop(step["answer"]), step["reply"])

    def expect(self, step: dict[str, Any]) -> None:
        # Each command has a connection of its own, because some of them wait.
        connection = redis.Connection(port=self.port, protocol=2, socket_timeout=PATIENCE)
        connection.send_command(*(self.word(word) for word in step["expect"]))
        if "hold" in step:
            self.held[step["hold"]] = connection
        else:
            self.compare(connection, step["reply"])

    def word(self, word: Any) -> Any:
        match word:
            case str():
                return word
            case {"hex": digits}:
                return bytes.fromhex(digits)
            case {"token": name}:
                return self.tokens[name]
            case {"from": _, "to": most}:
                return most
        raise SpecificationError(f"this word cannot be replayed: {word}")

    def compare(self, connection: Any, reply: Any) -> None:
        found = connection.read_response()
        connection.disconnect()
        assert self.matches(reply, found), f"the server answers {found!r}, the case says {reply!r}"
        self.compared += 1

    def matches(self, reply: Any, found: Any) -> bool:
        match reply:
            case ["wait", int()]:
                return bool(found[0] == b"wait" and isinstance(found[1], int) and found[1] > 0)
            case {"token": name}:
                return len(found) == 32 and self.tokens.setdefault(name, found) == found
            case {"ok": text} | str(text):
                return bool(found == text.encode())
            case list():
                return len(reply) == len(found) and all(map(self.matches, reply, found))
            case bool() | int() | None:
                return bool(found == reply)
        raise SpecificationError(f"this reply cannot be replayed: {reply}")
