"""Reading many rows at once through the guard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic

from .codec import V
from .guard_steps import BATCH, GuardSteps
from .guard_words import Fetched, milliseconds
from .items import Item, item_bytes, refuse_single
from .steps import Steps
from .waiting import Flight


class ManyRows(Generic[V]):
    """One call of `get_many`. Ids that are written in the same bytes, such as 7 and "7", name one row: it is loaded by the
    first of them, and returned under each."""

    def __init__(
        self, guard: GuardSteps[V], ids: Iterable[Item], load_many: Callable[[list[Any]], Any], ttl: float | None
    ) -> None:
        refuse_single(ids)
        self.guard = guard
        self.asked: dict[Any, bytes] = {id: item_bytes(id) for id in ids}
        self.first: dict[bytes, Any] = {}
        for id, key in self.asked.items():
            self.first.setdefault(key, id)
        self.load_many = load_many
        self.ttl_ms = milliseconds("ttl", guard.options.ttl if ttl is None else ttl)
        self.rows: dict[bytes, V | None] = {}
        self.unguarded: list[bytes] = []
        self.old: set[bytes] = set()

    def get(self) -> Steps[dict[Any, V | None]]:
        deadline = time.monotonic() + self.guard.options.wait
        for id in self.first:
            if (near := self.guard.near_answer(id)) is not None:
                self.rows[id] = near.value
        if own := [id for id in self.first if self.guard.is_loading(id)]:
            # This call runs inside a load of these rows.
            self.guard.count("unguarded", len(own))
            self.rows |= self.guard.decode_rows(self.guard.encode_rows((yield from self.load(own))))
        left = yield from self.fetch_all([id for id in self.first if id not in self.rows])
        while left and time.monotonic() < deadline:
            # By the time the first row is there, most of the others are, too.
            yield from self.wait_for(left[0], deadline)
            left = yield from self.fetch_all(left[1:])
        self.unguarded += left
        if self.unguarded:
            self.rows |= yield from self.guard.load_unguarded(self.unguarded, self.load)
        return {id: self.rows[key] for id, key in self.asked.items()}

    def fetch_all(self, ids: list[bytes]) -> Steps[list[bytes]]:
        """Fetches rows, and loads those whose leases it gets. Returns the ids of the rows that other callers load."""
        flights = {id: self.guard.flights.begin(id) for id in ids}
        tokens: dict[bytes, bytes] = {}
        waiting: list[bytes] = []
        try:
            for start in range(0, len(ids), BATCH):
                unreadable = yield from self.fetch_part(ids[start : start + BATCH], False, flights, tokens, waiting)
                waiting += yield from self.fetch_part(unreadable, True, flights, tokens, waiting)
            # Only those with a lease will bring a row: nobody in this process has to wait for the other flights.
            for id in ids:
                if id not in tokens:
                    self.guard.flights.end(flights.pop(id))
            leased, tokens = tokens, {}
            yield from self.load_leased(leased, flights)
        except BaseException:
            if tokens:
                yield self.guard.give_up(tokens)
            raise
        finally:
            for flight in flights.values():
                self.guard.flights.end(flight)
        return waiting

    def fetch_part(
        self,
        ids: list[bytes],
        replace: bool,
        flights: Mapping[bytes, Flight],
        tokens: dict[bytes, bytes],
        waiting: list[bytes],
    ) -> Steps[list[bytes]]:
        """Fetches some rows together, and sorts them by their answers. Returns the ids whose cached values could not be
        decoded, to be fetched again with `replace`."""
        unreadable: list[bytes] = []
        unneeded: dict[bytes, bytes] = {}
        for id in ids:
            self.guard.flights.ask(flights[id])
        found = (yield from self.guard.fetch(ids, replace)) if ids else []
        for id, one in zip(ids, found, strict=True):
            if isinstance(one, Exception):
                self.unguarded.append(id)
                flights[id].found = one
            elif one.word == "wait":
                waiting.append(id)
            else:
                answer = self.guard.read(one)
                if answer.is_readable and (replace or not answer.token):
                    self.rows[id] = answer.value
                    flights[id].found = one if one.word == "absent" else Fetched("hit", value=one.value)
                    if answer.token:
                        # Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                        unneeded[id] = answer.token
                elif answer.token:
                    tokens[id] = answer.token
                    if answer.is_readable:
                        self.old.add(id)
                else:
                    unreadable.append(id)
        if unneeded:
            yield self.guard.give_up(unneeded)
        return unreadable

    def wait_for(self, id: bytes, deadline: float) -> Steps[None]:
        """Waits for a row that another caller loads, and loads it if that caller does not bring it."""
        with self.guard.flights.flight(id) as flight:
            answer = yield from self.guard.fetch_row(flight, deadline)
            if answer is None:
                self.unguarded.append(id)
            elif answer.token:
                if answer.is_readable:
                    self.old.add(id)
                yield from self.load_leased({id: answer.token}, {id: flight})
            else:
                self.rows[id] = answer.value

    def load_leased(self, tokens: dict[bytes, bytes], flights: Mapping[bytes, Flight]) -> Steps[None]:
        """Loads rows under leases and fills them."""
        if tokens:
            self.rows |= yield from self.guard.load_rows(
                tokens, flights, lambda: self.load(list(tokens)), self.ttl_ms, tokens.keys() <= self.old
            )

    def load(self, ids: list[bytes]) -> Steps[dict[bytes, V | None]]:
        loaded: Mapping[Any, V] = yield from self.guard.timed(lambda: self.load_many([self.first[id] for id in ids]), ids)
        return {id: loaded.get(self.first[id]) for id in ids}
