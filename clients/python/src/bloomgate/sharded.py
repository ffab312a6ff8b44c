"""A filter in many shards, each in a slot of its own, so that the nodes of a cluster share its memory and its load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from .errors import BloomgateError
from .items import Item, Key, Window, item_bytes, refuse_single, windows
from .replies import Info
from .sharded_steps import ShardedSteps, create_steps
from .steps import Client, Steps, client_error, drive
from .words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class ShardedFilter:
    """A sharded filter that exists. It is opened by `open`, or by the first call, which then raises FilterMissing if there is none
    with this name, and ShardMissing if one of its shards is missing, as does every call that needs that shard. It works with the
    clients of clusters and of single servers. A batch goes to all shards in parallel.

    Every call also reads the number of shards, and raises ShardsChanged if it was doubled: then open the filter again."""

    def __init__(self, client: Client, name: Key) -> None:
        self.client = client
        self._error = client_error(client)
        self._steps = ShardedSteps(name, 0)

    @classmethod
    def open(cls, client: Client, name: Key) -> ShardedFilter:
        """Opens a sharded filter that exists."""
        filter = cls(client, name)
        filter.reopen()
        return filter

    @classmethod
    def create(
        cls, client: Client, name: Key, rate: float, capacity: int, shards: int, *, resume: bool = False, **words: Unpack[Words]
    ) -> ShardedFilter:
        """Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations.
        Filters that are to be merged need the same `seed`. Raises FilterExists if there is one with this name; `resume`
        completes a creation that was interrupted. Do not use `resume` to replace a lost shard: the new shard would deny the
        items of the lost one."""
        drive(client, client_error(client), create_steps(name, rate, capacity, shards, resume, words))
        return cls.open(client, name)

    def __repr__(self) -> str:
        return f"ShardedFilter({self.name!r}, shards={self.shards})"

    @property
    def name(self) -> Key:
        return self._steps.name

    @property
    def shards(self) -> int:
        """The number of shards; 0 before the filter is opened."""
        return self._steps.shards

    @property
    def keys(self) -> list[bytes]:
        """The keys of the shards in order."""
        return self._steps.keys

    def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it is certainly new."""
        [answer] = self._run(self._steps.add_window([[item_bytes(item)]]))
        return answer

    def add_many(self, items: Iterable[Item]) -> list[bool]:
        """Adds any number of items. Returns the answers in the order of the items."""
        return self._many(items, self._steps.add_window)

    def add_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `add_many`, but returns an iterator of the answers. Items whose answers are not consumed are not added."""
        return self._each(items, self._steps.add_window)

    def exists(self, item: Item) -> bool:
        """Returns False if the item is certainly not in the filter."""
        [answer] = self._run(self._steps.exists_window([[item_bytes(item)]]))
        return answer

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)

    def exists_many(self, items: Iterable[Item]) -> list[bool]:
        """Looks up any number of items."""
        return self._many(items, self._steps.exists_window)

    def exists_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    def delete_many(self, items: Iterable[Item]) -> list[bool]:
        """Deletes items; the shards need `hash="siphash"` or `counting`."""
        return self._many(items, self._steps.delete_window)

    def card(self) -> int:
        """Returns the number of items in all shards."""
        return self._run(self._steps.card())

    def infos(self) -> list[Info]:
        """Returns BF.INFO of each shard in order."""
        return self._run(self._steps.infos())

    def info(self) -> Info:
        """Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers."""
        infos = self.infos()
        deepest = max(infos, key=lambda info: info.layers)
        return Info(
            capacity=sum(info.capacity for info in infos),
            size_bytes=sum(info.size_bytes for info in infos),
            layers=deepest.layers,
            items=sum(info.items for info in infos),
            expansion=deepest.expansion,
        )

    def verify(self) -> None:
        """Raises ShardMissing if a shard is missing."""
        self._run(self._steps.verify())

    def reopen(self) -> None:
        """Reads the number of shards again."""
        drive(self.client, self._error, self._steps.open())

    def clear(self) -> None:
        """Empties all shards."""
        self._run(self._steps.clear())

    def drop(self) -> None:
        """Deletes all shards and their number."""
        self._run(self._steps.drop())

    def merge_into(self, destination: Key) -> None:
        """Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Raises ValueError if
        it has another number of shards. Both need the same rate, capacity and seed."""
        self._run(self._steps.merge_into(destination))

    def double(self) -> None:
        """Doubles the number of shards by copying each (BF.SCANDUMP). No item is denied. Nobody may add meanwhile: an item that
        is added to a shard after it was copied would be denied. The copies keep the items of both halves, so the shards are
        as full as before, and the new room is for new items."""
        self._run(self._steps.double())

    def _run(self, steps: Steps[T]) -> T:
        return drive(self.client, self._error, self._steps.opened(steps))

    def _each(self, items: Iterable[Item], steps: Callable[[Window], Steps[list[bool]]]) -> Iterator[bool]:
        refuse_single(items)
        return (answer for window in windows(items) for answer in self._run(steps(window)))

    def _many(self, items: Iterable[Item], steps: Callable[[Window], Steps[list[bool]]]) -> list[bool]:
        answers: list[bool] = []
        try:
            for window in windows(items):
                answers += self._run(steps(window))
        except BloomgateError as error:
            error.answers = [*answers, *error.answers]
            raise
        return answers
