"""The guard's protocol (docs/guard.md), for `bloomgate.Guard` and `bloomgate.asyncio.Guard`: reading one row, writing, loading
rows under leases, and the commands that these send."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .codec import Codec, V
from .errors import LoadFailed, Unconfirmed
from .guard_words import (
    ABSENT,
    FeedKeys,
    Fetched,
    GuardOptions,
    cache_prefix,
    milliseconds,
    parse_fetch,
    parse_fill,
    parse_mfetch,
)
from .items import Item, Key, item_bytes
from .log import Grumble
from .replication import Durability, check_replicas
from .steps import Ask, Call, Do, Event, Finish, Join, Sleep, Start, Steps, Together, Wait
from .telemetry import Telemetry
from .waiting import Flight, Flights, Slots
from .words import Word

R = TypeVar("R")
T = TypeVar("T")

BATCH = 500
"""The most ids that are sent together."""

BATCH_BYTES = 1 << 20
"""The most bytes of rows that are filled together; a larger row goes alone."""

ANY_AGE_MS = 1 << 61
"""The longest STALE that BF.FETCH accepts. Every value with a time to live has less than this left."""

JITTER = 0.1
"""Times to live are shortened by up to this share, at random: rows that are filled together do not expire together."""

SLOW_LOAD_S = 0.05
"""Renewals of faster loads may come together: they are over soon."""

PAUSE_S = 2.0
"""How long callers go to the database at once after the server has not answered in time."""

REPEAT_S = 0.1
"""The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for."""

SMOOTHING = 0.2
"""The weight of the newest load in the average duration of loads."""

BACKOFF_MS = 100
"""The back-off after the first failed load of a row. It doubles with each further failure."""

MOST_BACKOFF_MS = 10_000
"""The longest back-off."""

MOST_FAILING = 10_000
"""The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten."""

LONGEST_WAIT_S = 60.0
"""After which time those that wait for a load without the server look again."""

BACKGROUND_LOADS = 64
"""The most loads of a guard that continue in the background after their `soft_timeout`."""


class Paused(Exception):
    """The answer to a fetch that is not sent, because the server has not answered in time a moment ago."""


PAUSED = Paused()


def nothing_to_undo(_found: list[Any]) -> Sequence[Call[Any]]:
    """The `undo` of commands that have to reach the server, whatever becomes of the task that sends them."""
    return ()


UNREACHED = {"TimeoutError", "RedisClusterException", "ValkeyClusterException"}
"""The names of errors that may have taken long: the client has waited for a reply, or for one node of a cluster after the other."""


def is_lost(error: Exception) -> bool:
    """Whether an error says that the server was not reached. Other errors of a client are answers."""
    names = {kind.__name__ for kind in type(error).__mro__}
    # Python's own TimeoutError says that replicas are late.
    return not isinstance(error, TimeoutError) and bool(names & {"ConnectionError", *UNREACHED})


def is_cancelled(error: BaseException) -> bool:
    """Whether a load has ended because its caller was cancelled, by asyncio, gevent or eventlet."""
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, (asyncio.CancelledError, GeneratorExit)) or library in ("greenlet", "gevent", "eventlet")


class Loading:
    """A load, as the calls inside of it see it: they get rows that it loads without waiting for it."""

    def __init__(self, guard: object, ids: Sequence[bytes]) -> None:
        self.guard = guard
        self.ids = ids
        self.outer = LOADING.get()
        # A task that the load has begun may outlive it, and still see it.
        self.is_over = False


LOADING: ContextVar[Loading | None] = ContextVar("bloomgate_loading", default=None)
"""The load inside of which this task, or this thread, runs."""


def spread(outcome: Any, count: int) -> list[Any]:
    """Returns an answer for each row of a command, which itself may have failed."""
    return outcome if isinstance(outcome, list) else [outcome] * count


@dataclass(frozen=True)
class Answer(Generic[V]):
    """What is known of a row: the cached value, or None if there is no row. With a `token` the caller has to load the row,
    and `value` is what may be served if that fails. `is_readable` is False where no value is cached, or none that the codec
    can decode."""

    value: V | None
    token: bytes = b""
    is_readable: bool = True


def chosen(of_call: T | None, of_guard: T | None) -> T:
    """Returns the loader of a call."""
    if of_call is not None:
        return of_call
    if of_guard is None:
        raise TypeError("there is no loader: pass one to this call or to the guard")
    return of_guard


class GuardSteps(Generic[V]):
    """Readers and writers of one table."""

    def __init__(
        self, filter: Key, codec: Codec[V], options: GuardOptions, slots: Slots, make_event: Callable[[], Event]
    ) -> None:
        self.filter = item_bytes(filter)
        self.prefix = cache_prefix(self.filter) if options.prefix is None else item_bytes(options.prefix)
        self.codec = codec
        self.options = options
        self.lease_ms = milliseconds("lease", options.lease)
        self.fail_safe_ms = options.fail_safe_ms
        self.counts: Counter[str] = Counter()
        self.telemetry = Telemetry(self.filter)
        self.near = options.near
        self.has_reports: Callable[[], bool] = lambda: False
        self.feed = FeedKeys(self.filter) if options.feed else None
        self.grumble = Grumble()
        self.has_answered = False
        self.is_struck = False
        self.paused_until = 0.0
        self.load_s = 0.0
        self.failing: OrderedDict[bytes, int] = OrderedDict()
        self.background = Slots(BACKGROUND_LOADS)
        self.durability = Durability(options.replicas, options.replicas_timeout, options.aof)
        self.slots = slots
        self.flights = Flights(make_event)
        # Loads without the server: apart from `flights`, because they must not wait for a caller that tries a hung server.
        self.direct = Flights(make_event)
        self.make_event = make_event
        self.together: Together | None = None
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
        if self.is_loading(key):
            # The lease that it would wait for is its own.
            self.count("unguarded")
            return self.decode_rows(self.encode_rows((yield from self.one_row(key, load))))[key]
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
        return (yield from self.load_unguarded([key], lambda _: self.one_row(key, load)))[key]

    def get_in_transaction(self, id: bytes, load: Callable[[], Any]) -> Steps[V | None]:
        """Returns a row that is cached and not old, or what `load` returns, which is neither filled nor shared."""
        [found] = yield from self.fetch([id], stale_ms=self.fail_safe_ms)
        if isinstance(found, Fetched):
            if found.token:
                yield self.give_up({id: found.token})
            if found.word == "hit" and (answer := self.read(found)).is_readable:
                return answer.value
        self.count("unguarded")
        row: V | None = yield Do(load)
        return row

    def one_row(self, id: bytes, load: Callable[[], Any]) -> Steps[dict[bytes, V | None]]:
        return {id: (yield from self.timed(load, [id]))}

    def load_unguarded(
        self, ids: Sequence[bytes], load: Callable[[list[bytes]], Steps[dict[bytes, V | None]]]
    ) -> Steps[dict[bytes, V | None]]:
        """Loads rows without the server, because it does not answer, or because another caller loads them and takes too long.
        Fills nothing. At most one such load of a row runs in this process. Callers that arrive during it share the next load, which
        begins after their calls, so they get no row older than that."""
        self.count("unguarded", len(ids))
        rows: dict[bytes, V | None] = {}
        left = {id: self.direct.begin(id) for id in ids}
        try:
            while left:
                event = self.make_event()
                free = self.direct.begin_waits(left.values(), event)
                if not free:
                    yield Wait(event, LONGEST_WAIT_S)
                    continue
                mine = [flight for flight in free if flight.given is None and flight.given_error is None]
                for flight in free:
                    if flight not in mine:
                        rows |= self.shared_row(flight)
                if mine:
                    rows |= yield from self.load_for(mine, load)
                self.direct.end(*(left.pop(flight.id) for flight in free))
        finally:
            self.direct.end(*left.values())
        return rows

    def shared_row(self, flight: Flight) -> dict[bytes, V | None]:
        """Returns the row that another caller of this process has loaded without the server."""
        found = self.given(flight)
        return self.decode_rows({flight.id: None if found is None or found.word == "absent" else found.value})

    def load_for(
        self, flights: Sequence[Flight], load: Callable[[list[bytes]], Steps[dict[bytes, V | None]]]
    ) -> Steps[dict[bytes, V | None]]:
        """Loads rows, and shares them with those that wait for them, or the error."""
        for flight in flights:
            self.direct.ask(flight)
        try:
            encoded = self.encode_rows((yield from load([flight.id for flight in flights])))
            rows = self.decode_rows(encoded)
        except BaseException as error:
            if not is_cancelled(error):
                for flight in flights:
                    flight.error = error
            raise
        for flight in flights:
            data = encoded[flight.id]
            flight.found = ABSENT if data is None else Fetched("hit", value=data)
        return rows

    @contextmanager
    def loading(self, ids: Sequence[bytes]) -> Iterator[None]:
        """Marks the calls inside of a load."""
        inside = Loading(self, ids)
        entered = LOADING.set(inside)
        try:
            yield
        finally:
            inside.is_over = True
            LOADING.reset(entered)

    def is_loading(self, id: bytes) -> bool:
        """Whether the caller runs inside a load of this row."""
        inside = LOADING.get()
        while inside is not None:
            if inside.guard is self and id in inside.ids and not inside.is_over:
                return True
            inside = inside.outer
        return False

    def given(self, flight: Flight) -> Fetched | None:
        """Returns what another caller of this process shares, or raises its error."""
        if flight.given_error is not None:
            self.count("shared")
            error, traceback = flight.given_error
            # Each caller would add its own frames to the shared error.
            raise error.with_traceback(traceback)
        if flight.given is not None:
            self.count("shared")
        return flight.given

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
            return self.given(flight)
        if is_cached or not self.slots.take():
            yield Sleep(min(REPEAT_S, left_s))
            return None
        wait_ms = max(1, int(1000 * min(self.options.wait, left_s)))
        begun = time.monotonic()
        self.flights.ask(flight)
        [found] = yield from self.fetch([flight.id], wait_ms=wait_ms, finished=self.slots.give_back)
        result: Fetched | Exception = found
        took_s = time.monotonic() - begun
        is_early = isinstance(result, Fetched) and result.word == "wait" and took_s < wait_ms / 2000
        if is_early:
            # A caller that waits for a lease waits for all of that, unless CLIENT UNBLOCK or a back-off ends the wait.
            if flight.was_early and self.fail_safe_ms:
                failed = LoadFailed(flight.id)
                flight.error = failed
                raise failed
            yield Sleep(max(0.0, min(REPEAT_S, left_s) - took_s))
        flight.was_early = is_early
        return result

    def announce(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's first call: raises the first error. With a feed, the follower makes the writers' calls."""
        if self.feed is not None:
            return
        for outcome in (yield from self.changed([item_bytes(id) for id in ids])):
            if isinstance(outcome, Exception):
                raise outcome

    def confirm(self, ids: Sequence[Item]) -> Steps[None]:
        """A writer's second call, which outlives a cancelled caller: readers would get the old row for a whole time to live."""
        if self.feed is None:
            yield Finish(self.confirm_each([item_bytes(id) for id in ids]))

    def confirm_each(self, left: list[bytes]) -> Steps[None]:
        """Announces changes until the server has answered for every id, for up to `patience` seconds."""
        deadline = time.monotonic() + self.options.patience
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
            error = self.durability.take_error(found)
            # The answers of each filter, in the order of the ids.
            each = [answer for one in found for answer in spread(one, len(part))]
            for index in range(len(part)):
                errors = [answer for answer in each[index :: len(part)] if isinstance(answer, Exception)]
                outcomes.append(error or next(iter(errors), None))
            self.has_answered = self.has_answered or outcomes[-1] is None
        return outcomes

    def change_calls(self, ids: list[bytes], filters: list[bytes]) -> list[Call[Any]]:
        """Returns the commands that announce changes: one for each filter."""
        pairs = [word for id in ids for word in (id, self.prefix + id)]
        if len(ids) > 1:
            return [Call(["BF.MCHANGED", name, "ITEMS", *pairs], node_of=name) for name in filters]
        return [Call(["BF.CHANGED", name, *pairs], node_of=name) for name in filters]

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

    def timed(self, load: Callable[[], Any], ids: Sequence[bytes]) -> Steps[Any]:
        """Calls a function that loads rows, and takes its duration into the average."""
        begun = time.monotonic()
        try:
            with self.telemetry.load(len(ids)), self.loading(ids):
                loaded = yield Do(load)
        except BaseException as error:
            if not is_cancelled(error):
                self.count("load_failed", len(ids))
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
                part = {id: left.pop(id) for id in self.next_fills(left, encoded)}
                yield from self.send_fills(part, [fills[id] for id in part])
        except BaseException as error:
            if is_cancelled(error):
                if left:
                    yield self.give_up(left)
                raise
            yield from self.back_off(left)
            old = (yield from self.old_values(tokens)) if has_values and isinstance(error, Exception) else {}
            if old and len(old) == len(tokens):
                self.count("stale_served", len(old))
                self.grumble.about("rows could not be loaded, and their old values were served", error)
                return old
            for flight in flights.values():
                flight.error = error
            raise
        for id in tokens:
            self.failing.pop(id, None)
        return rows

    @staticmethod
    def next_fills(ids: Mapping[bytes, bytes], encoded: Mapping[bytes, bytes | None]) -> list[bytes]:
        """Returns the rows of the next batch of fills: the first row, and further rows up to the limits of a batch."""
        part: list[bytes] = []
        size = 0
        for id in ids:
            size += len(encoded[id] or b"")
            if part and (len(part) == BATCH or size > BATCH_BYTES):
                break
            part.append(id)
        return part

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
        if not self.fail_safe_ms:
            yield from self.end_leases(tokens)
            return
        calls = [self.fill(id, token, "GIVEUP", "BACKOFF", self.next_backoff_ms(id)) for id, token in tokens.items()]
        outcomes = yield Ask(calls, nothing_to_undo)
        pairs = zip(tokens.items(), outcomes, strict=True)
        refused = [(lease, outcome) for lease, outcome in pairs if isinstance(outcome, Exception)]
        if refused:
            self.grumble.about("the server has refused a back-off", refused[0][1])
            yield from self.end_leases(dict(lease for lease, _ in refused))

    def next_backoff_ms(self, id: bytes) -> int:
        """Counts a failed load of a row, and returns how long nobody may try again."""
        failures = self.failing.pop(id, 0)
        self.failing[id] = failures + 1
        if len(self.failing) > MOST_FAILING:
            self.failing.popitem(last=False)
        return int(min(MOST_BACKOFF_MS, BACKOFF_MS << min(failures, 16)))

    def words(self, command: str, id: bytes, *rest: Word) -> list[Word]:
        return [command, self.filter, id, self.prefix + id, *rest]

    def stale_ms(self) -> int:
        """Returns the STALE of a fetch: one caller refreshes a value with less than this to live.

        A value with less than `fail_safe` left is due. Before that, it is renewed with a probability that grows as its end
        approaches, and the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache
        Stampede Prevention", VLDB 2015, figure 3."""
        early_s = self.load_s * self.options.beta
        if not early_s:
            return self.fail_safe_ms
        return min(ANY_AGE_MS, self.fail_safe_ms + round(early_s * -math.log(1 - random.random()) * 1000))

    def fetch_options(self, stale_ms: int) -> list[Word]:
        stale: list[Word] = [b"STALE", stale_ms] if stale_ms else []
        feed: list[Word] = [b"WHILE", self.feed.heartbeat, b"UNLESS", self.feed.in_flight] if self.feed is not None else []
        return [b"LEASE", self.lease_ms, *stale, *feed]

    def fetch(
        self,
        ids: Sequence[bytes],
        replace: bool = False,
        wait_ms: int = 0,
        finished: Callable[[], None] | None = None,
        stale_ms: int | None = None,
    ) -> Generator[Ask, Any, list[Any]]:
        """Fetches rows: returns a Fetched or an exception for each. If the caller is cancelled before it gets the replies,
        the leases in them are given up.

        Several rows are one BF.MFETCH, or a few. Callers that wait, and `replace`, need BF.FETCH. `stale_ms` replaces the
        guard's.

        `replace` is for rows whose cached value could not be decoded: it asks for the lease to replace the value. STALE with
        the longest time gives one caller a token for any value with a time to live; a value without one, which is never
        stale, gets one first. Deleting the value instead would not be safe: every caller that has seen it would delete what
        the first of them has filled since.

        An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would
        overwrite them. Such a row is read from the database."""
        answers: list[Any] = []
        own = [id for id in ids if self.is_own(id)]
        if own:
            others = [id for id in ids if id not in own]
            if others:
                answers = yield from self.fetch(others, replace, wait_ms, finished, stale_ms)
            by_id = dict(zip(others, answers, strict=True))
            refused = ValueError(f"the cache key of {own[0]!r} is a key of the follower")
            self.failed(refused)
            return [by_id.get(id, refused) for id in ids]
        if self.is_struck and self.is_paused():
            if finished is not None:
                finished()
            return [PAUSED] * len(ids)
        marks = self.near.begin(self.prefix + id for id in ids) if self.near is not None and self.has_reports() else {}
        try:
            if len(ids) > 1 and not replace:
                answers = yield from self.fetch_together(ids, stale_ms)
            else:
                each_ms = ANY_AGE_MS if replace else stale_ms
                answers = yield from self.fetch_each(ids, replace, wait_ms, finished, each_ms)
        finally:
            if self.near is not None:
                # Not what is filled: the server reports that as a change.
                found = zip(marks, answers, strict=False)
                hits = {key: one.value for key, one in found if isinstance(one, Fetched) and one.word == "hit"}
                self.near.end(marks, hits)
        self.record(answers)
        return answers

    def near_answer(self, id: bytes) -> Answer[V] | None:
        """Returns what the near cache has of a row. Nothing if no changes are reported."""
        value = self.near.get(self.prefix + id) if self.near is not None and self.has_reports() else None
        if value is None:
            return None
        answer = self.read(Fetched("hit", value=value))
        if not answer.is_readable:
            return None
        self.count("near_hit")
        return answer

    def is_own(self, id: bytes) -> bool:
        """Whether the id's cache key would be one of the follower's own keys."""
        return self.feed is not None and self.feed.own(self.prefix + id)

    def is_simple(self, id: bytes) -> bool:
        """Whether a fetch of this row is its BF.FETCH and nothing else."""
        return self.near is None and not self.is_struck and not self.is_own(id)

    def is_paused(self) -> bool:
        """Whether a fetch has to be left out, after the server has not answered one in time. After a pause, one caller
        fetches, while the pause goes on for the others."""
        now = time.monotonic()
        if now < self.paused_until:
            return True
        self.paused_until = now + PAUSE_S
        return False

    def record(self, answers: Sequence[Fetched | Exception]) -> None:
        """Counts the answers of a fetch."""
        if len(answers) == 1 and isinstance(answers[0], Fetched):
            self.has_answered = True
            self.is_struck = False
            self.count(answers[0].word)
            return
        words: dict[str, int] = {}
        for answer in answers:
            if isinstance(answer, Exception):
                self.failed(answer)
            else:
                self.has_answered = True
                self.is_struck = False
                words[answer.word] = words.get(answer.word, 0) + 1
        for word, number in words.items():
            self.count(word, number)

    def count(self, event: str, number: int = 1) -> None:
        self.counts[event] += number
        self.telemetry.event(event, number)

    def fetch_together(self, ids: Sequence[bytes], stale_ms: int | None) -> Generator[Ask, Any, list[Any]]:
        """Sends one BF.MFETCH, or a few."""
        groups = [(stale_ms, ids)] if stale_ms is not None else self.stale_groups(ids)
        order = [id for _, group in groups for id in group]
        calls = []
        for group_ms, group in groups:
            pairs = [word for id in group for word in (id, self.prefix + id)]
            words = ["BF.MFETCH", self.filter, *self.fetch_options(group_ms), "ITEMS", *pairs]
            calls.append(Call(words, parse_mfetch, node_of=self.filter))

        def answers(found: list[Any]) -> list[Any]:
            pairs = zip(groups, found, strict=True)
            return [answer for (_, group), one in pairs for answer in spread(one, len(group))]

        found = yield Ask(calls, lambda found: self.unneeded(order, answers(found)))
        by_id = dict(zip(order, answers(found), strict=True))
        return [by_id[id] for id in ids]

    def stale_groups(self, ids: Sequence[bytes]) -> list[tuple[int, Sequence[bytes]]]:
        """Returns rows by the STALE of their fetch. If all rows of a batch shared what is drawn for their renewal, a large
        number would renew all that expire soon, at once. So slow loads are drawn for each row, and rows with similar numbers
        are fetched together."""
        if self.load_s * self.options.beta < SLOW_LOAD_S:
            return [(self.stale_ms(), ids)]
        groups: dict[int, tuple[list[int], list[bytes]]] = {}
        for id in ids:
            drawn_ms = self.stale_ms()
            drawn, group = groups.setdefault((drawn_ms - self.fail_safe_ms).bit_length(), ([], []))
            drawn.append(drawn_ms)
            group.append(id)
        return [(sum(drawn) // len(drawn), group) for drawn, group in groups.values()]

    def fetch_call(self, id: bytes, stale_ms: int | None = None, wait: Sequence[Word] = ()) -> Call[Fetched]:
        """Returns the BF.FETCH of a row."""
        options = self.fetch_options(self.stale_ms() if stale_ms is None else stale_ms)
        return Call(self.words("BF.FETCH", id, *options, *wait), parse_fetch, node_of=self.filter)

    def fetch_each(
        self, ids: Sequence[bytes], replace: bool, wait_ms: int, finished: Callable[[], None] | None, stale_ms: int | None
    ) -> Generator[Ask, Any, list[Any]]:
        """Sends a BF.FETCH for each row, all together."""
        calls: list[Call[Any]] = []
        wait: list[Word] = ["WAIT", wait_ms] if wait_ms else []
        for id in ids:
            if replace:
                calls.append(Call(["PEXPIRE", self.prefix + id, milliseconds("ttl", self.options.ttl), "NX"]))
            calls.append(self.fetch_call(id, stale_ms, wait))

        def fetched(found: list[Any]) -> list[Any]:
            return [one for call, one in zip(calls, found, strict=True) if call.parse is parse_fetch]

        together = None if wait_ms else self.together
        ask = Ask(calls, lambda found: self.unneeded(ids, fetched(found)), finished, wait_ms / 1000, together)
        answers = fetched((yield ask))
        # The error of CLIENT UNBLOCK ... ERROR.
        return [Fetched("wait") if wait_ms and str(one).startswith("UNBLOCKED") else one for one in answers]

    def unneeded(self, ids: Sequence[bytes], answers: list[Any]) -> Sequence[Call[Any]]:
        """Returns the commands that give up the leases in some answers."""
        pairs = zip(ids, answers, strict=True)
        return self.give_up({id: one.token for id, one in pairs if isinstance(one, Fetched) and one.token}).calls

    def fill(self, id: bytes, token: bytes, *rest: Word) -> Call[bool]:
        return Call(self.words("BF.FILL", id, token, *rest), parse_fill, node_of=self.filter)

    def encode_rows(self, rows: Mapping[bytes, V | None]) -> dict[bytes, bytes | None]:
        """Returns loaded rows as they are cached."""
        return {id: None if row is None else self.codec.encode(row) for id, row in rows.items()}

    def decode_rows(self, encoded: Mapping[bytes, bytes | None]) -> dict[bytes, V | None]:
        """Returns loaded rows as callers get them: as everybody gets them who finds them in the cache."""
        return {id: None if data is None else self.codec.decode(data) for id, data in encoded.items()}

    def fill_with(self, id: bytes, token: bytes, data: bytes | None, ttl_ms: int) -> Call[bool]:
        share = 1 - JITTER * random.random()
        if data is None:
            absent_ms = max(1, round(milliseconds("absent_ttl", self.options.absent_ttl) * share))
            return self.fill(id, token, "NONE", "PX", absent_ms)
        fresh_ms = max(1, round(ttl_ms * share))
        return self.fill(id, token, "VALUE", data, "PX", fresh_ms + self.fail_safe_ms)

    def give_up(self, tokens: Mapping[bytes, bytes]) -> Ask:
        """Ends leases, so that other callers may load."""
        calls = [self.fill(id, token, "GIVEUP") for id, token in tokens.items()]
        return Ask(calls, nothing_to_undo, together=self.together)

    def end_leases(self, tokens: Mapping[bytes, bytes]) -> Generator[Ask, Any, None]:
        """Ends leases. If the user has no permission for that, the pause begins: otherwise each call would wait for a lease to end."""
        outcomes = yield self.give_up(tokens)
        if any(type(one).__name__ == "NoPermissionError" for one in outcomes):
            self.pause()

    def send_fills(self, tokens: Mapping[bytes, bytes], fills: Sequence[Call[bool]]) -> Generator[Ask, Any, None]:
        """Sends the fills of some leases together. Gives up what the server refuses, because it is out of memory for instance:
        nobody should wait until those leases end."""

        def refused(outcomes: list[Any]) -> dict[bytes, bytes]:
            pairs = zip(tokens.items(), outcomes, strict=True)
            return dict(lease for lease, outcome in pairs if isinstance(outcome, Exception))

        outcomes = yield Ask(fills, lambda outcomes: self.give_up(refused(outcomes)).calls, together=self.together)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.failed(outcome)
            else:
                self.count("filled" if outcome else "lease_lost")
        if (given_up := refused(outcomes)) and not self.is_struck:
            yield from self.end_leases(given_up)

    def read(self, found: Fetched, undecodable: bytes | None = None) -> Answer[V]:
        """Decodes the value of a reply other than `wait`. `undecodable` is a value that the codec has failed on already."""
        if found.word == "absent":
            return Answer(None)
        if found.word == "load":
            return Answer(None, found.token, is_readable=False)
        if found.value != undecodable:
            try:
                return Answer(self.codec.decode(found.value), found.token)
            except Exception as error:
                self.count("undecodable")
                self.grumble.about("a cached value could not be decoded, and is replaced", error)
        return Answer(None, found.token, is_readable=False)

    def pause(self) -> None:
        """Makes callers go to the database at once for a while."""
        self.is_struck = True
        self.paused_until = time.monotonic() + PAUSE_S

    def failed(self, error: Exception) -> None:
        self.count("errors")
        if not is_lost(error):
            self.is_struck = False
        elif type(error).__name__ in UNREACHED:
            self.pause()
        self.grumble.about("the server could not be asked", error)
