"""A filter at one key, for asyncio. The methods are those of `bloomgate.Filter`, which documents them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from .. import dump
from ..errors import BadDump, BloomgateError
from ..filter_steps import FilterSteps, plan_steps, plan_words
from ..insert import insert_words
from ..items import Item, Key, Window, async_windows, refuse_single
from ..replies import Info, Plan, Stats
from ..steps import AsyncClient, Steps, adrive, client_error
from ..words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Items = Iterable[Item] | AsyncIterable[Item]


async def plan(
    client: AsyncClient,
    rate: float,
    capacity: int,
    *,
    items: int | None = None,
    tightening: float | None = None,
    **words: Unpack[Words],
) -> Plan:
    """Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing."""
    return await adrive(
        client, client_error(client, is_async=True), plan_steps(plan_words(rate, capacity, items, tightening, words))
    )


class Filter:
    """A filter in a server; see `bloomgate.Filter`. Batches also take asynchronous iterables."""

    def __init__(self, client: AsyncClient, key: Key, *, create: bool = True) -> None:
        self.client = client
        self._error = client_error(client, is_async=True)
        self._steps = FilterSteps(key, create)

    def __repr__(self) -> str:
        return f"Filter({self.key!r})"

    @property
    def key(self) -> Key:
        return self._steps.key

    async def reserve(self, rate: float, capacity: int, *, exist_ok: bool = False, **words: Unpack[Words]) -> bool:
        """Creates the filter. `rate` is the false positive rate, between 0 and 1; `capacity` is the number of items for which
        it has room before it grows. Returns True; with `exist_ok`, False if the filter exists, which is left unchanged."""
        return await self._run(self._steps.reserve(rate, capacity, exist_ok, words))

    async def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it is certainly new, False if it was in or is a false positive."""
        return await self._run(self._steps.add(item))

    async def add_many(self, items: Items) -> list[bool]:
        """Adds any number of items, 500 or 1 MiB per command and 16 commands together. Returns the answers in the order of the
        items. A BloomgateError carries the answers so far."""
        return await self._many(items, self._steps.add_window)

    def add_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `add_many`, but returns an iterator of the answers, for batches that do not fit into memory. Items are read as
        the answers are consumed, some 8000 ahead: items whose answers are not consumed are not added."""
        return self._each(items, self._steps.add_window)

    async def exists(self, item: Item) -> bool:
        """Returns False if the item is certainly not in the filter, True if it is or is a false positive. A missing filter has
        no items."""
        return await self._run(self._steps.exists(item))

    async def exists_many(self, items: Items) -> list[bool]:
        """Looks up any number of items."""
        return await self._many(items, self._steps.exists_window)

    def exists_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    async def delete(self, item: Item) -> bool:
        """Deletes an item from a filter with `hash="siphash"` or `counting`. Returns whether it was found."""
        return await self._run(self._steps.delete(item))

    async def delete_many(self, items: Items) -> list[bool]:
        """Deletes any number of items."""
        return await self._many(items, self._steps.delete_window)

    async def insert(
        self,
        items: Iterable[Item] = (),
        *,
        capacity: int | None = None,
        rate: float | None = None,
        nocreate: bool = False,
        tightening: float | None = None,
        validate_scale_to: int | None = None,
        seed32: bytes | None = None,
        sync: bool = False,
        **words: Unpack[Words],
    ) -> list[bool]:
        """BF.INSERT: adds items, and creates a missing filter with these options. `tightening` and `seed32` (32 bytes) select
        valkey-bloom's layout. With `sync`, items that were not new are replicated, too, so that a later WAIT confirms them.
        Without items it only creates the filter, which needs `seed`, `seed32`, `tightening` or `validate_scale_to`."""
        before = insert_words(capacity, rate, nocreate, tightening, validate_scale_to, seed32, sync, words)
        refuse_single(items)
        items = list(items)
        if not items:
            return await self._run(self._steps.insert(before, [[]]))
        return await self._many(items, lambda window: self._steps.insert(before, window))

    async def count(self, item: Item) -> int:
        """Returns how often the item is in a filter with `counting`, at most 15."""
        return await self._run(self._steps.count(item))

    async def card(self) -> int:
        """Returns the number of items; 0 if there is no filter."""
        return await self._run(self._steps.card())

    async def info(self) -> Info:
        """Returns the filter's capacity, size and number of items (BF.INFO)."""
        return await self._run(self._steps.info())

    async def stats(self) -> Stats:
        """Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer."""
        return await self._run(self._steps.stats())

    async def debug(self) -> list[str]:
        """Returns lines with the sizes of the filter and of each layer (BF.DEBUG)."""
        return await self._run(self._steps.debug())

    async def merge(self, *sources: Key) -> None:
        """Adds the items of the sources to this filter (BF.MERGE). If it is missing, it is created with the options of the
        first source. All need the same rate, capacity, expansion, hash and seed."""
        await self._run(self._steps.merge(sources))

    async def rotate(self) -> int:
        """Begins the next bucket of a filter that forgets. Returns how many items were dropped with the oldest."""
        return await self._run(self._steps.rotate())

    async def clear(self) -> None:
        """Empties the filter, and keeps its options."""
        await self._run(self._steps.clear())

    async def drop(self) -> bool:
        """Deletes the key. Returns whether it existed."""
        return await self._run(self._steps.drop())

    async def dump(self, file: BinaryIO) -> int:
        """Writes the filter to a file, record by record (BF.SCANDUMP), in a few MiB of memory. Returns the bytes of data. Items
        that are added meanwhile may be missing. Does not work for valkey-bloom's layout."""
        file.write(dump.MAGIC)
        iterator, total = 0, 0
        while True:
            iterator, data = await self._run(self._steps.record(iterator))
            dump.write_record(file, iterator, data if iterator else b"")
            if iterator == 0:
                return total
            total += len(data)

    async def load(self, file: BinaryIO, *, replace: bool = False) -> int:
        """Creates the filter from a file of `dump`. Raises FilterExists if the key exists, unless `replace` deletes it first.
        Nobody can use the filter before the last record. If loading fails, deletes the key. Returns the bytes of data."""
        records = dump.read_records(file)
        record = next(records, None)
        if record is None:
            raise BadDump("the file has no records")
        await self._run(self._steps.begin_load(replace))
        total = 0
        try:
            while record is not None:
                await self._run(self._steps.load_record(*record))
                total += len(record[1])
                record = next(records, None)
            # If the last records are missing, the filter is still being loaded.
            await self._run(self._steps.info())
        except BaseException:
            await self._run(self._steps.abandon_load())
            raise
        return total

    async def _run(self, steps: Steps[T]) -> T:
        return await adrive(self.client, self._error, steps)

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
