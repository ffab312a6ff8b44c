"""The guard's protocol (docs/guard.md): reading one row, and writing. For `bloomgate.Guard` and `bloomgate.asyncio.Guard`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .codec import Codec, V
from .errors import LoadFailed, Unconfirmed
from .guard_commands import BATCH, Answer, is_unavailable, nothing_to_undo, spread
from .guard_load import GuardLoads
from .guard_words import Fetched, GuardOptions, milliseconds
from .items import Item, Key, item_bytes
from .replication import Durability, check_replicas
from .steps import Ask, Call, Event, Sleep, Steps, Wait
from .waiting import Flight, Flights, Slots

R = TypeVar("R")
T = TypeVar("T")

REPEAT_S = 0.1
"""The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for."""


def chosen(of_call: T | None, of_guard: T | None) -> T:
    """Returns the loader of a call."""
    if of_call is not None:
        return of_call
    if of_guard is None:
        raise TypeError("there is no loader: pass one to this call or to the guard")
    return of_guard


class GuardSteps(GuardLoads[V]):
    """Readers and writers of one table."""

    def __init__(
        self, filter: Key, codec: Codec[V], options: GuardOptions, slots: Slots, make_event: Callable[[], Event]
    ) -> None:
        super().__init__(filter, codec, options)
        self.durability = Durability(options.replicas, options.replicas_timeout, options.aof)
        self.slots = slots
        self.flights = Flights(make_event)
        self.is_checked = False

    def checked(self, steps: Steps[R]) -> Steps[R]:
        """Runs an operation. After the first one that the server answers, checks the server's replication settings."""
        result = yield from steps
        if self.has_answered and not self.is_checked:
            self.is_checked = True
            yield from check_replicas(self.filter)
        return result

    def get(
        self, id: Item, load: Callable[[], Any], ttl: float | None, found: Fetched | Exception | None = None
    ) -> Steps[V | None]:
        """Reads a row. `found` is what a fetch has answered already."""
        key = item_bytes(id)
        ttl_ms = milliseconds("ttl", self.options.ttl if ttl is None else ttl)
        if found is None and (near := self.near_answer(key)) is not None:
            return near.value
        deadline = time.monotonic() + self.options.attempts * self.options.wait
        with self.flights.flight(key) as flight:
            answer = yield from self.fetch_row(flight, deadline, found)
            if answer is not None and answer.token:
                rows = yield from self.load_rows(
                    {key: answer.token}, {key: flight}, lambda: self.one_row(key, load), ttl_ms, answer.is_readable
                )
                return rows[key]
            if answer is not None:
                return answer.value
        # The server does not answer, or another caller loads the row and takes too long: ask the database, fill nothing.
        self.count("unguarded")
        rows = yield from self.one_row(key, load)
        return self.decode_rows(self.encode_rows(rows))[key]

    def one_row(self, id: bytes, load: Callable[[], Any]) -> Steps[dict[bytes, V | None]]:
        return {id: (yield from self.timed(load, 1))}

    def fetch_row(self, flight: Flight, deadline: float, found: Any = None) -> Steps[Answer[V] | None]:
        """Fetches a row until the answer is final. Returns nothing if the server fails, or nobody brings the row in time."""
        undecodable: bytes | None = None
        replace = False
        waits = 0
        while True:
            if found is None:
                self.flights.ask(flight)
                [found] = yield from self.fetch([flight.id], replace)
            if isinstance(found, Exception):
                flight.found = found
                return None
            if found.word != "wait":
                answer = self.read(found, undecodable)
                if found.word == "stale" and answer.is_readable and replace:
                    # Another caller has replaced the value meanwhile. The new one is not due for a refresh.
                    yield self.give_up({flight.id: found.token})
                    answer = Answer(answer.value)
                if answer.token or answer.is_readable:
                    if not answer.token:
                        flight.found = found if found.word == "absent" else Fetched("hit", value=found.value)
                    return answer
                undecodable = found.value
                if not replace:
                    replace, found = True, None
                    continue
            left_s = deadline - time.monotonic()
            waits += 1
            if left_s <= 0 and waits >= self.options.attempts:
                return None
            found = yield from self.wait(flight, left_s, found.word == "hit")
            replace = False

    def wait(self, flight: Flight, left_s: float, is_cached: bool) -> Steps[Fetched | Exception | None]:
        """Waits for the caller that holds the lease: in this process, or else inside the server. Returns what another caller
        shares, or what the server answers. A server that has a value cached makes nobody wait for another; then, and if all slots are
        taken, it pauses."""
        if left_s <= 0:
            return None
        event = self.flights.begin_wait(flight)
        if event is not None:
            yield Wait(event, left_s)
            self.flights.end_wait(flight)
            if flight.given_error is not None:
                self.count("shared")
                error, traceback = flight.given_error
                # Each caller would add its own frames to the shared error.
                raise error.with_traceback(traceback)
            if flight.given is not None:
                self.count("shared")
                return flight.given
        elif is_cached or not self.slots.take():
            yield Sleep(min(REPEAT_S, left_s))
        else:
            wait_ms = max(1, int(1000 * min(self.options.wait, left_s)))
            begun = time.monotonic()
            self.flights.ask(flight)
            [found] = yield from self.fetch([flight.id], wait_ms=wait_ms, finished=self.slots.give_back)
            result: Fetched | Exception = found
            if isinstance(result, Fetched) and result.word == "wait" and time.monotonic() - begun < wait_ms / 2000:
                # A caller that waits for a lease waits for all of that. Only a back-off is answered earlier.
                flight.error = LoadFailed(flight.id)
                raise flight.error
            return result
        return None

    def announce(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's first call: raises the first error. With a feed, the follower makes the writers' calls."""
        if self.feed is not None:
            return
        for outcome in (yield from self.changed([item_bytes(id) for id in ids])):
            if isinstance(outcome, Exception):
                raise outcome

    def confirm(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's second call: repeated until the server has answered for every id, for up to `patience` seconds."""
        if self.feed is not None:
            return
        deadline = time.monotonic() + self.options.patience
        left = [item_bytes(id) for id in ids]
        while left:
            outcomes = yield from self.changed(left)
            troubles = [(id, outcome) for id, outcome in zip(left, outcomes, strict=True) if isinstance(outcome, Exception)]
            left = [id for id, _ in troubles]
            if not left:
                return
            self.failed(troubles[0][1])
            if time.monotonic() >= deadline:
                raise Unconfirmed(tuple(left)) from troubles[0][1]
            yield Sleep(REPEAT_S)

    def changed(self, ids: list[bytes]) -> Steps[list[Any]]:
        """Announces a change of each id, to the filters that are being filled first. Returns an exception or None for each."""
        outcomes: list[Any] = []
        filters = [*(item_bytes(name) for name in self.options.announce_to), self.filter]
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            calls = self.change_calls(part, filters)
            try:
                found = yield Ask([*calls, *self.durability.calls()], nothing_to_undo, wait_s=self.durability.wait_s)
            finally:
                if self.near is not None:
                    self.near.drop(self.prefix + id for id in part)
            if self.has_batches and len(part) > 1 and any(is_unavailable(one) for one in found):
                self.has_batches = False
                calls = self.change_calls(part, filters)
                found = yield Ask([*calls, *self.durability.calls()], nothing_to_undo, wait_s=self.durability.wait_s)
            error = self.durability.take_error(found)
            # The answers of each filter, in the order of the ids.
            each = [answer for one in found for answer in spread(one, len(part) * len(filters) // len(calls))]
            for index in range(len(part)):
                errors = [answer for answer in each[index :: len(part)] if isinstance(answer, Exception)]
                outcomes.append(error or next(iter(errors), None))
            self.has_answered = self.has_answered or outcomes[-1] is None
        return outcomes

    def change_calls(self, ids: list[bytes], filters: list[bytes]) -> list[Call[Any]]:
        """Returns the commands that announce changes: one for each filter, or from a server without BF.MCHANGED one for each
        filter and id."""
        if self.has_batches and len(ids) > 1:
            pairs = [word for id in ids for word in (id, self.prefix + id)]
            return [Call(["BF.MCHANGED", name, "ITEMS", *pairs]) for name in filters]
        return [Call(["BF.CHANGED", name, id, self.prefix + id]) for name in filters for id in ids]

    def forget(self, ids: Sequence[Item]) -> Steps[None]:
        """Deletes ids from the filter: raises the first error."""
        if self.feed is not None:
            return
        for start in range(0, len(ids), BATCH):
            part = [item_bytes(id) for id in ids[start : start + BATCH]]
            [answers] = yield Ask([Call(["BF.MDEL", self.filter, *part])])
            errors = answers if isinstance(answers, list) else [answers]
            for answer in errors:
                if isinstance(answer, Exception):
                    raise answer
