"""The guard in front of a database, for asyncio. The methods are those of `bloomgate.Guard`, which documents them; `load` and
`load_many` are coroutine functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..codec import Bytes, Codec, V
from ..filling import TIMEOUT_S, FillingSteps
from ..guard_many import ManyRows
from ..guard_steps import GuardSteps, chosen
from ..guard_words import Fetched, GuardOptions, GuardWords, check_socket_timeout, milliseconds
from ..items import Item, Key, async_windows, item_bytes, refuse_single
from ..replication import Durability
from ..steps import AsyncClient, Signal, Steps, adrive, client_error
from ..tracking import Tracking
from ..waiting import slots_of
from ..words import Words
from .batches import Batches

if TYPE_CHECKING:
    from typing_extensions import Unpack

Id = TypeVar("Id", bound=bytes | str | int)
R = TypeVar("R")


class Guard(Generic[V]):
    """Rows of a database by id, with a filter and a cache in front of them; `bloomgate.Guard` documents the options.

    A load that takes longer than `soft_timeout` continues in a task of its own.

    A task that is cancelled gives up the lease that it holds or is about to get. If the server takes longer than 0.25 s to
    answer, that happens in the background."""

    @overload
    def __init__(
        self: Guard[bytes],
        client: AsyncClient,
        filter: Key,
        *,
        codec: None = None,
        load: Callable[[Any], Awaitable[bytes | None]] | None = None,
        load_many: Callable[[list[Any]], Awaitable[Mapping[Any, bytes]]] | None = None,
        **options: Unpack[GuardWords],
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
        **options: Unpack[GuardWords],
    ) -> None: ...

    def __init__(
        self,
        client: AsyncClient,
        filter: Key,
        *,
        codec: Any = None,
        load: Any = None,
        load_many: Any = None,
        **options: Unpack[GuardWords],
    ) -> None:
        words = GuardOptions(**options)
        check_socket_timeout(client, words.longest_wait)
        self.client = client
        self._error = client_error(client, is_async=True)
        chosen_codec: Any = codec or Bytes()
        self._load, self._load_many = load, load_many
        self._steps: GuardSteps[V] = GuardSteps(filter, chosen_codec, words, slots_of(client), Signal)
        self._steps.durability.check_client(client)
        self._batches = Batches(client, self._error, self._steps)
        self._tracking: Tracking | None = None
        if words.near is not None:
            self._tracking = tracking = Tracking(client, words.near, self._steps.prefix)
            self._steps.has_reports = lambda: tracking.is_active

    @property
    def counts(self) -> Counter[str]:
        return self._steps.counts

    async def get(self, id: Id, load: Callable[[Id], Awaitable[V | None]] | None = None, ttl: float | None = None) -> V | None:
        """Returns a row, or None if there is none. `load`, by default the guard's, gets the id. It reads the row from the
        database that has every commit, in a transaction that begins when `load` is called, and returns None if there is no
        row. `ttl`, in seconds, replaces the guard's.

        If the server fails, the database is asked and nothing is filled: errors of the server are logged, not raised. What
        `load` raises is raised, after the lease was given up, in all callers of this process that waited for it; but if an old
        value is cached, that is served instead."""
        key = item_bytes(id)
        load = chosen(load, self._load)
        if ttl is not None:
            milliseconds("ttl", ttl)
        if self._tracking is not None:
            self._tracking.start_task()
            if (near := self._steps.near_answer(key)) is not None:
                return near.value
        found = await self._batches.fetch(key)
        if isinstance(found, Fetched) and self._steps.is_checked:
            # Nearly all calls end here.
            if found.word == "absent":
                return None
            if found.word == "hit":
                with suppress(Exception):
                    return self._steps.codec.decode(found.value)
        return await self._run(self._steps.get(key, partial(load, id), ttl, found))

    async def get_many(
        self, ids: Iterable[Id], load_many: Callable[[list[Id]], Awaitable[Mapping[Id, V]]] | None = None, ttl: float | None = None
    ) -> dict[Id, V | None]:
        """Returns rows by id, fetched together: each id as it was passed, with its row or None. `load_many`, by default the
        guard's, gets the ids that this caller has to load, and returns a mapping without those that have no row. It is called
        once, and again for rows that other callers were loading and did not bring."""
        return await self._run(ManyRows(self._steps, ids, chosen(load_many, self._load_many), ttl).get())

    def cached(self, load: Callable[[Id], Awaitable[V | None]]) -> Callable[[Id], Coroutine[Any, Any, V | None]]:
        """Decorates a function that loads a row by its id: a call of it becomes `get`."""

        @wraps(load)
        async def get(id: Id) -> V | None:
            return await self.get(id, load)

        return get

    async def announce(self, *ids: Item) -> None:
        """A writer's first call, before the commit. If it raises, do not commit. With `feed=True` it does nothing."""
        await self._run(self._steps.announce(ids))

    async def confirm(self, *ids: Item) -> None:
        """A writer's second call, after the commit. It is repeated for up to `patience` seconds until the server answers;
        then it raises Unconfirmed.

        If the outcome of the commit is unknown, find it out before this call, or end the database's session: a commit that
        lands after this call leaves the old row cached.

        With `feed=True` it does nothing."""
        await self._run(self._steps.confirm(ids))

    @asynccontextmanager
    async def changed(self, *ids: Item) -> AsyncIterator[None]:
        """Announces ids, and confirms them at the end of the `async with` block, whatever happens in it. The transaction
        that inserts, changes or deletes the rows has to end inside the block, its outcome known.

        With `feed=True` it does nothing: the follower announces each change."""
        await self.announce(*ids)
        try:
            yield
        finally:
            await self.confirm(*ids)

    async def forget(self, *ids: Item) -> None:
        """Deletes ids that never return from the filter, after their rows were deleted inside of `changed`. The filter needs
        `hash="siphash"`. With `feed=True` it does nothing: the follower deletes the ids of deleted rows."""
        await self._run(self._steps.forget(ids))

    async def _run(self, steps: Steps[R]) -> R:
        if self._tracking is not None:
            self._tracking.start_task()
        return await adrive(self.client, self._error, self._steps.checked(steps))


async def fill_filter(
    client: AsyncClient,
    key: Key,
    ids: Iterable[Item] | AsyncIterable[Item],
    rate: float,
    capacity: int,
    *,
    replicas: int = 0,
    replicas_timeout: float = TIMEOUT_S,
    aof: bool = False,
    **words: Unpack[Words],
) -> int:
    """Fills the filter of a guard as `{key}~filling`, and renames it to `key` once every id is in it. Returns how many ids
    were new. Writers that are active meanwhile have to announce to both names.

    A filter that lost ids denies their rows. To make it survive a failover, pass as `replicas` the number of all replicas
    that may be promoted; to make it survive a restart, pass `aof=True`. Each batch, and the new name, must then have reached
    them within `replicas_timeout` seconds; otherwise this raises TimeoutError.

    If this raises, `{key}~filling` may be left: delete it and begin again. As long as it exists, FilterExists is raised,
    because another client may be filling it."""
    refuse_single(ids)
    error = client_error(client, is_async=True)
    steps = FillingSteps(client, key, Durability(replicas, replicas_timeout, aof))
    await adrive(client, error, steps.begin(rate, capacity, words))
    new = 0
    async for window in async_windows(ids):
        new += await adrive(client, error, steps.add(window))
    await adrive(client, error, steps.finish())
    return new
