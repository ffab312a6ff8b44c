"""Checks the cases themselves, without a client: a real server must answer the commands of a case like the scripted server,
and each case must belong to a rule of the page."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from adapter import PATIENCE_S
from cases import FOLDER, SpecificationError
from resp import Client
from servers import Server, set_up
from steps import Failed


class Replay:
    """One case, on a server that contains only its `setup`."""

    def __init__(self, case: dict[str, Any], server: Server) -> None:
        self.case = case
        self.server = server
        self.tokens: dict[str, bytes] = {}
        self.held: dict[str, Client] = {}
        self.compared = 0

    def run(self) -> None:
        set_up([self.server], self.case.get("setup", []))
        for step in self.case["steps"]:
            for one in [step, *step.get("expect_all", [])]:
                if "expect" in one:
                    self.expect(one)
            if "answer" in step:
                self.compare(self.held.pop(step["answer"]), step["reply"])
        if self.compared == 0:
            raise Failed("it has no command")

    def expect(self, step: dict[str, Any]) -> None:
        # Each command has a separate connection, because some commands wait.
        client = Client(self.server.port, PATIENCE_S)
        client.send(*(self.word(word) for word in step["expect"]))
        if "hold" in step:
            self.held[step["hold"]] = client
        else:
            self.compare(client, step["reply"])

    def word(self, word: Any) -> str | bytes:
        match word:
            case str():
                return word
            case {"hex": digits}:
                return bytes.fromhex(digits)
            case {"token": name}:
                return self.tokens[name]
            case {"from": _, "to": most}:
                return str(most)
        raise SpecificationError(f"this word cannot be replayed: {word}")

    def compare(self, client: Client, reply: Any) -> None:
        with contextlib.closing(client):
            found = client.read()
        if not self.matches(reply, found):
            raise Failed(f"the server answers {found!r}, the case says {reply!r}")
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


def check_page(cases: list[dict[str, Any]]) -> None:
    """Checks that each rule of the page names its cases, and that each case belongs to a rule."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    lists = re.findall(r"Cases?:\s+((?:`[^`]+`[,.]\s*)+)", page)
    named = {name for names in lists for name in re.findall(r"`([^`]+)`", names)}
    if differences := named ^ {case["name"] for case in cases}:
        raise Failed(f"only the page or only the cases have {', '.join(sorted(differences))}")
