"""Fills the filter of a guard under another name until every id is in it and acknowledged."""

from __future__ import annotations

from typing import Any

from .errors import named
from .filter import collect, with_answers
from .guard_words import check_socket_timeout, filling_name
from .items import Items, Key, item_bytes, windows_of
from .replication import Durability
from .steps import Ask, Call, Steps, next_window, send
from .words import Words, creation_words

TIMEOUT_S = 3.0
"""The time limit for replicas, or the disk, to acknowledge a batch."""


def fill_steps(
    client: object, key: Key, ids: Items, rate: float, capacity: int, durability: Durability, words: Words
) -> Steps[int]:
    """Fills `{key}~filling`, and renames it to `key`. Returns how many ids were new.

    With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may lack
    its writes."""
    source = windows_of(ids)
    durability.check_client(client)
    check_socket_timeout(client, durability.timeout if durability.calls() else 0)
    name = filling_name(item_bytes(key))
    yield from send(Call(["BF.RESERVE", name, rate, capacity, *creation_words(words)]), name)
    new = 0
    while (window := (yield from next_window(source))) is not None:
        adds: list[Call[Any]] = [Call(["BF.INSERT", name, "NOCREATE", "SYNC", "ITEMS", *chunk]) for chunk in window]
        found = yield Ask([*adds, *durability.calls()], wait_s=durability.wait_s)
        lost = durability.take_error(found)
        answers, trouble = collect(window, found)
        if trouble is not None:
            raise with_answers(trouble, name, answers)
        if lost is not None:
            raise lost
        new += sum(bool(answer) for answer in answers)
    found = yield Ask([Call(["RENAME", name, item_bytes(key)]), *durability.calls()], wait_s=durability.wait_s)
    lost = durability.take_error(found)
    for trouble in (found[0], lost):
        if isinstance(trouble, Exception):
            raise named(trouble, name)
    return new
