"""The guard's commands (docs/guard.md), for `bloomgate.Guard` and `bloomgate.asyncio.Guard`: fetching rows, filling them and
announcing changes. The module guard_reads reads rows with them."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from .codec import Codec, V
from .creation import Word
from .errors import Unconfirmed
from .flights import Flights, Permits
from .guard_options import FeedKeys, Fetched, GuardOptions, cache_prefix, milliseconds, parse_fetch, parse_fill, parse_mfetch
from .items import Item, Key, item_bytes
from .replication import Durability
from .steps import Ask, Call, CommandBatcher, Event, Shield, Sleep, Steps
from .telemetry import RateLimitedLog, Telemetry

R = TypeVar("R")
Tokens = Mapping[bytes, bytes]

BATCH = 500
"""The maximum number of ids sent together."""

BATCH_BYTES = 1 << 20
"""The maximum size in bytes of rows filled together; a larger row is filled alone."""

DEFAULT_LEASE_MS = 3000
"""The server's default lease."""

JITTER = 0.1
"""The largest share by which times to live are shortened at random, so that rows filled together do not expire together."""

PAUSE_S = 2.0
"""How long callers query the database directly after the server has timed out, or has refused to end a lease."""

REPEAT_S = 0.1
"""The pause before a confirmation is repeated, and before a row is fetched again if the caller cannot wait for it in the
server."""

BACKGROUND_LOADS = 64
"""The maximum number of a guard's loads that continue in the background after their `soft_timeout`."""


class Paused(Exception):
    """The answer to a fetch that is not sent, because the server has timed out a moment ago."""


PAUSED = Paused()


def nothing_to_undo(_found: list[Any]) -> Sequence[Call[Any]]:
    """The `undo` of commands that must reach the server even if the task that sends them is cancelled."""
    return ()


TIMEOUT_ERRORS = {"TimeoutError", "RedisClusterException", "ValkeyClusterException"}
"""The names of errors that may have taken long: the client has waited for a reply, or for several nodes of a cluster in
turn."""


def is_lost(error: Exception) -> bool:
    """Whether an error means that the server was not reached. Other errors of a client are answers of the server."""
    names = {kind.__name__ for kind in type(error).__mro__}
    # Python's own TimeoutError means that replicas are late.
    return not isinstance(error, TimeoutError) and bool(names & {"ConnectionError", *TIMEOUT_ERRORS})


def is_timeout(error: Exception) -> bool:
    """Whether an error may have occurred after a long wait."""
    return type(error).__name__ in TIMEOUT_ERRORS


def spread(outcome: Any, count: int) -> list[Any]:
    """Returns an answer for each row of a command, which itself may have failed."""
    return outcome if isinstance(outcome, list) else [outcome] * count


def tokens_in(ids: Iterable[bytes], answers: Iterable[Any]) -> dict[bytes, bytes]:
    """Returns the tokens of the leases in some answers."""
    return {id: one.token for id, one in zip(ids, answers, strict=False) if isinstance(one, Fetched) and one.token}


class GuardCommands(Generic[V]):
    """The commands of one guard, and its knowledge of the server's state."""

    def __init__(
        self, filter: Key, codec: Codec[V], options: GuardOptions, wait_permits: Permits, make_event: Callable[[], Event]
    ) -> None:
        self.filter = item_bytes(filter)
        self.prefix = cache_prefix(self.filter) if options.prefix is None else item_bytes(options.prefix)
        self.codec = codec
        self.options = options
        self.fail_safe_ms = options.fail_safe_ms
        self.counts: Counter[str] = Counter()
        self.telemetry = Telemetry(self.filter)
        self.near = options.near
        self.has_reports: Callable[[], bool] = lambda: False
        self.feed = FeedKeys(self.filter) if options.feed else None
        self.fetch_options = self.option_words()
        self.log = RateLimitedLog()
        self.is_unresponsive = False
        self.paused_until = 0.0
        self.background = Permits(BACKGROUND_LOADS)
        self.durability = Durability(options.replicas, options.replicas_timeout, options.aof)
        self.wait_permits = wait_permits
        # Numbers calls, fetches and loads in the order in which they begin.
        self.clock: Callable[[], int] = itertools.count(1).__next__
        self.flights = Flights()
        # Loads without the server, separate from `flights`, because they must not wait for a caller that probes a hung server.
        self.direct = Flights()
        self.make_event = make_event
        self.batcher: CommandBatcher | None = None

    def option_words(self) -> list[Word]:
        """Returns the options of every fetch. Options with the server's default are omitted."""
        lease_ms, percent = milliseconds("lease", self.options.lease), round(self.options.beta * 100)
        words: list[Word] = [b"LEASE", lease_ms] if lease_ms != DEFAULT_LEASE_MS else []
        words += [b"STALE", self.fail_safe_ms] if self.fail_safe_ms else []
        words += [b"RENEW", percent] if percent else []
        if self.feed is not None:
            words += [b"WHILE", self.feed.heartbeat, b"UNLESS", self.feed.in_flight]
        if self.options.fresh:
            words += [b"FRESH", milliseconds("fresh", self.options.fresh)]
        return words

    def announce(self, ids: Sequence[Item]) -> Steps[None]:
        """Announces changes before their commit. Raises the first error. With a feed it does nothing: the follower announces
        each change."""
        if self.feed is not None:
            return
        for outcome in (yield from self.changed([item_bytes(id) for id in ids])):
            if isinstance(outcome, Exception):
                raise outcome

    def confirm(self, ids: Sequence[Item]) -> Steps[None]:
        """Confirms changes after their commit, even if the caller is cancelled, because readers would otherwise get the old
        row for a time to live."""
        if self.feed is None:
            yield Shield(self.confirm_each([item_bytes(id) for id in ids]))

    def confirm_each(self, left: list[bytes]) -> Steps[None]:
        """Announces changes until the server has answered for every id, for up to `patience` seconds."""
        deadline = time.monotonic() + self.options.patience
        while left:
            outcomes = yield from self.changed(left)
            failures = [(id, outcome) for id, outcome in zip(left, outcomes, strict=True) if isinstance(outcome, Exception)]
            left = [id for id, _ in failures]
            if not left:
                return
            self.failed(failures[0][1])
            if time.monotonic() >= deadline:
                raise Unconfirmed(tuple(left)) from failures[0][1]
            yield Sleep(REPEAT_S)

    def changed(self, ids: list[bytes]) -> Steps[list[Any]]:
        """Announces a change of each id, to the filters that are being filled first. Returns an exception or None for each."""
        outcomes: list[Any] = []
        filters = [*map(item_bytes, self.options.announce_to), self.filter]
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            command, *items = ["BF.MCHANGED", "ITEMS"] if len(part) > 1 else ["BF.CHANGED"]
            calls: list[Call[Any]] = [Call([command, name, *items, *self.with_keys(part)], node_of=name) for name in filters]
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
        return outcomes

    def with_keys(self, ids: Sequence[bytes]) -> list[Word]:
        """Returns ids and their cache keys."""
        return [word for id in ids for word in (id, self.prefix + id)]

    def forget(self, ids: Sequence[Item]) -> Steps[None]:
        """Deletes ids from the filter. Raises the first error."""
        if self.feed is not None:
            return
        for start in range(0, len(ids), BATCH):
            part = [item_bytes(id) for id in ids[start : start + BATCH]]
            [answers] = yield Ask([Call(["BF.MDEL", self.filter, *part])])
            for answer in spread(answers, 1):
                if isinstance(answer, Exception):
                    raise answer

    def fetch(
        self, ids: Sequence[bytes], *how: Word, wait_s: float = 0.0, finished: Callable[[], None] | None = None
    ) -> Steps[list[Any]]:
        """Fetches rows. Returns a Fetched or an exception for each. If the caller is cancelled before the replies arrive, the
        leases in them are given up. Several rows are fetched by one or a few BF.MFETCH.

        `how` are additional options. A caller that waits has acquired one of the permits, and `finished` releases it."""
        answers: list[Any] = []
        if self.is_unresponsive and self.is_paused():
            if finished is not None:
                finished()
            return [PAUSED] * len(ids)
        marks = self.near.begin(self.prefix + id for id in ids) if self.near is not None and self.has_reports() else {}
        try:
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                call = self.fetch_call(part[0], *how) if len(part) == 1 else self.fetch_calls(part, how)

                def undo(found: list[Any], part: Sequence[bytes] = part) -> Sequence[Call[Any]]:
                    return self.give_up_calls(tokens_in(part, spread(found[0], len(part))))

                batcher = self.batcher if len(part) == 1 and not wait_s else None
                [found] = yield Ask([call], undo, finished, wait_s, batcher)
                answers += spread(found, len(part))
        except BaseException:
            yield from self.give_up(tokens_in(ids, answers))
            raise
        finally:
            if self.near is not None:
                # Only hits, and not filled rows: the server reports a fill as a change.
                pairs = zip(marks, answers, strict=False)
                hits = {key: one.value for key, one in pairs if isinstance(one, Fetched) and one.word == "hit"}
                self.near.end(marks, hits)
        # The error of CLIENT UNBLOCK ... ERROR.
        answers = [Fetched("wait") if wait_s and str(one).startswith("UNBLOCKED") else one for one in answers]
        self.record(answers)
        return answers

    def fetch_call(self, id: bytes, *how: Word) -> Call[Any]:
        """Returns the BF.FETCH of a row."""
        words = ["BF.FETCH", self.filter, id, self.prefix + id, *self.fetch_options, *how]
        return Call(words, parse_fetch, node_of=self.filter)

    def fetch_calls(self, ids: Sequence[bytes], how: Sequence[Word]) -> Call[Any]:
        """Returns the BF.MFETCH of some rows."""
        words = ["BF.MFETCH", self.filter, *self.fetch_options, *how, "ITEMS", *self.with_keys(ids)]
        return Call(words, parse_mfetch, node_of=self.filter)

    def near_row(self, id: bytes) -> tuple[V] | None:
        """Returns the row in the near cache, if the codec can decode it; None while changes are not reported."""
        value = self.near.get(self.prefix + id) if self.near is not None and self.has_reports() else None
        row, is_known = (None, False) if value is None else self.decode(Fetched("hit", value))
        if not is_known:
            return None
        self.count("near_hit")
        return (cast(V, row),)

    def decode(self, found: Fetched) -> tuple[V | None, bool]:
        """Returns the row in an answer, and whether the answer determines if the row exists."""
        if found.word not in ("hit", "stale"):
            return None, found.word == "absent"
        try:
            return self.codec.decode(found.value), True
        except Exception as error:
            if not found.token:
                self.count("undecodable")
                self.log.warn("a cached value could not be decoded, and is replaced", error)
            return None, False

    def is_simple(self) -> bool:
        """Whether the fetch of a row consists only of its BF.FETCH."""
        return self.near is None and not self.is_unresponsive

    def is_paused(self) -> bool:
        """Whether to skip the fetch, because the server has timed out. After a pause, one caller probes the server; the rest
        stay paused."""
        now = time.monotonic()
        if now < self.paused_until:
            return True
        self.paused_until = now + PAUSE_S
        return False

    def record(self, answers: Sequence[Fetched | Exception]) -> None:
        """Counts the answers of a fetch."""
        if len(answers) == 1 and isinstance(answers[0], Fetched):
            self.is_unresponsive = False
            self.count(answers[0].word)
            return
        for answer in answers:
            if isinstance(answer, Exception):
                self.failed(answer)
            else:
                self.is_unresponsive = False
        for word, number in Counter(answer.word for answer in answers if isinstance(answer, Fetched)).items():
            self.count(word, number)

    def count(self, event: str, number: int = 1) -> None:
        self.counts[event] += number
        self.telemetry.event(event, number)

    def fill(self, id: bytes, token: bytes, *rest: Word) -> Call[bool]:
        return Call(["BF.FILL", self.filter, id, self.prefix + id, token, *rest], parse_fill, node_of=self.filter)

    def fill_with(self, id: bytes, token: bytes, data: bytes | None, ttl_ms: int) -> Call[bool]:
        longest_ms = milliseconds("absent_ttl", self.options.absent_ttl) if data is None else ttl_ms
        fresh_ms = max(1, round(longest_ms * (1 - JITTER * random.random())))
        if data is None:
            return self.fill(id, token, "NONE", "PX", fresh_ms)
        return self.fill(id, token, "VALUE", data, "PX", fresh_ms + self.fail_safe_ms)

    def give_up_calls(self, tokens: Tokens, *back_off: Word) -> list[Call[bool]]:
        return [self.fill(id, token, "GIVEUP", *back_off) for id, token in tokens.items()]

    def give_up(self, tokens: Tokens, *back_off: Word) -> Steps[None]:
        """Ends leases, so that other callers may load; with BACKOFF, only after a time that doubles with each failure."""
        if tokens:
            self.check((yield Ask(self.give_up_calls(tokens, *back_off), nothing_to_undo, batcher=self.batcher)))

    def check(self, outcomes: Iterable[Any]) -> None:
        """Begins a pause if the user has no permission to end leases, because otherwise each call would wait until a lease
        ends."""
        if any(type(one).__name__ == "NoPermissionError" for one in outcomes):
            self.pause()

    def fill_all(self, tokens: Tokens, encoded: Mapping[bytes, bytes | None], ttl_ms: int) -> Steps[None]:
        """Fills rows, in batches. If the server refuses a fill, it ends the lease. A lease whose connection was lost is given
        up, so that no caller waits until it expires. GIVEUP is not sent after a time-out, because the server would not answer
        it either."""
        left = dict(tokens)

        def lost(outcomes: list[Any]) -> dict[bytes, bytes]:
            pairs = zip(part.items(), outcomes, strict=True)
            return dict(lease for lease, one in pairs if isinstance(one, Exception) and is_lost(one) and not is_timeout(one))

        try:
            while left:
                part = {id: left.pop(id) for id in self.next_fills(left, encoded)}
                fills = [self.fill_with(id, token, encoded[id], ttl_ms) for id, token in part.items()]
                outcomes = yield Ask(fills, lambda found: self.give_up_calls(lost(found)), batcher=self.batcher)
                for outcome in outcomes:
                    if isinstance(outcome, Exception):
                        self.failed(outcome)
                    else:
                        self.count("filled" if outcome else "lease_lost")
                self.check(outcomes)
                yield from self.give_up(lost(outcomes))
        except BaseException:
            yield from self.give_up(left)
            raise

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

    def pause(self) -> None:
        """Begins a pause, in which callers query the database directly."""
        self.is_unresponsive = True
        self.paused_until = time.monotonic() + PAUSE_S

    def failed(self, error: Exception) -> None:
        self.count("errors")
        if not is_lost(error):
            self.is_unresponsive = False
        elif is_timeout(error):
            self.pause()
        self.log.warn("the server could not be queried", error)
