"""The guard's protocol (docs/guard.md): reading one row, and writing. For `bloomgate.Guard` and `bloomgate.asyncio.Guard`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from .codec import Codec, V
from .errors import Unconfirmed
from .guard_commands import BATCH, Answer, GuardCommands, nothing_to_undo
from .guard_words import GuardOptions, milliseconds
from .items import Item, Key, item_bytes
from .steps import Ask, Call, Do, Event, Sleep, Steps, Wait
from .waiting import Flight, Flights, Slots

REPEAT_S = 0.1
"""The pause before a confirmation is repeated, and before a row is fetched again without a slot."""


class GuardSteps(GuardCommands[V]):
    """Readers and writers of one table."""

    def __init__(
        self, filter: Key, codec: Codec[V], options: GuardOptions, slots: Slots, make_event: Callable[[], Event]
    ) -> None:
        super().__init__(filter, codec, options)
        self.slots = slots
        self.flights = Flights(make_event)

    def get(self, id: Item, load: Callable[[], Any], ttl: float | None) -> Steps[V | None]:
        key = item_bytes(id)
        ttl_ms = milliseconds("ttl", self.options.ttl if ttl is None else ttl)
        deadline = time.monotonic() + self.options.attempts * self.options.wait_ms / 1000
        with self.flights.flight(key) as flight:
            answer = yield from self.fetch_row(flight, deadline)
            if answer is not None and answer.token:
                return (yield from self.load(flight, answer, load, ttl_ms))
            if answer is not None:
                return answer.value
        # The server does not answer, or another caller loads the row and takes too long: ask the database, fill nothing.
        self.counts["unguarded"] += 1
        loaded: V | None = yield Do(load)
        return loaded

    def fetch_row(self, flight: Flight, deadline: float) -> Steps[Answer[V] | None]:
        """Fetches a row until the answer is final. Returns nothing if the server fails, if the cached value cannot be
        decoded, or if nobody brings the row in time."""
        wait_ms = waits = 0
        while True:
            [found] = yield from self.fetch([flight.id], wait_ms, self.slots.give_back if wait_ms else None)
            if isinstance(found, Exception):
                flight.has_news = True
                return None
            if found.word != "wait":
                answer = self.read(found)
                flight.has_news = not answer.token
                return answer if answer.token or answer.is_readable else None
            left_s = deadline - time.monotonic()
            waits += 1
            if left_s <= 0 and waits >= self.options.attempts:
                return None
            wait_ms = yield from self.wait(flight, left_s)

    def wait(self, flight: Flight, left_s: float) -> Steps[int]:
        """Waits for the caller that holds the lease: in this process, or else inside the server. For the latter it takes a
        slot, and returns the milliseconds to wait with the next fetch. Without a slot it pauses."""
        if left_s <= 0:
            return 0
        event = self.flights.begin_wait(flight)
        if event is not None:
            yield Wait(event, left_s)
            self.flights.end_wait(flight)
        elif not self.slots.take():
            yield Sleep(min(REPEAT_S, left_s))
        else:
            return max(1, min(self.options.wait_ms, int(left_s * 1000)))
        return 0

    def load(self, flight: Flight, answer: Answer[V], load: Callable[[], Any], ttl_ms: int) -> Steps[V | None]:
        """Loads a row under a lease, and fills it or gives the lease up. A stale value that cannot be refreshed is served:
        it is valid for some time to come."""
        tokens = {flight.id: answer.token}
        try:
            value: V | None = yield Do(load)
            fill = self.fill_with(flight.id, answer.token, value, ttl_ms)
        except BaseException as error:
            yield self.give_up(tokens)
            if not (answer.is_readable and isinstance(error, Exception)):
                raise
            self.counts["stale served"] += 1
            self.grumble.about("a stale value could not be refreshed and was served", error)
            return answer.value
        flight.has_news = bool((yield from self.send_fills(tokens, [fill])))
        return value

    def announce(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's first call: raises the first error."""
        for outcome in (yield from self.changed([item_bytes(id) for id in ids])):
            if isinstance(outcome, Exception):
                raise outcome

    def confirm(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's second call: repeated until the server has answered for every id, for up to `patience` seconds."""
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
        """Sends BF.CHANGED for each id, to the filters that are being filled first. Returns an exception or None for each."""
        outcomes: list[Any] = []
        filters = [*(item_bytes(name) for name in self.options.announce_to), self.filter]
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            calls: list[Call[Any]] = [Call(["BF.CHANGED", name, id, self.prefix + id]) for id in part for name in filters]
            if self.options.replicas:
                calls.append(Call(["WAIT", self.options.replicas, self.options.replicas_timeout_ms], int))
            found = yield Ask(calls, nothing_to_undo)
            if self.options.replicas:
                acknowledged = found.pop()
                if not isinstance(acknowledged, Exception) and acknowledged < self.options.replicas:
                    acknowledged = TimeoutError(f"{acknowledged} of {self.options.replicas} replica(s) have the change")
                if isinstance(acknowledged, Exception):
                    found = [acknowledged] * len(found)
            for first in range(0, len(found), len(filters)):
                answers = found[first : first + len(filters)]
                outcomes.append(next((answer for answer in answers if isinstance(answer, Exception)), None))
        return outcomes

    def forget(self, ids: Sequence[Item]) -> Steps[None]:
        """Deletes ids from the filter: raises the first error."""
        for start in range(0, len(ids), BATCH):
            part = [item_bytes(id) for id in ids[start : start + BATCH]]
            [answers] = yield Ask([Call(["BF.MDEL", self.filter, *part])])
            errors = answers if isinstance(answers, list) else [answers]
            for answer in errors:
                if isinstance(answer, Exception):
                    raise answer
