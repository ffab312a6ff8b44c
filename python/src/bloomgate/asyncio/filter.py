"""One filter under one key, under asyncio. The methods are those of `bloomgate.Filter`, which says what they do."""

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
    """What a filter would take that is made by these words, and holds `items` items (BF.PLAN). Nothing is made."""
    return await adrive(client, client_error(client), plan_steps(plan_words(rate, capacity, items, tightening, words)))


class Filter:
    """A filter in a server; see `bloomgate.Filter`. Batches also take asynchronous iterables."""

    def __init__(self, client: AsyncClient, key: Key, *, create: bool = True) -> None:
        self.client = client
        self._error = client_error(client)
        self._steps = FilterSteps(key, create)

    def __repr__(self) -> str:
        return f"Filter({self.key!r})"

    @property
    def key(self) -> Key:
        return self._steps.key

    async def reserve(self, rate: float, capacity: int, *, exist_ok: bool = False, **words: Unpack[Words]) -> bool:
        """Creates the filter: `rate` is the share of absent items that may be found, inside (0, 1), `capacity` the items that
        it has room for before it grows. True if it was created; with `exist_ok` False where it was there, which then
        is left as it is."""
        return await self._run(self._steps.reserve(rate, capacity, exist_ok, words))

    async def add(self, item: Item) -> bool:
        """Adds an item. True if it is new for certain, False if it was in, or is taken for one that was."""
        return await self._run(self._steps.add(item))

    async def add_many(self, items: Items) -> list[bool]:
        """Adds any number of items: 500 or 1 MiB a command, 16 commands sent together. The answers in the items' order.
        A BloomgateError carries the answers until then."""
        return await self._many(items, self._steps.add_window)

    def add_each(self, items: Items) -> AsyncIterator[bool]:
        """As `add_many`, for what does not fit into memory: an iterator of the answers. Items are read as the answers are
        asked for, some 8000 ahead: what is not asked for is not added."""
        return self._each(items, self._steps.add_window)

    async def exists(self, item: Item) -> bool:
        """False: the item is not in, for certain. True: it is, or is wrongly found, as often as the rate says. An item of a
        missing filter is not in."""
        return await self._run(self._steps.exists(item))

    async def exists_many(self, items: Items) -> list[bool]:
        """Looks any number of items up."""
        return await self._many(items, self._steps.exists_window)

    def exists_each(self, items: Items) -> AsyncIterator[bool]:
        """As `exists_many`, as an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    async def delete(self, item: Item) -> bool:
        """Deletes an item of a filter with `hash="siphash"` or `counting`. True if it was found."""
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
        """BF.INSERT: adds items, and says how the filter is created where it is missing. `tightening` and `seed32` (32 bytes)
        make a filter of valkey-bloom's layout. `sync` carries also items that were not new, so that WAIT after it
        confirms them. Without items the filter is only created, where `seed`, `seed32`, `tightening` or
        `validate_scale_to` is among the words; else that is an error."""
        before = insert_words(capacity, rate, nocreate, tightening, validate_scale_to, seed32, sync, words)
        refuse_single(items)
        items = list(items)
        if not items:
            return await self._run(self._steps.insert(before, [[]]))
        return await self._many(items, lambda window: self._steps.insert(before, window))

    async def count(self, item: Item) -> int:
        """How often the item is in a filter with `counting`, at most 15."""
        return await self._run(self._steps.count(item))

    async def card(self) -> int:
        """How many items are in; 0 where there is no filter."""
        return await self._run(self._steps.card())

    async def info(self) -> Info:
        """What the filter is (BF.INFO)."""
        return await self._run(self._steps.info())

    async def stats(self) -> Stats:
        """How full it is and how often it is wrong now (BF.STATS). Reads at most 1 MiB of each layer."""
        return await self._run(self._steps.stats())

    async def debug(self) -> list[str]:
        """The sizes of the filter and of each layer, as lines (BF.DEBUG)."""
        return await self._run(self._steps.debug())

    async def merge(self, *sources: Key) -> None:
        """Makes this filter the union of itself and the sources (BF.MERGE); where it is missing it is created as the first
        source was. All have to be of one rate, capacity, expansion, hash and seed."""
        await self._run(self._steps.merge(sources))

    async def rotate(self) -> int:
        """Begins the next bucket of a filter that forgets. Gives how many items went with the oldest."""
        return await self._run(self._steps.rotate())

    async def clear(self) -> None:
        """Empties the filter. All else stays as it was created."""
        await self._run(self._steps.clear())

    async def drop(self) -> bool:
        """Deletes the key. False where there was none."""
        return await self._run(self._steps.drop())

    async def dump(self, file: BinaryIO) -> int:
        """Writes the filter into a file, record by record (BF.SCANDUMP): some MiB of memory at a time. Gives the bytes
        of data. What is added meanwhile may be in or not. Not for filters of valkey-bloom's layout."""
        file.write(dump.MAGIC)
        iterator, total = 0, 0
        while True:
            iterator, data = await self._run(self._steps.record(iterator))
            dump.write_record(file, iterator, data if iterator else b"")
            if iterator == 0:
                return total
            total += len(data)

    async def load(self, file: BinaryIO, *, replace: bool = False) -> int:
        """Makes the filter from a file of `dump`. A key that is there is an error, or with `replace` deleted first. Until
        the last record nobody else can use the key. A load that fails deletes what has come. Gives the bytes of data."""
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
            # A dump whose last records are missing leaves a filter that is still being loaded.
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
