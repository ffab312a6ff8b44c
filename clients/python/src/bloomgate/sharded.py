"""A filter in many shards, each in its own slot, which spread memory and load over the nodes of a cluster. docs/sharding.md
specifies it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .creation import CreationOptions, Word, creation_words
from .errors import BloomgateError, FilterExists, FilterMissing, ShardMissing, ShardsChanged, named
from .filter import LONG_S, collect, nothing, with_answers
from .flavours import Batches, ThreadBatches, method, single
from .items import Item, Key, Window, item_bytes, windows
from .replies import Info, parse_info
from .steps import Ask, Call, Client, Steps, client_error, drive, same, send

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")
T = TypeVar("T")

MOST_SHARDS = 16384


def shard_of(item: bytes, shards: int) -> int:
    """Returns the shard of an item: the CRC-32 of its bytes (ISO 3309, as in zlib) modulo the number of shards."""
    return zlib.crc32(item) % shards


def shard_key(name: Key, shard: int) -> bytes:
    return b"%b:{%d}" % (item_bytes(name), shard)


def count_key(name: Key) -> bytes:
    return b"%b:shards" % item_bytes(name)


def shard_capacity(capacity: int, shards: int) -> int:
    """Returns the capacity of one shard: its part plus four standard deviations, so that shards do not fill early by
    chance."""
    part = capacity / shards
    return math.ceil(part + 4 * math.sqrt(part))


def check_shards(shards: int) -> int:
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"a sharded filter must have 1 to {MOST_SHARDS} shards, not {shards!r}")
    return shards


TOGETHER = 256
"""The maximum number of shards to which small commands of one batch are sent at a time."""


def in_order(order: list[int], answers: Sequence[T]) -> list[T]:
    """Returns the answers sorted by their positions, which `order` lists."""
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]


def first_error(found: Sequence[Any], keys: Sequence[bytes]) -> None:
    for key, outcome in zip(keys, found, strict=True):
        if isinstance(outcome, Exception):
            raise named(outcome, key)


def read_count(name: Key) -> Steps[int | None]:
    """Returns the number of shards, or None if the sharded filter does not exist."""
    found: Any = yield from send(Call(["GET", count_key(name)]))
    if found is None:
        return None
    try:
        return check_shards(int(found))
    except ValueError:
        raise BloomgateError(f"{count_key(name)!r} holds {found!r}, which is not a number of shards") from None


def create_steps(name: Key, rate: float, capacity: int, shards: int, resume: bool, words: CreationOptions) -> Steps[None]:
    check_shards(shards)
    reserve: list[Word] = [rate, shard_capacity(capacity, shards), *creation_words(words)]
    if not (yield from send(Call(["SET", count_key(name), shards, "NX"], bool))):
        there = yield from read_count(name)
        if not resume or there != shards:
            raise FilterExists(f"{name!r}: the sharded filter already exists, with {there} shards")
    keys = [shard_key(name, shard) for shard in range(shards)]
    for start in range(0, shards, TOGETHER):
        part = keys[start : start + TOGETHER]
        found = yield Ask([Call(["BF.RESERVE", key, *reserve], nothing) for key in part])
        if resume:
            found = [None if isinstance(one, Exception) and "item exists" in str(one) else one for one in found]
        first_error(found, part)


class ShardedMethods(Batches):
    """The calls of a sharded filter that threads and tasks share. The number of shards is 0 until it is open."""

    def __init__(self, name: Key, shards: int = 0) -> None:
        self.name = name
        self.shards = shards

    def __repr__(self) -> str:
        return f"ShardedFilter({self.name!r}, shards={self.shards})"

    @property
    def keys(self) -> list[bytes]:
        """The keys of the shards in order."""
        return [shard_key(self.name, shard) for shard in range(self.shards)]

    def _prepared(self, steps: Steps[R]) -> Steps[R]:
        """Opens the filter before its first operation."""
        if not self.shards:
            yield from self._open()
        return (yield from steps)

    def _open(self) -> Steps[None]:
        """Reads the number of shards, and checks that every shard exists."""
        found = yield from read_count(self.name)
        if found is None:
            raise FilterMissing(f"{self.name!r}: there is no such sharded filter")
        self.shards = found
        yield from self._verify()

    def _verify(self) -> Steps[None]:
        there = yield from self._each_shard(lambda key: Call(["EXISTS", key], bool))
        missing = [key for key, is_there in zip(self.keys, there, strict=True) if not is_there]
        if missing:
            raise ShardMissing(f"{len(missing)} of {self.shards} shards are missing, the first is {missing[0]!r}")

    def _each_shard(self, call: Callable[[bytes], Call[T]]) -> Steps[list[T]]:
        """Sends one command to every shard."""
        results: list[T] = []
        keys = self.keys
        for start in range(0, len(keys), TOGETHER):
            part = keys[start : start + TOGETHER]
            found = yield Ask([call(key) for key in part])
            first_error(found, part)
            results += found
        return results

    def _add_window(self, window: Window) -> Steps[list[bool]]:
        return self._batch(["BF.INSERT"], ["NOCREATE", "ITEMS"], window, False)

    def _exists_window(self, window: Window) -> Steps[list[bool]]:
        return self._batch(["BF.MEXISTS"], [], window, True)

    def _delete_window(self, window: Window) -> Steps[list[bool]]:
        return self._batch(["BF.MDEL"], [], window, True)

    def _batch(self, before: list[Word], after: list[Word], window: Window, must_exist: bool) -> Steps[list[bool]]:
        """Sends each item to its shard, to all shards in parallel. `must_exist` checks that the shards exist, for commands
        that do not fail on a missing key. Every batch reads the number of shards again."""
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
        guards = [Call(["EXISTS", shard_key(self.name, shard)], bool) for shard in groups] if must_exist else []
        found = yield Ask([*calls, *guards, Call(["GET", count_key(self.name)], same)])
        order = [position for positions in groups.values() for position in positions]
        try:
            return in_order(order, self._read_batch(found, chunks, list(groups), must_exist))
        except BloomgateError as error:
            error.answers = in_order(order, error.answers or [None] * len(order))
            raise

    def _read_batch(self, found: list[Any], chunks: Window, shards: list[int], must_exist: bool) -> list[bool]:
        *replies, count = found
        presence = replies[len(chunks) :] if must_exist else []
        for shard, is_there in zip(shards, presence, strict=must_exist):
            key = shard_key(self.name, shard)
            if isinstance(is_there, Exception):
                raise is_there
            if not is_there:
                raise ShardMissing(f"{key!r}: this shard is missing")
        answers, failure = collect(chunks, replies[: len(chunks)])
        if failure is not None:
            error = with_answers(failure, self.name, answers)
            if isinstance(error, FilterMissing):
                missing = ShardMissing(f"{self.name!r}: a shard is missing")
                missing.answers = error.answers
                raise missing from failure
            raise error
        if isinstance(count, Exception):
            raise count
        if count is None or int(count) != self.shards:
            raise ShardsChanged(f"{self.name!r} was opened with {self.shards} shards and has {count!r} now: open it again")
        return [bool(answer) for answer in answers]

    @method
    def add(self, item: Item) -> Steps[bool]:
        """Adds an item. Returns True if it is certainly new."""
        return single(self._add_window([[item_bytes(item)]]))

    @method
    def exists(self, item: Item) -> Steps[bool]:
        """Returns False if the item is certainly not in the filter."""
        return single(self._exists_window([[item_bytes(item)]]))

    @method
    def card(self) -> Steps[int]:
        """Returns the number of items in all shards."""
        # BF.CARD of a missing key is 0.
        yield from self._verify()
        return sum((yield from self._each_shard(lambda key: Call(["BF.CARD", key], int))))

    @method
    def infos(self) -> Steps[list[Info]]:
        """Returns BF.INFO of each shard in order."""
        return self._infos()

    @method
    def info(self) -> Steps[Info]:
        """Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers."""
        infos = yield from self._infos()
        deepest = max(infos, key=lambda info: info.layers)
        return Info(
            capacity=sum(info.capacity for info in infos),
            size_bytes=sum(info.size_bytes for info in infos),
            layers=deepest.layers,
            items=sum(info.items for info in infos),
            expansion=deepest.expansion,
        )

    def _infos(self) -> Steps[list[Info]]:
        return self._each_shard(lambda key: Call(["BF.INFO", key], parse_info))

    @method
    def verify(self) -> Steps[None]:
        """Raises ShardMissing if a shard is missing."""
        return self._verify()

    @method
    def reopen(self) -> Steps[None]:
        """Reads the number of shards again."""
        return self._open()

    @method
    def clear(self) -> Steps[None]:
        """Empties all shards."""
        yield from self._each_shard(lambda key: Call(["BF.CLEAR", key], nothing))

    @method
    def drop(self) -> Steps[None]:
        """Deletes all shards and their number."""
        # Deletes the number first, so that the filter can no longer be opened.
        yield from send(Call(["UNLINK", count_key(self.name)]), count_key(self.name))
        yield from self._each_shard(lambda key: Call(["UNLINK", key], nothing))

    @method
    def merge_into(self, destination: Key) -> Steps[None]:
        """Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Raises ValueError
        if the numbers of shards differ. Both need the same rate, capacity and seed."""
        yield from self._verify()
        if not (yield from send(Call(["SET", count_key(destination), self.shards, "NX"], bool))):
            other = ShardedMethods(destination)
            yield from other._open()
            if other.shards != self.shards:
                raise ValueError(f"{destination!r} has {other.shards} shards, {self.name!r} has {self.shards}")
        for start in range(0, self.shards, TOGETHER):
            part = [(shard_key(destination, i), shard_key(self.name, i)) for i in range(self.shards)[start : start + TOGETHER]]
            found = yield Ask([Call(["BF.MERGE", to, origin], nothing) for to, origin in part], wait_s=LONG_S)
            first_error(found, [to for to, _ in part])

    @method
    def double(self) -> Steps[None]:
        """Doubles the number of shards by copying each (BF.SCANDUMP). No item is reported absent. Do not add items while it
        runs: an item that is added to a shard after it was copied would be reported absent. Each copy keeps the items of both
        halves, so the shards are as full as before, and only their further capacity is doubled."""
        # Copies of an interrupted attempt are replaced; they are not used before the number is set.
        yield from self._verify()
        for shard in range(self.shards):
            source, copy = shard_key(self.name, shard), shard_key(self.name, shard + self.shards)
            yield from send(Call(["UNLINK", copy]), copy)
            iterator = 0
            while True:
                record: Any = yield from send(Call(["BF.SCANDUMP", source, iterator]), source, LONG_S)
                iterator, data = int(record[0]), bytes(record[1])
                if iterator == 0:
                    break
                yield from send(Call(["BF.LOADCHUNK", copy, iterator, data]), copy, LONG_S)
        yield from send(Call(["SET", count_key(self.name), 2 * self.shards]), count_key(self.name))
        self.shards *= 2


class ShardedFilter(ShardedMethods, ThreadBatches):
    """An existing sharded filter. It is opened by `open` or by the first call, which raises FilterMissing if no filter has
    this name, and ShardMissing if one of its shards is missing. Every later call that needs a missing shard raises
    ShardMissing, too. It works with the clients of clusters and of single servers. A batch goes to all shards in parallel.

    Every call also reads the number of shards, and raises ShardsChanged if it was doubled; the filter must then be opened
    again."""

    def __init__(self, client: Client, name: Key) -> None:
        ThreadBatches.__init__(self, client)
        ShardedMethods.__init__(self, name)

    @classmethod
    def open(cls, client: Client, name: Key) -> ShardedFilter:
        """Opens an existing sharded filter."""
        filter = cls(client, name)
        drive(client, filter._error, filter._open())
        return filter

    @classmethod
    def create(
        cls,
        client: Client,
        name: Key,
        rate: float,
        capacity: int,
        shards: int,
        *,
        resume: bool = False,
        **words: Unpack[CreationOptions],
    ) -> ShardedFilter:
        """Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations.
        Filters that are to be merged need the same `seed`. Raises FilterExists if a filter with this name exists; `resume`
        completes an interrupted creation. Do not use `resume` to replace a lost shard: its items would be reported absent."""
        drive(client, client_error(client), create_steps(name, rate, capacity, shards, resume, words))
        return cls.open(client, name)

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)
