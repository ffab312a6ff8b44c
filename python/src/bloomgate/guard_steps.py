"""The guard's protocol (docs/guard.md), for `bloomgate.Guard` and `bloomgate.asyncio.Guard` alike."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic

from .codec import Codec, V
from .errors import Unconfirmed
from .guard_words import Fetched, GuardOptions, cache_prefix, milliseconds, parse_fetch, parse_fill
from .items import Item, Key, item_bytes
from .log import Grumble
from .steps import Ask, Call, Do, Sleep, Steps
from .words import Word

REPEAT_S = 0.1
"""How long a confirmation waits before it is repeated."""

BATCH = 500
"""Ids that are fetched together."""


class GuardSteps(Generic[V]):
    """Readers and writers of one table."""

    def __init__(self, filter: Key, codec: Codec[V], options: GuardOptions) -> None:
        self.filter = item_bytes(filter)
        self.prefix = cache_prefix(self.filter) if options.prefix is None else item_bytes(options.prefix)
        self.codec = codec
        self.options = options
        self.counts: Counter[str] = Counter()
        self.grumble = Grumble()

    def words(self, command: str, id: bytes, *rest: Word) -> list[Word]:
        return [command, self.filter, id, self.prefix + id, *rest]

    def fetch(self, id: bytes, wait_ms: int) -> Call[Fetched]:
        rest: list[Word] = ["LEASE", self.options.lease_ms]
        if self.options.stale_ms:
            rest += ["STALE", self.options.stale_ms]
        if wait_ms > 0:
            rest += ["WAIT", wait_ms]
        return Call(self.words("BF.FETCH", id, *rest), parse_fetch)

    def fill(self, id: bytes, token: bytes, *rest: Word) -> Call[bool]:
        return Call(self.words("BF.FILL", id, token, *rest), parse_fill)

    def get(self, id: Item, load: Callable[[], Any], ttl: float | None) -> Steps[V | None]:
        key = item_bytes(id)
        ttl_ms = milliseconds("ttl", self.options.ttl if ttl is None else ttl)
        for _ in range(self.options.attempts):
            [found] = yield Ask([self.fetch(key, self.options.wait_ms)])
            if isinstance(found, Exception):
                self.failed(found)
                break
            self.counts[found.word] += 1
            if found.word == "absent":
                return None
            if found.word == "load":
                return (yield from self.load(key, found.token, load, ttl_ms))
            if found.word in ("hit", "stale"):
                known, value = self.decode(found.value)
                if found.word == "stale":
                    return (yield from self.refresh(key, found.token, load, ttl_ms, known, value))
                if known:
                    return value
                break
        # Nobody answers, or somebody else loads it and takes too long: the database is asked, and nothing is filled.
        self.counts["unguarded"] += 1
        loaded: V | None = yield Do(load)
        return loaded

    def load(self, id: bytes, token: bytes, load: Callable[[], Any], ttl_ms: int) -> Steps[V | None]:
        """We hold the token: loads, and fills or gives up."""
        try:
            value: V | None = yield Do(load)
            call = self.fill_with(id, token, value, ttl_ms)
        except BaseException:
            yield Ask([self.fill(id, token, "GIVEUP")])
            raise
        yield from self.send_fills([(id, token, call)])
        return value

    def refresh(
        self, id: bytes, token: bytes, load: Callable[[], Any], ttl_ms: int, known: bool, value: V | None
    ) -> Steps[V | None]:
        """As `load`; where it fails, the value that lives a little longer is right."""
        try:
            return (yield from self.load(id, token, load, ttl_ms))
        except Exception as error:
            if not known:
                raise
            self.counts["stale served"] += 1
            self.grumble.about("a stale value could not be refreshed and was served", error)
            return value

    def fill_with(self, id: bytes, token: bytes, value: V | None, ttl_ms: int) -> Call[bool]:
        if value is None:
            return self.fill(id, token, "NONE", "PX", milliseconds("absent_ttl", self.options.absent_ttl))
        return self.fill(id, token, "VALUE", self.codec.encode(value), "PX", ttl_ms)

    def send_fills(self, fills: Sequence[tuple[bytes, bytes, Call[bool]]]) -> Generator[Ask, Any, None]:
        """Fills, and gives up what the server would not take (it is out of memory, say), so that nobody waits for it."""
        for start in range(0, len(fills), BATCH):
            part = fills[start : start + BATCH]
            filled = yield Ask([call for _, _, call in part])
            refused = []
            for (id, token, _), answer in zip(part, filled, strict=True):
                if isinstance(answer, Exception):
                    self.failed(answer)
                    refused.append(self.fill(id, token, "GIVEUP"))
                else:
                    self.counts["filled" if answer else "lease lost"] += 1
            if refused:
                yield Ask(refused)

    def get_many(
        self, ids: Iterable[Item], load_many: Callable[[list[Any]], Any], ttl: float | None
    ) -> Steps[dict[Any, V | None]]:
        # Ids that are written in the same bytes, such as 7 and "7", name one row, which is loaded by the first of them.
        asked: dict[Any, bytes] = {id: item_bytes(id) for id in ids}
        given: dict[bytes, Any] = {}
        for id, key in asked.items():
            given.setdefault(key, id)
        ttl_ms = milliseconds("ttl", self.options.ttl if ttl is None else ttl)
        rows: dict[bytes, V | None] = {}
        left = list(given)
        deadline = time.monotonic() + self.options.wait_ms / 1000
        alone: list[bytes] = []
        while left:
            waiting: list[bytes] = []
            tokens: dict[bytes, bytes] = {}
            for start in range(0, len(left), BATCH):
                part = left[start : start + BATCH]
                found = yield Ask([self.fetch(id, 0) for id in part])
                for id, answer in zip(part, found, strict=True):
                    self.sort(id, answer, rows, tokens, waiting, alone)
            yield from self.load_tokens(tokens, given, load_many, ttl_ms, rows)
            left = yield from self.wait_for_one(waiting, deadline, given, load_many, ttl_ms, rows)
            if left and time.monotonic() >= deadline:
                alone += left
                break
        if alone:
            self.counts["unguarded"] += len(alone)
            loaded: Mapping[Any, V] = yield Do(lambda: load_many([given[id] for id in alone]))
            rows.update({id: loaded.get(given[id]) for id in alone})
        return {id: rows[key] for id, key in asked.items()}

    def sort(
        self,
        id: bytes,
        answer: Any,
        rows: dict[bytes, V | None],
        tokens: dict[bytes, bytes],
        waiting: list[bytes],
        alone: list[bytes],
    ) -> None:
        """Puts an id where its answer belongs."""
        if isinstance(answer, Exception):
            self.failed(answer)
            alone.append(id)
            return
        self.counts[answer.word] += 1
        if answer.word == "absent":
            rows[id] = None
        elif answer.word in ("load", "stale"):
            tokens[id] = answer.token
        elif answer.word == "wait":
            waiting.append(id)
        else:
            known, value = self.decode(answer.value)
            if known:
                rows[id] = value
            else:
                alone.append(id)

    def load_tokens(
        self,
        tokens: dict[bytes, bytes],
        given: dict[bytes, Any],
        load_many: Callable[[list[Any]], Any],
        ttl_ms: int,
        rows: dict[bytes, V | None],
    ) -> Steps[None]:
        if not tokens:
            return
        try:
            loaded: Mapping[Any, V] = yield Do(lambda: load_many([given[id] for id in tokens]))
            found = {id: loaded.get(given[id]) for id in tokens}
            fills = [(id, token, self.fill_with(id, token, found[id], ttl_ms)) for id, token in tokens.items()]
        except BaseException:
            yield Ask([self.fill(id, token, "GIVEUP") for id, token in tokens.items()])
            raise
        yield from self.send_fills(fills)
        rows.update(found)

    def wait_for_one(
        self,
        waiting: list[bytes],
        deadline: float,
        given: dict[bytes, Any],
        load_many: Callable[[list[Any]], Any],
        ttl_ms: int,
        rows: dict[bytes, V | None],
    ) -> Steps[list[bytes]]:
        """Waits inside the server for the first of those that others load; by then most of the rest is there, too."""
        left_ms = int((deadline - time.monotonic()) * 1000)
        if not waiting or left_ms <= 0:
            return waiting
        first, rest = waiting[0], waiting[1:]
        [found] = yield Ask([self.fetch(first, left_ms)])
        again: list[bytes] = []
        alone: list[bytes] = []
        tokens: dict[bytes, bytes] = {}
        self.sort(first, found, rows, tokens, again, alone)
        yield from self.load_tokens(tokens, given, load_many, ttl_ms, rows)
        if alone:
            loaded: Mapping[Any, V] = yield Do(lambda: load_many([given[first]]))
            rows[first] = loaded.get(given[first])
        return again + rest

    def announce(self, ids: Sequence[Item]) -> Steps[None]:
        """The first call of a writer: all or an error."""
        for outcome in (yield from self.changed([item_bytes(id) for id in ids])):
            if isinstance(outcome, Exception):
                raise outcome

    def confirm(self, ids: Sequence[Item]) -> Steps[None]:
        """The second call: repeated until every id is answered, for as long as was allowed."""
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
        """BF.CHANGED of each id, to the filters that are being filled first. An outcome for each id."""
        outcomes: list[Any] = []
        filters = [*(item_bytes(name) for name in self.options.announce_to), self.filter]
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            calls: list[Call[Any]] = [Call(["BF.CHANGED", name, id, self.prefix + id]) for id in part for name in filters]
            if self.options.replicas:
                calls.append(Call(["WAIT", self.options.replicas, self.options.replicas_timeout_ms], int))
            found = yield Ask(calls)
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
        for start in range(0, len(ids), BATCH):
            part = [item_bytes(id) for id in ids[start : start + BATCH]]
            [answers] = yield Ask([Call(["BF.MDEL", self.filter, *part])])
            errors = answers if isinstance(answers, list) else [answers]
            for answer in errors:
                if isinstance(answer, Exception):
                    raise answer

    def decode(self, data: bytes) -> tuple[bool, V | None]:
        """Whether the codec could read the value, and the value."""
        try:
            return True, self.codec.decode(data)
        except Exception as error:
            self.counts["undecodable"] += 1
            self.grumble.about("a cached value could not be decoded", error)
            return False, None

    def failed(self, error: Exception) -> None:
        self.counts["errors"] += 1
        self.grumble.about("the server did not answer", error)
