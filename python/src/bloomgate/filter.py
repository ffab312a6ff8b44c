"""One filter under one key, from threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from . import dump
from .errors import BadDump, BloomgateError
from .filter_steps import FilterSteps, plan_steps, plan_words
from .insert import insert_words
from .items import Item, Key, Window, refuse_single, windows
from .replies import Info, Plan, Stats
from .steps import Client, Steps, client_error, drive
from .words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


def plan(
    client: Client,
    rate: float,
    capacity: int,
    *,
    items: int | None = None,
    tightening: float | None = None,
    **words: Unpack[Words],
) -> Plan:
    """What a filter would take that is made by these words, and holds `items` items (BF.PLAN). Nothing is made."""
    return drive(client, client_error(client), plan_steps(plan_words(rate, capacity, items, tightening, words)))


class Filter:
    """A filter in a server.

    `create=False`: an add to a missing filter raises FilterMissing, instead of making one from the server's configuration.

    Every method raises the client library's errors as they are (`redis.RedisError`), and FilterMissing, FilterFull,
    FilterLoading or FilterExists where these are what is wrong. Items are bytes, str (as UTF-8) or int (in decimal);
    anything else is a TypeError. What a client repeats after a lost connection may answer that an item is in because the
    first attempt added it: where that matters, use `bloomgate.connect`."""

    def __init__(self, client: Client, key: Key, *, create: bool = True) -> None:
        self.client = client
        self._error = client_error(client)
        self._steps = FilterSteps(key, create)

    def __repr__(self) -> str:
        return f"Filter({self.key!r})"

    @property
    def key(self) -> Key:
        return self._steps.key

    def reserve(self, rate: float, capacity: int, *, exist_ok: bool = False, **words: Unpack[Words]) -> bool:
        """Creates the filter: `rate` is the share of absent items that may be found, inside (0, 1), `capacity` the items that
        it has room for before it grows. True if it was created; with `exist_ok` False where it was there, which then
        is left as it is."""
        return self._run(self._steps.reserve(rate, capacity, exist_ok, words))

    def add(self, item: Item) -> bool:
        """Adds an item. True if it is new for certain, False if it was in, or is taken for one that was."""
        return self._run(self._steps.add(item))

    def add_many(self, items: Iterable[Item]) -> list[bool]:
        """Adds any number of items: 500 or 1 MiB a command, 16 commands sent together. The answers in the items' order.
        A BloomgateError carries the answers until then."""
        return self._many(items, self._steps.add_window)

    def add_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """As `add_many`, for what does not fit into memory: an iterator of the answers. Items are read as the answers are
        asked for, some 8000 ahead: what is not asked for is not added."""
        return self._each(items, self._steps.add_window)

    def exists(self, item: Item) -> bool:
        """False: the item is not in, for certain. True: it is, or is wrongly found, as often as the rate says. An item of a
        missing filter is not in."""
        return self._run(self._steps.exists(item))

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)

    def exists_many(self, items: Iterable[Item]) -> list[bool]:
        """Looks any number of items up."""
        return self._many(items, self._steps.exists_window)

    def exists_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """As `exists_many`, as an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    def delete(self, item: Item) -> bool:
        """Deletes an item of a filter with `hash="siphash"` or `counting`. True if it was found."""
        return self._run(self._steps.delete(item))

    def delete_many(self, items: Iterable[Item]) -> list[bool]:
        """Deletes any number of items."""
        return self._many(items, self._steps.delete_window)

    def insert(
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
            return self._run(self._steps.insert(before, [[]]))
        return self._many(items, lambda window: self._steps.insert(before, window))

    def count(self, item: Item) -> int:
        """How often the item is in a filter with `counting`, at most 15."""
        return self._run(self._steps.count(item))

    def card(self) -> int:
        """How many items are in; 0 where there is no filter."""
        return self._run(self._steps.card())

    def info(self) -> Info:
        """What the filter is (BF.INFO)."""
        return self._run(self._steps.info())

    def stats(self) -> Stats:
        """How full it is and how often it is wrong now (BF.STATS). Reads at most 1 MiB of each layer."""
        return self._run(self._steps.stats())

    def debug(self) -> list[str]:
        """The sizes of the filter and of each layer, as lines (BF.DEBUG)."""
        return self._run(self._steps.debug())

    def merge(self, *sources: Key) -> None:
        """Makes this filter the union of itself and the sources (BF.MERGE); where it is missing it is created as the first
        source was. All have to be of one rate, capacity, expansion, hash and seed."""
        self._run(self._steps.merge(sources))

    def rotate(self) -> int:
        """Begins the next bucket of a filter that forgets. Gives how many items went with the oldest."""
        return self._run(self._steps.rotate())

    def clear(self) -> None:
        """Empties the filter. All else stays as it was created."""
        self._run(self._steps.clear())

    def drop(self) -> bool:
        """Deletes the key. False where there was none."""
        return self._run(self._steps.drop())

    def dump(self, file: BinaryIO) -> int:
        """Writes the filter into a file, record by record (BF.SCANDUMP): some MiB of memory at a time. Gives the bytes
        of data. What is added meanwhile may be in or not. Not for filters of valkey-bloom's layout."""
        file.write(dump.MAGIC)
        iterator, total = 0, 0
        while True:
            iterator, data = self._run(self._steps.record(iterator))
            dump.write_record(file, iterator, data if iterator else b"")
            if iterator == 0:
                return total
            total += len(data)

    def load(self, file: BinaryIO, *, replace: bool = False) -> int:
        """Makes the filter from a file of `dump`. A key that is there is an error, or with `replace` deleted first. Until
        the last record nobody else can use the key. A load that fails deletes what has come. Gives the bytes of data."""
        records = dump.read_records(file)
        record = next(records, None)
        if record is None:
            raise BadDump("the file has no records")
        self._run(self._steps.begin_load(replace))
        total = 0
        try:
            while record is not None:
                self._run(self._steps.load_record(*record))
                total += len(record[1])
                record = next(records, None)
            # A dump whose last records are missing leaves a filter that is still being loaded.
            self._run(self._steps.info())
        except BaseException:
            self._run(self._steps.abandon_load())
            raise
        return total

    def _run(self, steps: Steps[T]) -> T:
        return drive(self.client, self._error, steps)

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
