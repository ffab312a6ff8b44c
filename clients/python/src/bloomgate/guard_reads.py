"""Reading rows through the guard: one or many, with leases or without the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from .codec import V
from .creation import Word
from .errors import LoadFailed
from .flights import Failed, Flight, Outcome
from .guard_commands import REPEAT_S, GuardCommands, tokens_in
from .guard_options import ABSENT, Fetched, milliseconds
from .items import Item, item_bytes, refuse_single
from .steps import Do, Join, Sleep, Start, Steps, Wait

T = TypeVar("T")
Rows = dict[bytes, V | None]

LONGEST_WAIT_S = 60.0
"""How long callers wait, without the server, for another caller's load before they check again."""


def is_cancelled(error: BaseException) -> bool:
    """Whether a load has ended because its caller was cancelled, by asyncio, gevent or eventlet."""
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, (asyncio.CancelledError, GeneratorExit)) or library in ("greenlet", "gevent", "eventlet")


class Loading:
    """A running load, seen by the calls inside it: these read its rows without waiting for it."""

    def __init__(self, guard: object, ids: Sequence[bytes]) -> None:
        self.guard = guard
        self.ids = ids
        self.outer = LOADING.get()
        # A task that the load has started may outlive the load, and still see this object.
        self.is_over = False


LOADING: ContextVar[Loading | None] = ContextVar("bloomgate_loading", default=None)
"""The load that this task or thread is part of."""


@contextmanager
def loading(guard: object, ids: Sequence[bytes]) -> Iterator[None]:
    """Marks the calls inside a load."""
    inside = Loading(guard, ids)
    LOADING.set(inside)
    try:
        yield
    finally:
        inside.is_over = True
        LOADING.set(inside.outer)


def is_direct(guard: GuardCommands[Any], id: bytes) -> bool:
    """Whether to read a row from the database directly: the caller is inside a load of it and would wait for its own lease."""
    inside = LOADING.get()
    while inside is not None:
        if inside.guard is guard and id in inside.ids and not inside.is_over:
            return True
        inside = inside.outer
    return False


def chosen(of_call: T | None, of_guard: T | None) -> T:
    """Returns the loader of a call."""
    if of_call is not None:
        return of_call
    if of_guard is None:
        raise TypeError("there is no loader: pass one to this call or to the guard")
    return of_guard


@dataclass
class Reading(Generic[V]):
    """A call of `get` or `get_many` that began at a time of the guard's clock. `load` loads rows, and `pick` selects one row of
    its result."""

    guard: GuardCommands[V]
    ttl_ms: int
    begun: int
    load: Callable[[list[bytes]], Any]
    pick: Callable[[Any, bytes], V | None]
    rows: Rows[V] = field(default_factory=dict)

    def read(self, id: bytes, deadline: float, found: Any = None) -> Steps[bool]:
        """Reads a row, or waits for a caller that loads it. Returns False if the server fails, or if no load completes before
        the deadline."""
        [flight] = flights = self.guard.flights.begin([id], self.begun)
        flight.asked = self.begun
        try:
            if found is None:
                [found] = yield from self.fetch(flights)
            while True:
                waiting, failed = yield from self.settle(flights, [found])
                left_s = deadline - time.monotonic()
                if not waiting or left_s <= 0:
                    return not waiting and not failed
                found = yield from self.wait(flight, left_s)
        finally:
            self.guard.flights.end(flights)

    def read_all(self, ids: list[bytes]) -> Steps[None]:
        """Reads many rows."""
        deadline = time.monotonic() + self.guard.options.wait
        direct = [id for id in ids if is_direct(self.guard, id)]
        left = []
        for id in ids:
            if id not in direct and (near := self.guard.near_row(id)) is not None:
                self.rows[id] = near[0]
            elif id not in direct:
                left.append(id)
        while left:
            flights = self.guard.flights.begin(left, self.begun)
            try:
                left, failed = yield from self.settle(flights, (yield from self.fetch(flights)))
            finally:
                self.guard.flights.end(flights)
            direct += failed
            # By the time the first row is loaded, most of the others are, too.
            if not left or time.monotonic() >= deadline or not (yield from self.read(left[0], deadline)):
                break
            left = left[1:]
        if direct or left:
            yield from self.unguarded(direct + left)

    def fetch(self, flights: Sequence[Flight], *how: Word, **options: Any) -> Steps[list[Any]]:
        for flight in flights:
            flight.asked = self.guard.clock()
        return (yield from self.guard.fetch([flight.id for flight in flights], *how, **options))

    def settle(self, flights: Sequence[Flight], answers: Sequence[Any]) -> Steps[tuple[list[bytes], list[bytes]]]:
        """Decodes the rows of answers, and loads those with leases. Fetches rows again whose values cannot be decoded. Returns
        the ids of rows that other callers load, and the ids for which the server failed."""
        waiting: list[bytes] = []
        failed: list[bytes] = []
        has_values = True
        left = flights
        while left:
            undecodable: list[Flight] = []
            replaced: dict[bytes, bytes] = {}
            error: Exception | None = None
            for flight, one in zip(left, answers, strict=True):
                row, is_known = (None, False) if isinstance(one, Exception) else self.guard.decode(one)
                token = b"" if isinstance(one, Exception) else one.token
                if is_known and (flight.replaces or not token):
                    self.rows[flight.id] = row
                    flight.shares = one if one.word == "absent" else Fetched("hit", value=one.value)
                    if token:
                        # Another caller has replaced the value in the meantime. The new value is not due for a refresh.
                        replaced[flight.id] = token
                elif token:
                    flight.token = token
                    has_values = has_values and is_known
                elif isinstance(one, Exception):
                    failed.append(flight.id)
                    flight.shares = one
                elif one.word == "failed":
                    error = LoadFailed(flight.id)
                    flight.shares = Failed(flight.id, error)
                elif one.word == "hit" and not flight.replaces:
                    flight.replaces = True
                    undecodable.append(flight)
                else:
                    waiting.append(flight.id)
            left = undecodable
            try:
                yield from self.guard.give_up(replaced)
                if error is not None:
                    raise error
                if left:
                    answers = yield from self.fetch(left, "REPLACE")
            except BaseException:
                yield from self.guard.give_up({flight.id: flight.token for flight in flights if flight.token})
                raise
        if leased := [flight for flight in flights if flight.token]:
            # Only flights with a lease will load a row, so no caller in this process needs to wait for the others.
            self.guard.flights.end(flight for flight in flights if not flight.token)
            self.rows |= yield from self.load_leased(leased, has_values)
        return waiting, failed

    def wait(self, flight: Flight, left_s: float) -> Steps[Any]:
        """Waits for the holder of the lease, in this process or inside the server. Returns the outcome that another caller
        shares, or the server's answer. If no permit is free, sleeps before it fetches again."""
        guard = self.guard
        flight.given, event = None, guard.make_event()
        if not guard.flights.wait([flight], event):
            yield Wait(event, left_s)
            if (given := guard.flights.stop(flight)) is not None:
                return self.given(given)
            return (yield from self.fetch([flight]))[0]
        replace: list[Word] = ["REPLACE"] if flight.replaces else []
        if not guard.wait_permits.acquire():
            yield Sleep(min(REPEAT_S, left_s))
            return (yield from self.fetch([flight], *replace))[0]
        wait_ms = max(1, int(1000 * min(guard.options.wait, left_s)))
        begun = time.monotonic()
        how: list[Word] = [*replace, "WAIT", wait_ms, "BACKOFF"]
        [found] = yield from self.fetch([flight], *how, wait_s=wait_ms / 1000, finished=guard.wait_permits.release)
        if isinstance(found, Fetched) and found.word == "wait":
            # CLIENT UNBLOCK has ended the wait.
            yield Sleep(max(0.0, min(REPEAT_S, left_s) - (time.monotonic() - begun)))
        return found

    def given(self, outcome: Outcome) -> Fetched | Exception:
        """Returns the outcome that another caller of this process shares, or raises the error of its load."""
        self.guard.count("shared")
        if isinstance(outcome, Failed):
            # Each caller would add its own frames to the shared error.
            raise outcome.error.with_traceback(outcome.traceback)
        return outcome

    def run(self, flights: Sequence[Flight]) -> Steps[tuple[dict[bytes, bytes | None], Rows[V]]]:
        """Loads rows. Returns them encoded, and decoded again, so that every caller gets what the cache would return. The
        flights share the rows, or the error unless the caller was cancelled."""
        guard = self.guard
        ids = [flight.id for flight in flights]
        try:
            with guard.telemetry.load(len(ids)), loading(guard, ids):
                loaded = yield Do(lambda: self.load(ids))
            picked = {id: self.pick(loaded, id) for id in ids}
            encoded = {id: None if row is None else guard.codec.encode(row) for id, row in picked.items()}
            rows = {id: None if data is None else guard.codec.decode(data) for id, data in encoded.items()}
        except BaseException as error:
            if not is_cancelled(error):
                guard.count("load_failed", len(ids))
                for flight in flights:
                    flight.shares = Failed(flight.id, error)
            raise
        for flight in flights:
            data = encoded[flight.id]
            flight.shares = ABSENT if data is None else Fetched("hit", value=data)
        return encoded, rows

    def unguarded(self, ids: Sequence[bytes]) -> Steps[None]:
        """Loads rows without the server, because it does not answer or because another caller's load takes too long. Fills
        nothing. At most one such load of a row runs in this process. Callers that arrive during it share the next load, which
        begins after their calls, so their rows are not older than their calls. A load does not wait for its own rows."""
        guard = self.guard
        guard.count("unguarded", len(ids))
        left = flights = guard.direct.begin(ids, self.begun)
        try:
            while left:
                event = guard.make_event()
                own = [flight for flight in left if is_direct(guard, flight.id)]
                free = own + guard.direct.wait([flight for flight in left if flight not in own], event)
                if not free:
                    yield Wait(event, LONGEST_WAIT_S)
                    continue
                for flight in free:
                    if flight.given is not None:
                        found = cast(Fetched, self.given(flight.given))
                        self.rows[flight.id] = None if found.word == "absent" else guard.codec.decode(found.value)
                if mine := [flight for flight in free if flight.given is None]:
                    for flight in mine:
                        flight.asked = guard.clock()
                    self.rows |= (yield from self.run(mine))[1]
                guard.direct.end(free)
                left = [flight for flight in left if not flight.ended]
        finally:
            guard.direct.end(flights)

    def load_leased(self, flights: Sequence[Flight], has_values: bool) -> Steps[Rows[V]]:
        """Loads rows under leases, and fills them or gives the leases up. If old values of all rows are cached (`has_values`),
        they are served if the load fails or takes longer than `soft_timeout`. In the latter case the load continues in the
        background."""
        soft_timeout, background = self.guard.options.soft_timeout, self.guard.background
        if soft_timeout is None or not has_values:
            return (yield from self.load_and_fill(flights, has_values))
        if not background.acquire():
            # Too many loads are running in the background.
            if (old := (yield from self.old_values(flights))) is None:
                return (yield from self.load_and_fill(flights, has_values))
            yield from self.end_failed(flights)
            self.guard.count("soft_timeout", len(old))
            return old

        def in_background() -> Steps[Rows[V]]:
            try:
                return (yield from self.load_and_fill(flights, has_values))
            finally:
                background.release()

        running = yield Start(in_background(), soft_timeout)
        if not running.done() and (old := (yield from self.old_values(flights))) is not None:
            self.guard.count("soft_timeout", len(old))
            return old
        rows: Rows[V] = yield Join(running)
        return rows

    def end_failed(self, flights: Sequence[Flight], is_cancelled: bool = False) -> Steps[None]:
        """Ends the leases of a failed load. With `fail_safe`, the server grants no lease for these rows until a back-off
        ends."""
        back_off = ["BACKOFF"] if self.guard.fail_safe_ms and not is_cancelled else []
        yield from self.guard.give_up({flight.id: flight.token for flight in flights}, *back_off)

    def load_and_fill(self, flights: Sequence[Flight], has_values: bool) -> Steps[Rows[V]]:
        try:
            encoded, rows = yield from self.run(flights)
        except BaseException as error:
            yield from self.end_failed(flights, is_cancelled(error))
            old = (yield from self.old_values(flights)) if has_values and isinstance(error, Exception) else None
            if old is None:
                raise
            for flight in flights:
                flight.shares = None
            self.guard.count("stale_served", len(old))
            self.guard.log.warn("rows could not be loaded, and their old values were served", error)
            return old
        yield from self.guard.fill_all({flight.id: flight.token for flight in flights}, encoded, self.ttl_ms)
        return rows

    def old_values(self, flights: Sequence[Flight]) -> Steps[Rows[V] | None]:
        """Fetches cached values that may be old. Returns None unless all rows have a value. Values that were fetched before a
        load must not be used: a row may have changed during the load, which deletes its value."""
        found = yield from self.guard.fetch([flight.id for flight in flights], "PEEK")
        rows = {}
        for flight, one in zip(flights, found, strict=True):
            rows[flight.id], is_known = (None, False) if isinstance(one, Exception) else self.guard.decode(one)
            if not is_known:
                return None
        return rows


class GuardReads(GuardCommands[V]):
    """Readers and writers of one table."""

    def ttl_ms(self, of_call: float | None) -> int:
        return milliseconds("ttl", self.options.ttl if of_call is None else of_call)

    def get(self, id: bytes, load: Callable[[], Any], ttl: float | None, begun: int, found: Any = None) -> Steps[V | None]:
        """Reads a row. `found` is the answer to a fetch that was sent after this call began."""
        call: Reading[V] = Reading(self, self.ttl_ms(ttl), begun, lambda _: load(), lambda loaded, _: loaded)
        if found is None and (near := self.near_row(id)) is not None:
            return near[0]
        deadline = time.monotonic() + self.options.attempts * self.options.wait
        if is_direct(self, id) or not (yield from call.read(id, deadline, found)):
            yield from call.unguarded([id])
        return call.rows[id]

    def get_in_transaction(self, id: bytes, load: Callable[[], Any]) -> Steps[V | None]:
        """Returns a row that is cached and not old, or else the result of `load`, which is neither filled nor shared."""
        [found] = yield from self.fetch([id])
        if isinstance(found, Fetched):
            yield from self.give_up(tokens_in([id], [found]))
            row, is_known = self.decode(found)
            if found.word == "hit" and is_known:
                return row
        self.count("unguarded")
        loaded: V | None = yield Do(load)
        return loaded

    def get_many(
        self, ids: Iterable[Item], load_many: Callable[[list[Any]], Any], ttl: float | None
    ) -> Steps[dict[Any, V | None]]:
        """Reads rows. Ids with the same bytes, such as 7 and "7", name one row: it is loaded by the first id, and returned for
        each."""
        refuse_single(ids)
        asked = {id: item_bytes(id) for id in ids}
        first: dict[bytes, Any] = {}
        for id, key in asked.items():
            first.setdefault(key, id)

        def load(keys: list[bytes]) -> Any:
            return load_many([first[key] for key in keys])

        call: Reading[V] = Reading(self, self.ttl_ms(ttl), self.clock(), load, lambda loaded, key: loaded.get(first[key]))
        yield from call.read_all(list(first))
        return {id: call.rows[key] for id, key in asked.items()}
