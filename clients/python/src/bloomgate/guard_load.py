"""Loading rows under leases: filling them, and what happens when the database fails or is slow."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from .codec import Codec, V
from .guard_commands import BATCH, GuardCommands, nothing_to_undo
from .guard_words import Fetched, GuardOptions
from .items import Key
from .steps import Ask, Do, Join, Start, Steps
from .waiting import Flight, Slots

R = TypeVar("R")

SMOOTHING = 0.2
"""The weight of the newest load in the average duration of loads."""

BACKOFF_MS = 100
"""The back-off after the first failed load of a row. It doubles with each further failure."""

MOST_BACKOFF_MS = 10_000
"""The longest back-off."""

MOST_FAILING = 10_000
"""The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten."""

BACKGROUND_LOADS = 64
"""The most loads of a guard that continue in the background after their `soft_timeout`."""


class GuardLoads(GuardCommands[V]):
    """The loads of one guard."""

    def __init__(self, filter: Key, codec: Codec[V], options: GuardOptions) -> None:
        super().__init__(filter, codec, options)
        self.failing: OrderedDict[bytes, int] = OrderedDict()
        self.background = Slots(BACKGROUND_LOADS)

    def timed(self, load: Callable[[], Any], rows: int) -> Steps[Any]:
        """Calls a function that loads rows, and takes its duration into the average."""
        begun = time.monotonic()
        try:
            with self.telemetry.load(rows):
                loaded = yield Do(load)
        except Exception:
            self.count("load_failed", rows)
            raise
        self.load_s += (time.monotonic() - begun - self.load_s) * (SMOOTHING if self.load_s else 1)
        return loaded

    def load_rows(
        self,
        tokens: Mapping[bytes, bytes],
        flights: Mapping[bytes, Flight],
        load: Callable[[], Steps[dict[bytes, V | None]]],
        ttl_ms: int,
        has_values: bool,
    ) -> Steps[dict[bytes, V | None]]:
        """Loads rows under leases, and fills them or gives the leases up. If all of them have old values in the cache
        (`has_values`), these are served when the load fails or takes longer than `soft_timeout`. In the latter case the load
        continues in the background."""
        steps = self.load_and_fill(tokens, flights, load, ttl_ms, has_values)
        soft_timeout = self.options.soft_timeout
        if soft_timeout is None or not has_values:
            return (yield from steps)
        running = None
        if self.background.take():
            running = yield Start(self.in_background(steps), soft_timeout)
            if running.done():
                rows: dict[bytes, V | None] = yield Join(running)
                return rows
        else:
            # Too many loads are running already.
            yield from self.back_off(tokens)
        old = yield from self.old_values(tokens)
        if len(old) == len(tokens):
            self.count("soft_timeout", len(old))
            return old
        if running is None:
            self.count("unguarded", len(tokens))
            return self.decode_rows(self.encode_rows((yield from load())))
        rows = yield Join(running)
        return rows

    def in_background(self, steps: Steps[R]) -> Steps[R]:
        try:
            return (yield from steps)
        finally:
            self.background.give_back()

    def load_and_fill(
        self,
        tokens: Mapping[bytes, bytes],
        flights: Mapping[bytes, Flight],
        load: Callable[[], Steps[dict[bytes, V | None]]],
        ttl_ms: int,
        has_values: bool,
    ) -> Steps[dict[bytes, V | None]]:
        left = dict(tokens)
        try:
            encoded = self.encode_rows((yield from load()))
            rows = self.decode_rows(encoded)
            fills = {id: self.fill_with(id, token, encoded[id], ttl_ms) for id, token in tokens.items()}
            while left:
                part = {id: left.pop(id) for id in list(left)[:BATCH]}
                yield from self.send_fills(part, [fills[id] for id in part])
        except Exception as error:
            yield from self.back_off(left)
            old = (yield from self.old_values(tokens)) if has_values else {}
            if len(old) == len(tokens):
                self.count("stale_served", len(old))
                self.grumble.about("rows could not be loaded, and their old values were served", error)
                return old
            for flight in flights.values():
                flight.error = error
            raise
        except BaseException:
            if left:
                yield self.give_up(left)
            raise
        for id in tokens:
            self.failing.pop(id, None)
        return rows

    def old_values(self, ids: Mapping[bytes, bytes]) -> Steps[dict[bytes, V | None]]:
        """Fetches values that may be served though they are old. The values that were fetched before a load do not qualify: a
        row may have been changed during the load, and then its value has been deleted."""
        found = yield from self.fetch(list(ids), stale_ms=0)
        pairs = zip(ids, found, strict=True)
        answers = {id: self.read(one) for id, one in pairs if isinstance(one, Fetched) and one.word != "wait"}
        if unneeded := {id: answer.token for id, answer in answers.items() if answer.token}:
            yield self.give_up(unneeded)
        return {id: answer.value for id, answer in answers.items() if answer.is_readable}

    def back_off(self, tokens: Mapping[bytes, bytes]) -> Generator[Ask, Any, None]:
        """Ends the leases of rows whose load has failed. With `fail_safe`, nobody gets another lease for them before a
        back-off has passed. It doubles with each failure. A server that does not know BACKOFF ends the leases only."""
        if not self.options.fail_safe_ms:
            yield self.give_up(tokens)
            return
        calls = [self.fill(id, token, "GIVEUP", "BACKOFF", self.next_backoff_ms(id)) for id, token in tokens.items()]
        outcomes = yield Ask(calls, nothing_to_undo)
        pairs = zip(tokens.items(), outcomes, strict=True)
        refused = [(lease, outcome) for lease, outcome in pairs if isinstance(outcome, Exception)]
        if refused:
            self.grumble.about("the server has refused a back-off", refused[0][1])
            yield self.give_up(dict(lease for lease, _ in refused))

    def next_backoff_ms(self, id: bytes) -> int:
        """Counts a failed load of a row, and returns how long nobody may try again."""
        failures = self.failing.pop(id, 0)
        self.failing[id] = failures + 1
        if len(self.failing) > MOST_FAILING:
            self.failing.popitem(last=False)
        return int(min(MOST_BACKOFF_MS, BACKOFF_MS << min(failures, 16)))
