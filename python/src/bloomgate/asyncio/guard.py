"""The guard under asyncio. The methods are those of `bloomgate.Guard`, which says what they do; `load` and `load_many` are
coroutine functions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..codec import Bytes, Codec, V
from ..guard_many import ManyRows
from ..guard_steps import GuardSteps
from ..guard_words import GuardOptions, GuardWords, check_socket_timeout, filling_name
from ..items import Item, Key, item_bytes
from ..steps import AsyncClient, Steps, adrive, client_error, is_cluster
from ..waiting import slots_of
from ..words import Words
from .filter import Filter

if TYPE_CHECKING:
    from typing_extensions import Unpack

Id = TypeVar("Id", bound=bytes | str | int)
R = TypeVar("R")


class Guard(Generic[V]):
    """Rows of a database by id, with a filter and a cache in front of them; `bloomgate.Guard` documents the options.

    A task that is cancelled gives up the lease that it holds or is about to get. If the server takes longer than 0.25 s to
    answer, that happens in the background."""

    @overload
    def __init__(
        self: Guard[bytes], client: AsyncClient, filter: Key, *, codec: None = None, **options: Unpack[GuardWords]
    ) -> None: ...

    @overload
    def __init__(self, client: AsyncClient, filter: Key, *, codec: Codec[V], **options: Unpack[GuardWords]) -> None: ...

    def __init__(self, client: AsyncClient, filter: Key, *, codec: Any = None, **options: Unpack[GuardWords]) -> None:
        chosen = GuardOptions(**options)
        check_socket_timeout(client, chosen.wait_ms)
        if chosen.replicas and is_cluster(client):
            raise ValueError("replicas needs a plain client: that of a cluster cannot WAIT for one node's replicas")
        self.client = client
        self._error = client_error(client)
        chosen_codec: Any = codec or Bytes()
        self._steps: GuardSteps[V] = GuardSteps(filter, chosen_codec, chosen, slots_of(client), asyncio.Event)

    @property
    def counts(self) -> Counter[str]:
        return self._steps.counts

    async def get(self, id: Item, load: Callable[[], Awaitable[V | None]], ttl: float | None = None) -> V | None:
        """A row, or None where there is none. `load` reads it from the database that has every commit, in a transaction
        that begins when it is called; None says that there is no such row. `ttl`: seconds, in the place of the guard's.

        Where the server does not answer, the database is asked and nothing is filled; no error of the server's is raised.
        What `load` raises is raised, after the lease was given up; while a stale value is there, that is served instead."""
        return await self._run(self._steps.get(id, load, ttl))

    async def get_many(
        self, ids: Iterable[Id], load_many: Callable[[list[Id]], Awaitable[Mapping[Id, V]]], ttl: float | None = None
    ) -> dict[Id, V | None]:
        """Returns rows by id, fetched together: each id as it was passed, with its row or None. `load_many` gets the ids
        that this caller has to load, and returns a mapping without those that have no row. It is called once, and again for
        rows that other callers were loading and did not bring."""
        return await self._run(ManyRows(self._steps, ids, load_many, ttl).get())

    async def announce(self, *ids: Item) -> None:
        """A writer's first call: before the commit. Where it raises, do not commit."""
        await self._run(self._steps.announce(ids))

    async def confirm(self, *ids: Item) -> None:
        """A writer's second call: after the commit, also where its outcome is unknown. Repeated for `patience`
        seconds until it is answered; then raises Unconfirmed."""
        await self._run(self._steps.confirm(ids))

    @asynccontextmanager
    async def changed(self, *ids: Item) -> AsyncIterator[None]:
        """Around the transaction that inserts, changes or deletes the rows. The commit has to be inside."""
        await self.announce(*ids)
        try:
            yield
        finally:
            await self.confirm(*ids)

    async def forget(self, *ids: Item) -> None:
        """Takes ids that never return out of the filter, after their rows were deleted inside of `changed`. The filter needs
        `hash="siphash"`."""
        await self._run(self._steps.forget(ids))

    async def _run(self, steps: Steps[R]) -> R:
        return await adrive(self.client, self._error, steps)


async def fill_filter(
    client: AsyncClient, key: Key, ids: Iterable[Item] | AsyncIterable[Item], rate: float, capacity: int, **words: Unpack[Words]
) -> int:
    """Makes the filter of a guard before rows are written through it: under another name until all ids are in. Gives how
    many were new. Raises FilterExists where somebody else fills it, or died while filling it: then delete
    `{key}~filling`."""
    name = filling_name(item_bytes(key))
    filter = Filter(client, name, create=False)
    await filter.reserve(rate, capacity, **words)
    new = 0
    async for answer in filter.add_each(ids):
        new += answer
    await client.execute_command("RENAME", name, key)
    return new
