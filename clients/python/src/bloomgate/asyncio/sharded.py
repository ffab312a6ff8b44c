"""A filter in many shards, for asyncio. The methods are those of `bloomgate.ShardedFilter`, which documents them; `await
ShardedFilter.open(client, name)` opens a filter."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ..errors import BloomgateError
from ..items import Item, Key, Window, async_windows, item_bytes, refuse_single
from ..replies import Info
from ..sharded_steps import ShardedSteps, create_steps
from ..steps import AsyncClient, Steps, adrive, client_error
from ..words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Items = Iterable[Item] | AsyncIterable[Item]


class ShardedFilter:
    """A sharded filter that exists. It is opened by `open`, or by the first call, which then raises FilterMissing if there is none
    with this name, and ShardMissing if one of its shards is missing, as does every call that needs that shard. It works with the
    clients of clusters and of single servers. A batch goes to all shards in parallel.

    Every call also reads the number of shards, and raises ShardsChanged if it was doubled: then open the filter again."""

    def __init__(self, client: AsyncClient, name: Key) -> None:
        self.client = client
        self._error = client_error(client, is_async=True)
        self._steps = ShardedSteps(name, 0)

    @classmethod
    async def open(cls, client: AsyncClient, name: Key) -> ShardedFilter:
        """Opens a sharded filter that exists."""
        filter = cls(client, name)
        await filter.reopen()
        return filter

    @classmethod
    async def create(
        cls,
        client: AsyncClient,
        name: Key,
        rate: float,
        capacity: int,
        shards: int,
        *,
        resume: bool = False,
        **words: Unpack[Words],
    ) -> ShardedFilter:
        """Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations.
        Filters that are to be merged need the same `seed`. Raises FilterExists if there is one with this name; `resume`
        completes a creation that was interrupted. Do not use `resume` to replace a lost shard: the new shard would deny the
        items of the lost one."""
        await adrive(client, client_error(client, is_async=True), create_steps(name, rate, capacity, shards, resume, words))
        return await cls.open(client, name)

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

    async def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it is certainly new."""
        [answer] = await self._run(self._steps.add_window([[item_bytes(item)]]))
        return answer

    async def add_many(self, items: Items) -> list[bool]:
        """Adds any number of items. Returns the answers in the order of the items."""
        return await self._many(items, self._steps.add_window)

    def add_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `add_many`, but returns an iterator of the answers. Items whose answers are not consumed are not added."""
        return self._each(items, self._steps.add_window)

    async def exists(self, item: Item) -> bool:
        """Returns False if the item is certainly not in the filter."""
        [answer] = await self._run(self._steps.exists_window([[item_bytes(item)]]))
        return answer

    async def exists_many(self, items: Items) -> list[bool]:
        """Looks up any number of items."""
        return await self._many(items, self._steps.exists_window)

    def exists_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    async def delete_many(self, items: Items) -> list[bool]:
        """Deletes items; the shards need `hash="siphash"` or `counting`."""
        return await self._many(items, self._steps.delete_window)

    async def card(self) -> int:
        """Returns the number of items in all shards."""
        return await self._run(self._steps.card())

    async def infos(self) -> list[Info]:
        """Returns BF.INFO of each shard in order."""
        return await self._run(self._steps.infos())

    async def info(self) -> Info:
        """Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers."""
        infos = await self.infos()
        deepest = max(infos, key=lambda info: info.layers)
        return Info(
            capacity=sum(info.capacity for info in infos),
            size_bytes=sum(info.size_bytes for info in infos),
            layers=deepest.layers,
            items=sum(info.items for info in infos),
            expansion=deepest.expansion,
        )

    async def verify(self) -> None:
        """Raises ShardMissing if a shard is missing."""
        await self._run(self._steps.verify())

    async def reopen(self) -> None:
        """Reads the number of shards again."""
        await adrive(self.client, self._error, self._steps.open())

    async def clear(self) -> None:
        """Empties all shards."""
        await self._run(self._steps.clear())

    async def drop(self) -> None:
        """Deletes all shards and their number."""
        await self._run(self._steps.drop())

    async def merge_into(self, destination: Key) -> None:
        """Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Raises ValueError if
        it has another number of shards. Both need the same rate, capacity and seed."""
        await self._run(self._steps.merge_into(destination))

    async def double(self) -> None:
        """Doubles the number of shards by copying each (BF.SCANDUMP). No item is denied. Nobody may add meanwhile: an item that
        is added to a shard after it was copied would be denied. The copies keep the items of both halves, so the shards are
        as full as before, and the new room is for new items."""
        await self._run(self._steps.double())

    async def _run(self, steps: Steps[T]) -> T:
        return await adrive(self.client, self._error, self._steps.opened(steps))

    def _each(self, items: Items, steps: Callable[[Window], Steps[list[bool]]]) -> AsyncIterator[bool]:
        refuse_single(items)

        async def answers() -> AsyncIterator[bool]:
            async for window in async_windows(items):
                for answer in await self._run(steps(window)):
                    yield answer

        return answers()

    async def _many(self, items: Items, steps: Callable[[Window], Steps[list[bool]]]) -> list[bool]:
        answers: list[bool] = []
        try:
            async for window in async_windows(items):
                answers += await self._run(steps(window))
        except BloomgateError as error:
            error.answers = [*answers, *error.answers]
            raise
        return answers
