"""Filling the filter of a guard: under another name, until every id is in it and is safe."""

from __future__ import annotations

from typing import Any

from .errors import named
from .filter_steps import FilterSteps, collect, with_answers
from .guard_words import check_socket_timeout, filling_name
from .items import Key, Window, item_bytes
from .replication import Durability
from .steps import Ask, Call, Steps
from .words import Words

TIMEOUT_S = 3.0
"""How long a batch may take to reach the replicas, or the disk."""


class FillingSteps:
    """Fills `{key}~filling`, and renames it to `key`."""

    def __init__(self, client: object, key: Key, durability: Durability) -> None:
        durability.check_client(client)
        check_socket_timeout(client, durability.timeout if durability.calls() else 0)
        self.key = item_bytes(key)
        self.name = filling_name(self.key)
        self.durability = durability

    def begin(self, rate: float, capacity: int, words: Words) -> Steps[bool]:
        return FilterSteps(self.name, False).reserve(rate, capacity, False, words)

    def add(self, window: Window) -> Steps[int]:
        """Adds ids, and waits until they are as safe as they have to be. Returns how many were new.

        With SYNC, a server passes on those that were not new, too: another client may have added them, whose writes the
        replicas do not have yet."""
        adds: list[Call[Any]] = [Call(["BF.INSERT", self.name, "NOCREATE", "SYNC", "ITEMS", *chunk]) for chunk in window]
        found = yield Ask([*adds, *self.durability.calls()], wait_s=self.durability.wait_s)
        lost = self.durability.take_error(found)
        answers, trouble = collect(window, found)
        if trouble is not None:
            raise with_answers(trouble, self.name, answers)
        if lost is not None:
            raise lost
        return sum(bool(answer) for answer in answers)

    def finish(self) -> Steps[None]:
        """Gives the filter its name."""
        calls: list[Call[Any]] = [Call(["RENAME", self.name, self.key]), *self.durability.calls()]
        found = yield Ask(calls, wait_s=self.durability.wait_s)
        lost = self.durability.take_error(found)
        for trouble in (found[0], lost):
            if isinstance(trouble, Exception):
                raise named(trouble, self.name)
