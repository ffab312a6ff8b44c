"""A filter at one key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from .creation import CreationOptions, Word, creation_words, insert_words
from .errors import BloomgateError, FilterExists, named
from .flavours import Batches, ThreadBatches, many, method, single
from .items import Item, Key, Window, item_bytes, refuse_single
from .replies import Info, Plan, Stats, booleans, parse_info, parse_plan, parse_stats, text
from .steps import Ask, Call, Client, Steps, client_error, drive, same, send

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

LONG_S = 60.0
"""The additional time limit of commands that read or write a whole filter."""


def nothing(_reply: Any) -> None:
    """Parses the reply of commands that answer OK."""


def plan_steps(rate: float, capacity: int, items: int | None, tightening: float | None, words: CreationOptions) -> Steps[Plan]:
    # As a string, because a cluster's client looks for a subcommand here.
    command: list[Word] = ["BF.PLAN", str(rate), capacity, *creation_words(words)]
    if tightening is not None:
        command += ["TIGHTENING", tightening]
    if items is not None:
        command += ["ITEMS", items]
    return send(Call(command, parse_plan, keyless=True))


def plan(
    client: Client,
    rate: float,
    capacity: int,
    *,
    items: int | None = None,
    tightening: float | None = None,
    **words: Unpack[CreationOptions],
) -> Plan:
    """Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing."""
    return drive(client, client_error(client), plan_steps(rate, capacity, items, tightening, words))


class FilterMethods(Batches):
    """The calls of a filter that threads and tasks share."""

    def __init__(self, key: Key, create: bool) -> None:
        if not isinstance(key, (bytes, str)):
            raise TypeError(f"a key must be bytes or str, not {type(key).__name__}")
        self.key = key
        self.create = create

    def __repr__(self) -> str:
        return f"Filter({self.key!r})"

    @method
    def reserve(self, rate: float, capacity: int, *, exist_ok: bool = False, **words: Unpack[CreationOptions]) -> Steps[bool]:
        """Creates the filter. `rate` is the false positive rate, between 0 and 1; `capacity` is the number of items before it
        grows. Returns True; with `exist_ok`, returns False if the filter exists and leaves it unchanged."""
        try:
            yield from self._one(nothing, "BF.RESERVE", rate, capacity, *creation_words(words))
        except FilterExists:
            if not exist_ok:
                raise
            # The reply is the same for a key of another type: this raises then.
            yield from self._one(parse_info, "BF.INFO")
            return False
        return True

    @method
    def add(self, item: Item) -> Steps[bool]:
        """Adds an item. Returns True if it is certainly new, False if it was present or is a false positive."""
        return single(self._add_window([[item_bytes(item)]]))

    @method
    def exists(self, item: Item) -> Steps[bool]:
        """Returns False if the item is certainly not in the filter, True if it is or is a false positive. A missing filter is
        empty."""
        return self._one(bool, "BF.EXISTS", item_bytes(item))

    @method
    def delete(self, item: Item) -> Steps[bool]:
        """Deletes an item from a filter with `cuckoo`, `hash="siphash"` or `counting`. Returns whether it was found."""
        return self._one(bool, "BF.DEL", item_bytes(item))

    @method
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
        **words: Unpack[CreationOptions],
    ) -> Steps[list[bool]]:
        """BF.INSERT: adds items, and creates a missing filter with these options. `tightening` and `seed32` (32 bytes) select
        valkey-bloom's layout. With `sync`, items that were not new are replicated, too, so that a later WAIT confirms them.
        Without items it only creates the filter, which needs `seed`, `seed32`, `tightening` or `validate_scale_to`."""
        before = [self.key, *insert_words(capacity, rate, nocreate, tightening, validate_scale_to, seed32, sync, words)]
        refuse_single(items)
        items = list(items)
        if not items:
            return self._batch(["BF.INSERT", *before], [[]])
        return many(items, lambda window: self._batch(["BF.INSERT", *before, "ITEMS"], window))

    @method
    def count(self, item: Item) -> Steps[int]:
        """Returns how often the item is in a filter with `cuckoo` (from 4 on: or more) or `counting` (at most 15)."""
        return self._one(int, "BF.COUNT", item_bytes(item))

    @method
    def card(self) -> Steps[int]:
        """Returns the number of items; 0 if the key does not exist."""
        return self._one(int, "BF.CARD")

    @method
    def info(self) -> Steps[Info]:
        """Returns the filter's capacity, size and number of items (BF.INFO)."""
        return self._one(parse_info, "BF.INFO")

    @method
    def stats(self) -> Steps[Stats]:
        """Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer."""
        return self._one(parse_stats, "BF.STATS")

    @method
    def debug(self) -> Steps[list[str]]:
        """Returns lines with the sizes of the filter and of each layer (BF.DEBUG)."""
        return self._one(lambda reply: [text(line) for line in reply], "BF.DEBUG")

    @method
    def merge(self, *sources: Key) -> Steps[None]:
        """Adds the items of the sources to this filter (BF.MERGE). Creates it with the options of the first source if it is
        missing. All filters need the same rate, capacity, expansion, hash and seed."""
        if not sources:
            raise ValueError("merge needs a source")
        return self._one(nothing, "BF.MERGE", *sources, wait_s=LONG_S)

    @method
    def rotate(self) -> Steps[int]:
        """Starts the next bucket of a filter that forgets. Returns how many items were dropped with the oldest bucket."""
        return self._one(int, "BF.ROTATE")

    @method
    def clear(self) -> Steps[None]:
        """Removes all items and keeps the options."""
        return self._one(nothing, "BF.CLEAR")

    @method
    def drop(self) -> Steps[bool]:
        """Deletes the key. Returns whether it existed."""
        return self._one(bool, "UNLINK")

    def _one(self, parse: Callable[[Any], T], *words: Word, wait_s: float = 0.0) -> Steps[T]:
        """Sends a command whose first argument is the key."""
        return send(Call([words[0], self.key, *words[1:]], parse), self.key, wait_s)

    def _add_window(self, window: Window) -> Steps[list[bool]]:
        if self.create:
            return self._batch(["BF.MADD", self.key], window)
        return self._batch(["BF.INSERT", self.key, "NOCREATE", "ITEMS"], window)

    def _exists_window(self, window: Window) -> Steps[list[bool]]:
        return self._batch(["BF.MEXISTS", self.key], window)

    def _delete_window(self, window: Window) -> Steps[list[bool]]:
        return self._batch(["BF.MDEL", self.key], window)

    def _batch(self, command: list[Word], window: Window) -> Steps[list[bool]]:
        """Sends one command per chunk, all together. Raises the first error, with the answers of all other commands."""
        found = yield Ask([Call([*command, *chunk], same) for chunk in window])
        answers, failure = collect(window, found)
        if failure is not None:
            raise with_answers(failure, self.key, answers)
        return [bool(answer) for answer in answers]


def collect(window: Window, found: list[Any]) -> tuple[list[bool | None], Exception | None]:
    """Returns the answers of a batch in order, and its first error. A command that failed midway answers a shorter array,
    whose last element is the error."""
    answers: list[bool | None] = []
    failure: Exception | None = None
    for chunk, reply in zip(window, found, strict=True):
        if isinstance(reply, Exception):
            failure = failure or reply
            answers += [None] * len(chunk)
            continue
        if reply and isinstance(reply[-1], Exception):
            failure = failure or reply[-1]
        parsed = booleans(reply)
        answers += parsed + [None] * (len(chunk) - len(parsed))
    return answers, failure


def with_answers(failure: Exception, key: object, answers: list[bool | None]) -> Exception:
    error = named(failure, key)
    if isinstance(error, BloomgateError):
        error.answers = answers
    return error


class Filter(FilterMethods, ThreadBatches):
    """A filter in a server.

    With `create=False`, an add to a missing filter raises FilterMissing instead of creating one from the server's
    configuration.

    Every method raises FilterMissing, FilterFull, FilterLoading, FilterExists or ModuleMissing where these apply, and
    otherwise the client library's errors (`redis.RedisError`). Items are bytes, str (as UTF-8) or int (in decimal); anything
    else raises TypeError. A client that repeats a command after a lost connection may report a new item as present, because
    the first attempt added it. If that matters, use `bloomgate.connect`."""

    def __init__(self, client: Client, key: Key, *, create: bool = True) -> None:
        ThreadBatches.__init__(self, client)
        FilterMethods.__init__(self, key, create)

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)
