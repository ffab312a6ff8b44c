"""A filter at one key, for threads."""

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
    """Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing."""
    return drive(client, client_error(client), plan_steps(plan_words(rate, capacity, items, tightening, words)))


class Filter:
    """A filter in a server.

    With `create=False`, an add to a missing filter raises FilterMissing instead of creating one from the server's
    configuration.

    Every method raises FilterMissing, FilterFull, FilterLoading, FilterExists or ModuleMissing where these apply, and
    otherwise the client library's errors (`redis.RedisError`). Items are bytes, str (as UTF-8) or int (in decimal); anything
    else raises TypeError. A client that repeats a command after a lost connection may report that an item was in, because the
    first attempt added it. If that matters, use `bloomgate.connect`."""

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
        """Creates the filter. `rate` is the false positive rate, between 0 and 1; `capacity` is the number of items for which
        it has room before it grows. Returns True; with `exist_ok`, False if the filter exists, which is left unchanged."""
        return self._run(self._steps.reserve(rate, capacity, exist_ok, words))

    def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it is certainly new, False if it was in or is a false positive."""
        return self._run(self._steps.add(item))

    def add_many(self, items: Iterable[Item]) -> list[bool]:
        """Adds any number of items, 500 or 1 MiB per command and 16 commands together. Returns the answers in the order of the
        items. A BloomgateError carries the answers so far."""
        return self._many(items, self._steps.add_window)

    def add_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `add_many`, but returns an iterator of the answers, for batches that do not fit into memory. Items are read as
        the answers are consumed, some 8000 ahead: items whose answers are not consumed are not added."""
        return self._each(items, self._steps.add_window)

    def exists(self, item: Item) -> bool:
        """Returns False if the item is certainly not in the filter, True if it is or is a false positive. A missing filter has
        no items."""
        return self._run(self._steps.exists(item))

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)

    def exists_many(self, items: Iterable[Item]) -> list[bool]:
        """Looks up any number of items."""
        return self._many(items, self._steps.exists_window)

    def exists_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._steps.exists_window)

    def delete(self, item: Item) -> bool:
        """Deletes an item from a filter with `hash="siphash"` or `counting`. Returns whether it was found."""
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
        """BF.INSERT: adds items, and creates a missing filter with these options. `tightening` and `seed32` (32 bytes) select
        valkey-bloom's layout. With `sync`, items that were not new are replicated, too, so that a later WAIT confirms them.
        Without items it only creates the filter, which needs `seed`, `seed32`, `tightening` or `validate_scale_to`."""
        before = insert_words(capacity, rate, nocreate, tightening, validate_scale_to, seed32, sync, words)
        refuse_single(items)
        items = list(items)
        if not items:
            return self._run(self._steps.insert(before, [[]]))
        return self._many(items, lambda window: self._steps.insert(before, window))

    def count(self, item: Item) -> int:
        """Returns how often the item is in a filter with `counting`, at most 15."""
        return self._run(self._steps.count(item))

    def card(self) -> int:
        """Returns the number of items; 0 if there is no filter."""
        return self._run(self._steps.card())

    def info(self) -> Info:
        """Returns the filter's capacity, size and number of items (BF.INFO)."""
        return self._run(self._steps.info())

    def stats(self) -> Stats:
        """Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer."""
        return self._run(self._steps.stats())

    def debug(self) -> list[str]:
        """Returns lines with the sizes of the filter and of each layer (BF.DEBUG)."""
        return self._run(self._steps.debug())

    def merge(self, *sources: Key) -> None:
        """Adds the items of the sources to this filter (BF.MERGE). If it is missing, it is created with the options of the
        first source. All need the same rate, capacity, expansion, hash and seed."""
        self._run(self._steps.merge(sources))

    def rotate(self) -> int:
        """Begins the next bucket of a filter that forgets. Returns how many items were dropped with the oldest."""
        return self._run(self._steps.rotate())

    def clear(self) -> None:
        """Empties the filter, and keeps its options."""
        self._run(self._steps.clear())

    def drop(self) -> bool:
        """Deletes the key. Returns whether it existed."""
        return self._run(self._steps.drop())

    def dump(self, file: BinaryIO) -> int:
        """Writes the filter to a file, record by record (BF.SCANDUMP), in a few MiB of memory. Returns the bytes of data. Items
        that are added meanwhile may be missing. Does not work for valkey-bloom's layout."""
        file.write(dump.MAGIC)
        iterator, total = 0, 0
        while True:
            iterator, data = self._run(self._steps.record(iterator))
            dump.write_record(file, iterator, data if iterator else b"")
            if iterator == 0:
                return total
            total += len(data)

    def load(self, file: BinaryIO, *, replace: bool = False) -> int:
        """Creates the filter from a file of `dump`. Raises FilterExists if the key exists, unless `replace` deletes it first.
        Nobody can use the filter before the last record. If loading fails, deletes the key. Returns the bytes of data."""
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
            # If the last records are missing, the filter is still being loaded.
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
