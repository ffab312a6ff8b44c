"""The commands of the guard, and what their replies mean: what reading one row, reading many and writing have in common."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from .codec import Codec, V
from .errors import ModuleMissing
from .guard_words import FeedKeys, Fetched, GuardOptions, cache_prefix, milliseconds, parse_fetch, parse_fill, parse_mfetch
from .items import Key, item_bytes
from .log import Grumble
from .steps import Ask, Call
from .telemetry import Telemetry
from .words import Word

BATCH = 500
"""The most ids that are sent together."""

ANY_AGE_MS = 1 << 61
"""The longest STALE that BF.FETCH accepts. Every value with a time to live has less than this left."""

JITTER = 0.1
"""Times to live are shortened by up to this share, at random: rows that are filled together do not expire together."""

SLOW_LOAD_S = 0.05
"""Renewals of faster loads may come together: they are over soon."""


PAUSE_S = 2.0
"""How long callers go to the database at once after the server has not answered in time."""


class Paused(Exception):
    """The answer to a fetch that is not sent, because the server has not answered in time a moment ago."""


PAUSED = Paused()


def nothing_to_undo(_found: list[Any]) -> Sequence[Call[Any]]:
    """The `undo` of commands that have to reach the server, whatever becomes of the task that sends them."""
    return ()


def is_unavailable(outcome: Any) -> bool:
    """Whether a command is new to an older module, or to the permissions of this client's user."""
    return isinstance(outcome, ModuleMissing) or type(outcome).__name__ == "NoPermissionError"


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


class GuardCommands(Generic[V]):
    """The commands of one guard."""

    def __init__(self, filter: Key, codec: Codec[V], options: GuardOptions) -> None:
        self.filter = item_bytes(filter)
        self.prefix = cache_prefix(self.filter) if options.prefix is None else item_bytes(options.prefix)
        self.codec = codec
        self.options = options
        self.lease_ms = milliseconds("lease", options.lease)
        self.counts: Counter[str] = Counter()
        self.telemetry = Telemetry(self.filter)
        self.near = options.near
        self.has_reports: Callable[[], bool] = lambda: False
        self.feed = FeedKeys(self.filter) if options.feed else None
        self.grumble = Grumble()
        self.has_answered = False
        self.has_batches = True
        self.is_struck = False
        self.paused_until = 0.0
        self.load_s = 0.0

    def words(self, command: str, id: bytes, *rest: Word) -> list[Word]:
        return [command, self.filter, id, self.prefix + id, *rest]

    def stale_ms(self) -> int:
        """Returns the STALE of a fetch: one caller refreshes a value with less than this to live.

        A value with less than `fail_safe` left is due. Before that, it is renewed with a probability that grows as its end
        approaches, and the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache
        Stampede Prevention", VLDB 2015, figure 3."""
        early_s = self.load_s * self.options.beta * -math.log(1 - random.random())
        return min(ANY_AGE_MS, self.options.fail_safe_ms + round(early_s * 1000))

    def fetch_options(self, stale_ms: int) -> list[Word]:
        stale: list[Word] = ["STALE", stale_ms] if stale_ms else []
        feed: list[Word] = ["WHILE", self.feed.heartbeat, "UNLESS", self.feed.in_flight] if self.feed is not None else []
        return ["LEASE", self.lease_ms, *stale, *feed]

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
        marks = self.near.begin(self.prefix + id for id in ids) if self.near is not None else {}
        try:
            if self.has_batches and len(ids) > 1 and not replace:
                answers = yield from self.fetch_together(ids, stale_ms)
            if not answers:
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
        """Sends one BF.MFETCH, or a few. Returns nothing if this client cannot use the command."""
        groups = [(stale_ms, ids)] if stale_ms is not None else self.stale_groups(ids)
        order = [id for _, group in groups for id in group]
        calls = []
        for group_ms, group in groups:
            pairs = [word for id in group for word in (id, self.prefix + id)]
            words = ["BF.MFETCH", self.filter, *self.fetch_options(group_ms), "ITEMS", *pairs]
            calls.append(Call(words, parse_mfetch))

        def answers(found: list[Any]) -> list[Any]:
            pairs = zip(groups, found, strict=True)
            return [answer for (_, group), one in pairs for answer in spread(one, len(group))]

        found = yield Ask(calls, lambda found: self.unneeded(order, answers(found)))
        if any(is_unavailable(one) for one in found):
            self.has_batches = False
            return []
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
            drawn, group = groups.setdefault((drawn_ms - self.options.fail_safe_ms).bit_length(), ([], []))
            drawn.append(drawn_ms)
            group.append(id)
        return [(sum(drawn) // len(drawn), group) for drawn, group in groups.values()]

    def fetch_call(self, id: bytes, stale_ms: int | None = None, wait: Sequence[Word] = ()) -> Call[Fetched]:
        """Returns the BF.FETCH of a row."""
        options = self.fetch_options(self.stale_ms() if stale_ms is None else stale_ms)
        return Call(self.words("BF.FETCH", id, *options, *wait), parse_fetch)

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

        ask = Ask(calls, lambda found: self.unneeded(ids, fetched(found)), finished, wait_ms / 1000)
        return fetched((yield ask))

    def unneeded(self, ids: Sequence[bytes], answers: list[Any]) -> Sequence[Call[Any]]:
        """Returns the commands that give up the leases in some answers."""
        pairs = zip(ids, answers, strict=True)
        return self.give_up({id: one.token for id, one in pairs if isinstance(one, Fetched) and one.token}).calls

    def fill(self, id: bytes, token: bytes, *rest: Word) -> Call[bool]:
        return Call(self.words("BF.FILL", id, token, *rest), parse_fill)

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
        return self.fill(id, token, "VALUE", data, "PX", fresh_ms + self.options.fail_safe_ms)

    def give_up(self, tokens: Mapping[bytes, bytes]) -> Ask:
        """Ends leases, so that other callers may load."""
        return Ask([self.fill(id, token, "GIVEUP") for id, token in tokens.items()], nothing_to_undo)

    def send_fills(self, tokens: Mapping[bytes, bytes], fills: Sequence[Call[bool]]) -> Generator[Ask, Any, None]:
        """Sends the fills of some leases together. Gives up what the server refuses, because it is out of memory for instance:
        nobody should wait until those leases end."""

        def refused(outcomes: list[Any]) -> dict[bytes, bytes]:
            pairs = zip(tokens.items(), outcomes, strict=True)
            return dict(lease for lease, outcome in pairs if isinstance(outcome, Exception))

        outcomes = yield Ask(fills, lambda outcomes: self.give_up(refused(outcomes)).calls)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.failed(outcome)
            else:
                self.count("filled" if outcome else "lease_lost")
        if (given_up := refused(outcomes)) and not self.is_struck:
            yield self.give_up(given_up)

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

    def failed(self, error: Exception) -> None:
        self.count("errors")
        self.is_struck = type(error).__name__ == "TimeoutError"
        if self.is_struck:
            self.paused_until = time.monotonic() + PAUSE_S
        self.grumble.about("the server could not be asked", error)
