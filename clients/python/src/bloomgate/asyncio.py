"""The package for asyncio, on `redis.asyncio`. It has the classes and methods of `bloomgate`, as coroutines, and the same
errors, codecs and replies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, overload

from .batching import FetchBatcher, FillBatcher
from .codec import Codec, V
from .connection import aconnect as connect
from .creation import CreationOptions
from .filter import FilterMethods, plan_steps
from .flavours import TaskBatches, Tasks
from .guard import FILL_TIMEOUT_S, GuardMethods, Id, fill_steps
from .guard_options import Fetched, GuardArguments, GuardOptions, milliseconds
from .guard_reads import chosen, is_direct
from .items import Item, Items, Key, item_bytes
from .replication import Durability
from .replies import Plan
from .sharded import ShardedMethods, create_steps
from .steps import AsyncClient, Signal, adrive, client_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Filter", "Guard", "ShardedFilter", "connect", "fill_filter", "plan"]


async def plan(
    client: AsyncClient,
    rate: float,
    capacity: int,
    *,
    items: int | None = None,
    tightening: float | None = None,
    **words: Unpack[CreationOptions],
) -> Plan:
    """Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing."""
    steps = plan_steps(rate, capacity, items, tightening, words)
    return await adrive(client, client_error(client, is_async=True), steps)


class Filter(FilterMethods, TaskBatches):
    """A filter in a server; see `bloomgate.Filter`. Batches may also be asynchronous iterables."""

    def __init__(self, client: AsyncClient, key: Key, *, create: bool = True) -> None:
        TaskBatches.__init__(self, client)
        FilterMethods.__init__(self, key, create)


class ShardedFilter(ShardedMethods, TaskBatches):
    """A filter in many shards; see `bloomgate.ShardedFilter`. Batches may also be asynchronous iterables."""

    def __init__(self, client: AsyncClient, name: Key) -> None:
        TaskBatches.__init__(self, client)
        ShardedMethods.__init__(self, name)

    @classmethod
    async def open(cls, client: AsyncClient, name: Key) -> ShardedFilter:
        """Opens an existing sharded filter."""
        filter = cls(client, name)
        await adrive(client, filter._error, filter._open())
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
        **words: Unpack[CreationOptions],
    ) -> ShardedFilter:
        """Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations.
        Filters that are to be merged need the same `seed`. Raises FilterExists if a filter with this name exists; `resume`
        completes an interrupted creation. Do not use `resume` to replace a lost shard: its items would be reported absent."""
        await adrive(client, client_error(client, is_async=True), create_steps(name, rate, capacity, shards, resume, words))
        return await cls.open(client, name)


class Guard(GuardMethods[V], Tasks):
    """Reads database rows by id through a filter and a cache; `bloomgate.Guard` documents the options.

    A load that takes longer than `soft_timeout` continues in a separate task.

    A cancelled task gives up the lease that it holds or is about to get; in the background, if the server takes longer than
    0.25 s to answer."""

    @overload
    def __init__(
        self: Guard[bytes],
        client: AsyncClient,
        filter: Key,
        *,
        codec: None = None,
        load: Callable[[Any], Awaitable[bytes | None]] | None = None,
        load_many: Callable[[list[Any]], Awaitable[Mapping[Any, bytes]]] | None = None,
        **options: Unpack[GuardArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        client: AsyncClient,
        filter: Key,
        *,
        codec: Codec[V],
        load: Callable[[Any], Awaitable[V | None]] | None = None,
        load_many: Callable[[list[Any]], Awaitable[Mapping[Any, V]]] | None = None,
        **options: Unpack[GuardArguments],
    ) -> None: ...

    def __init__(
        self,
        client: AsyncClient,
        filter: Key,
        *,
        codec: Any = None,
        load: Any = None,
        load_many: Any = None,
        **options: Unpack[GuardArguments],
    ) -> None:
        Tasks.__init__(self, client)
        GuardMethods.__init__(self, client, filter, codec, load, load_many, GuardOptions(**options), Signal)
        self._fetches = FetchBatcher(client, self._error, self._steps)
        self._steps.batcher = FillBatcher(client, self._error)

    async def get(self, id: Id, load: Callable[[Id], Awaitable[V | None]] | None = None, ttl: float | None = None) -> V | None:
        """See `bloomgate.Guard.get`; `load` is awaited."""
        key = item_bytes(id)
        load = chosen(load, self._load)
        if ttl is not None:
            milliseconds("ttl", ttl)
        if self._tracking is not None:
            self._tracking.start()
            if (near := self._steps.near_row(key)) is not None:
                return near[0]
        begun = self._steps.clock()
        if is_direct(self._steps, key):
            return await self._run(self._steps.get(key, partial(load, id), ttl, begun))
        found = await self._fetches.fetch(key)
        if isinstance(found, Fetched):
            # Nearly all calls end here.
            if found.word == "absent":
                return None
            if found.word == "hit":
                with suppress(Exception):
                    return self._steps.codec.decode(found.value)
        return await self._run(self._steps.get(key, partial(load, id), ttl, begun, found))

    async def get_in_transaction(self, id: Id, load: Callable[[Id], Awaitable[V | None]] | None = None) -> V | None:
        """See `bloomgate.Guard.get_in_transaction`."""
        return await self._run(self._steps.get_in_transaction(item_bytes(id), partial(chosen(load, self._load), id)))

    async def get_many(
        self,
        ids: Iterable[Id],
        load_many: Callable[[list[Id]], Awaitable[Mapping[Id, V]]] | None = None,
        ttl: float | None = None,
    ) -> dict[Id, V | None]:
        """See `bloomgate.Guard.get_many`; `load_many` is awaited."""
        return await self._run(self._steps.get_many(ids, chosen(load_many, self._load_many), ttl))

    def cached(self, load: Callable[[Id], Awaitable[V | None]]) -> Callable[[Id], Coroutine[Any, Any, V | None]]:
        """Decorates a function that loads a row by id, so that calling it reads the row by `get`."""

        @wraps(load)
        async def get(id: Id) -> V | None:
            return await self.get(id, load)

        return get

    @asynccontextmanager
    async def changed(self, *ids: Item) -> AsyncIterator[None]:
        """See `bloomgate.Guard.changed`."""
        await self.announce(*ids)
        try:
            yield
        finally:
            await self.confirm(*ids)


async def fill_filter(
    client: AsyncClient,
    key: Key,
    ids: Items,
    rate: float,
    capacity: int,
    *,
    replicas: int = 0,
    replicas_timeout: float = FILL_TIMEOUT_S,
    aof: bool = False,
    **words: Unpack[CreationOptions],
) -> int:
    """See `bloomgate.fill_filter`. `ids` may be an asynchronous iterable."""
    durability = Durability(replicas, replicas_timeout, aof)
    steps = fill_steps(client, key, ids, rate, capacity, durability, words)
    return await adrive(client, client_error(client, is_async=True), steps)
