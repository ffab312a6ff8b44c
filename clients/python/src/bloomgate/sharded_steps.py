"""The operations of a sharded filter, for threads and asyncio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .errors import BloomgateError, FilterExists, FilterMissing, ShardMissing, ShardsChanged, named
from .filter_steps import LONG_S, collect, nothing, with_answers
from .items import Key, Window, windows
from .replies import Info, parse_info
from .sharding import check_shards, count_key, shard_capacity, shard_key, shard_of
from .steps import Ask, Call, Steps, same
from .words import Word, Words, creation_words

T = TypeVar("T")

TOGETHER = 256
"""The most shards that get a small command each together."""


def in_order(order: list[int], answers: Sequence[T]) -> list[T]:
    """Returns the answers by position: `order` has the position of each."""
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]


def first_error(found: Sequence[Any], keys: Sequence[bytes]) -> None:
    for key, outcome in zip(keys, found, strict=True):
        if isinstance(outcome, Exception):
            raise named(outcome, key)


def read_count(name: Key) -> Steps[int | None]:
    """Returns the number of shards, or None if there is no such sharded filter."""
    [found] = yield Ask([Call(["GET", count_key(name)])])
    if isinstance(found, Exception):
        raise found
    if found is None:
        return None
    try:
        return check_shards(int(found))
    except ValueError:
        raise BloomgateError(f"{count_key(name)!r} holds {found!r}, which is no number of shards") from None


def create_steps(name: Key, rate: float, capacity: int, shards: int, resume: bool, words: Words) -> Steps[None]:
    check_shards(shards)
    reserve: list[Word] = [rate, shard_capacity(capacity, shards), *creation_words(words)]
    [new] = yield Ask([Call(["SET", count_key(name), shards, "NX"], bool)])
    if isinstance(new, Exception):
        raise new
    if not new:
        there = yield from read_count(name)
        if not resume or there != shards:
            raise FilterExists(f"{name!r}: there is a sharded filter of {there} shards")
    keys = [shard_key(name, shard) for shard in range(shards)]
    for start in range(0, shards, TOGETHER):
        part = keys[start : start + TOGETHER]
        found = yield Ask([Call(["BF.RESERVE", key, *reserve], nothing) for key in part])
        if resume:
            found = [None if isinstance(one, Exception) and "item exists" in str(one) else one for one in found]
        first_error(found, part)


class ShardedSteps:
    """The operations of a sharded filter. Its number of shards is 0 until it is open."""

    def __init__(self, name: Key, shards: int) -> None:
        self.name = name
        self.shards = shards

    @property
    def keys(self) -> list[bytes]:
        return [shard_key(self.name, shard) for shard in range(self.shards)]

    def open(self) -> Steps[None]:
        """Reads the number of shards, and checks that none is missing."""
        found = yield from read_count(self.name)
        if found is None:
            raise FilterMissing(f"{self.name!r}: there is no such sharded filter")
        self.shards = found
        yield from self.verify()

    def opened(self, steps: Steps[T]) -> Steps[T]:
        """Opens the filter before its first operation, which has not begun yet."""
        if not self.shards:
            yield from self.open()
        return (yield from steps)

    def verify(self) -> Steps[None]:
        there = yield from self.each(lambda key: Call(["EXISTS", key], bool))
        missing = [key for key, is_there in zip(self.keys, there, strict=True) if not is_there]
        if missing:
            raise ShardMissing(f"{len(missing)} of {self.shards} shards are missing, the first is {missing[0]!r}")

    def each(self, call: Callable[[bytes], Call[T]]) -> Steps[list[T]]:
        """Sends one command for every shard."""
        results: list[T] = []
        keys = self.keys
        for start in range(0, len(keys), TOGETHER):
            part = keys[start : start + TOGETHER]
            found = yield Ask([call(key) for key in part])
            first_error(found, part)
            results += found
        return results

    def add_window(self, window: Window) -> Steps[list[bool]]:
        return self.batch(["BF.INSERT"], ["NOCREATE", "ITEMS"], window, False)

    def exists_window(self, window: Window) -> Steps[list[bool]]:
        return self.batch(["BF.MEXISTS"], [], window, True)

    def delete_window(self, window: Window) -> Steps[list[bool]]:
        return self.batch(["BF.MDEL"], [], window, True)

    def batch(self, before: list[Word], after: list[Word], window: Window, look: bool) -> Steps[list[bool]]:
        """Sends each item to its shard, to all shards in parallel. `look` checks that the shards exist, for commands that do
        not fail without them. The number of shards is read again with every batch."""
        items = [item for chunk in window for item in chunk]
        groups: dict[int, list[int]] = {}
        for position, item in enumerate(items):
            groups.setdefault(shard_of(item, self.shards), []).append(position)
        calls: list[Call[Any]] = []
        chunks: Window = []
        for shard, positions in groups.items():
            key = shard_key(self.name, shard)
            for part in windows(items[position] for position in positions):
                for chunk in part:
                    chunks.append(chunk)
                    calls.append(Call([*before, key, *after, *chunk]))
        guards = [Call(["EXISTS", shard_key(self.name, shard)], bool) for shard in groups] if look else []
        found = yield Ask([*calls, *guards, Call(["GET", count_key(self.name)], same)])
        order = [position for positions in groups.values() for position in positions]
        try:
            return in_order(order, self.read_batch(found, chunks, list(groups), look))
        except BloomgateError as error:
            error.answers = in_order(order, error.answers or [None] * len(order))
            raise

    def read_batch(self, found: list[Any], chunks: Window, shards: list[int], look: bool) -> list[bool]:
        *replies, count = found
        presence = replies[len(chunks) :] if look else []
        for shard, is_there in zip(shards, presence, strict=look):
            key = shard_key(self.name, shard)
            if isinstance(is_there, Exception):
                raise is_there
            if not is_there:
                raise ShardMissing(f"{key!r}: this shard is missing")
        answers, trouble = collect(chunks, replies[: len(chunks)])
        if trouble is not None:
            error = with_answers(trouble, self.name, answers)
            if isinstance(error, FilterMissing):
                missing = ShardMissing(f"{self.name!r}: a shard is missing")
                missing.answers = error.answers
                raise missing from trouble
            raise error
        if isinstance(count, Exception):
            raise count
        if count is None or int(count) != self.shards:
            raise ShardsChanged(f"{self.name!r} was opened with {self.shards} shards and has {count!r} now: open it again")
        return [bool(answer) for answer in answers]

    def card(self) -> Steps[int]:
        """Sums BF.CARD, which answers 0 for a missing key: so the shards are checked first."""
        yield from self.verify()
        return sum((yield from self.each(lambda key: Call(["BF.CARD", key], int))))

    def infos(self) -> Steps[list[Info]]:
        return self.each(lambda key: Call(["BF.INFO", key], parse_info))

    def clear(self) -> Steps[None]:
        yield from self.each(lambda key: Call(["BF.CLEAR", key], nothing))

    def drop(self) -> Steps[None]:
        """Deletes the count first: without it the filter cannot be opened."""
        [found] = yield Ask([Call(["UNLINK", count_key(self.name)], nothing)])
        first_error([found], [count_key(self.name)])
        yield from self.each(lambda key: Call(["UNLINK", key], nothing))

    def merge_into(self, destination: Key) -> Steps[None]:
        yield from self.verify()
        [new] = yield Ask([Call(["SET", count_key(destination), self.shards, "NX"], bool)])
        if isinstance(new, Exception):
            raise new
        if not new:
            other = ShardedSteps(destination, 0)
            yield from other.open()
            if other.shards != self.shards:
                raise ValueError(f"{destination!r} has {other.shards} shards, {self.name!r} has {self.shards}")
        for start in range(0, self.shards, TOGETHER):
            part = [(shard_key(destination, i), shard_key(self.name, i)) for i in range(self.shards)[start : start + TOGETHER]]
            found = yield Ask([Call(["BF.MERGE", to, origin], nothing) for to, origin in part], wait_s=LONG_S)
            first_error(found, [to for to, _ in part])

    def double(self) -> Steps[None]:
        """Copies shard i to i + n, record by record, and then sets the number. Copies of an interrupted attempt are made again:
        nobody uses them before the number is set."""
        yield from self.verify()
        for shard in range(self.shards):
            source, copy = shard_key(self.name, shard), shard_key(self.name, shard + self.shards)
            yield from run(["UNLINK", copy])
            iterator = 0
            while True:
                record = yield from run(["BF.SCANDUMP", source, iterator])
                iterator, data = int(record[0]), bytes(record[1])
                if iterator == 0:
                    break
                yield from run(["BF.LOADCHUNK", copy, iterator, data])
        yield from run(["SET", count_key(self.name), 2 * self.shards])
        self.shards *= 2


def run(words: list[Word]) -> Steps[Any]:
    [found] = yield Ask([Call(words)], wait_s=LONG_S)
    if isinstance(found, Exception):
        raise named(found, words[1])
    return found
