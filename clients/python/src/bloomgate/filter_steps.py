"""The operations of a filter, for `bloomgate.Filter` and `bloomgate.asyncio.Filter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .errors import BadDump, BloomgateError, FilterExists, named
from .items import Item, Key, Window, item_bytes
from .replies import Info, Plan, Stats, booleans, parse_info, parse_plan, parse_stats, text
from .steps import Ask, Call, Steps, same
from .words import Word, Words, creation_words

T = TypeVar("T")

LONG_S = 60.0
"""How much longer commands may take that read or write a whole filter, or a record of up to 512 MiB."""


def nothing(_reply: Any) -> None:
    """Reads the reply of commands that answer OK."""


def plan_words(rate: float, capacity: int, items: int | None, tightening: float | None, words: Words) -> list[Word]:
    # As text, because a cluster's client looks for a subcommand here.
    command: list[Word] = ["BF.PLAN", str(rate), capacity, *creation_words(words)]
    if tightening is not None:
        command += ["TIGHTENING", tightening]
    if items is not None:
        command += ["ITEMS", items]
    return command


def plan_steps(command: Sequence[Word]) -> Steps[Plan]:
    [found] = yield Ask([Call(command, parse_plan, keyless=True)])
    if isinstance(found, Exception):
        raise found
    result: Plan = found
    return result


class FilterSteps:
    """A filter's operations. `create` is whether an add may create a missing filter."""

    def __init__(self, key: Key, create: bool) -> None:
        if not isinstance(key, (bytes, str)):
            raise TypeError(f"a key is bytes or str, not {type(key).__name__}")
        self.key = key
        self.create = create

    def one(self, parse: Callable[[Any], T], *words: Word, wait_s: float = 0.0) -> Steps[T]:
        """Sends a command whose first argument is the key."""
        [found] = yield Ask([Call([words[0], self.key, *words[1:]], parse)], wait_s=wait_s)
        if isinstance(found, Exception):
            raise named(found, self.key)
        result: T = found
        return result

    def reserve(self, rate: float, capacity: int, exist_ok: bool, words: Words) -> Steps[bool]:
        try:
            yield from self.one(nothing, "BF.RESERVE", rate, capacity, *creation_words(words))
        except FilterExists:
            if not exist_ok:
                raise
            # The reply is the same for a key of another type: this raises then.
            yield from self.info()
            return False
        return True

    def add_command(self) -> tuple[list[Word], list[Word]]:
        """Returns the words before and after the key."""
        return (["BF.MADD"], []) if self.create else (["BF.INSERT"], ["NOCREATE", "ITEMS"])

    def add(self, item: Item) -> Steps[bool]:
        [answer] = yield from self.add_window([[item_bytes(item)]])
        return answer

    def add_window(self, window: Window) -> Steps[list[bool]]:
        before, after = self.add_command()
        return (yield from self.batch([*before, self.key, *after], window))

    def exists(self, item: Item) -> Steps[bool]:
        return self.one(bool, "BF.EXISTS", item_bytes(item))

    def exists_window(self, window: Window) -> Steps[list[bool]]:
        return self.batch(["BF.MEXISTS", self.key], window)

    def delete(self, item: Item) -> Steps[bool]:
        return self.one(bool, "BF.DEL", item_bytes(item))

    def delete_window(self, window: Window) -> Steps[list[bool]]:
        return self.batch(["BF.MDEL", self.key], window)

    def batch(self, command: list[Word], window: Window) -> Steps[list[bool]]:
        """Sends one command per chunk, all together. Raises the first error, with the answers of all other commands."""
        found = yield Ask([Call([*command, *chunk], same) for chunk in window])
        answers, trouble = collect(window, found)
        if trouble is not None:
            raise with_answers(trouble, self.key, answers)
        return [bool(answer) for answer in answers]

    def insert(self, words: list[Word], window: Window) -> Steps[list[bool]]:
        """BF.INSERT. Without items it only creates the filter, which some options allow."""
        items: list[Word] = ["ITEMS"] if window[0] else []
        return (yield from self.batch(["BF.INSERT", self.key, *words, *items], window))

    def info(self) -> Steps[Info]:
        return self.one(parse_info, "BF.INFO")

    def stats(self) -> Steps[Stats]:
        return self.one(parse_stats, "BF.STATS")

    def debug(self) -> Steps[list[str]]:
        return self.one(lambda reply: [text(line) for line in reply], "BF.DEBUG")

    def merge(self, sources: Sequence[Key]) -> Steps[None]:
        if not sources:
            raise ValueError("merge needs a source")
        return self.one(nothing, "BF.MERGE", *sources, wait_s=LONG_S)

    def count(self, item: Item) -> Steps[int]:
        return self.one(int, "BF.COUNT", item_bytes(item))

    def card(self) -> Steps[int]:
        return self.one(int, "BF.CARD")

    def rotate(self) -> Steps[int]:
        return self.one(int, "BF.ROTATE")

    def clear(self) -> Steps[None]:
        return self.one(nothing, "BF.CLEAR")

    def drop(self) -> Steps[bool]:
        return self.one(bool, "UNLINK")

    def is_there(self) -> Steps[bool]:
        return self.one(bool, "EXISTS")

    def record(self, iterator: int) -> Steps[tuple[int, bytes]]:
        """Returns the next record of a dump."""
        return self.one(lambda reply: (int(reply[0]), bytes(reply[1])), "BF.SCANDUMP", iterator, wait_s=LONG_S)

    def begin_load(self, replace: bool) -> Steps[None]:
        if (yield from self.is_there()):
            if not replace:
                raise FilterExists(f"{self.key!r}: there is a key already")
            yield from self.one(nothing, "UNLINK")

    def load_record(self, iterator: int, data: bytes) -> Steps[None]:
        try:
            yield from self.one(nothing, "BF.LOADCHUNK", iterator, data, wait_s=LONG_S)
        except BloomgateError:
            raise
        except Exception as error:
            if type(error).__name__ == "ResponseError":
                raise BadDump(f"{self.key!r}: {error}") from error
            raise

    def abandon_load(self) -> Steps[None]:
        """Deletes what a failed load has left: it would only answer that it is still being loaded."""
        yield Ask([Call(["UNLINK", self.key], nothing)])


def collect(window: Window, found: list[Any]) -> tuple[list[bool | None], Exception | None]:
    """Returns the answers of a batch in order, and its first error. A command that failed midway answers a shorter array,
    whose last element is the error."""
    answers: list[bool | None] = []
    trouble: Exception | None = None
    for chunk, reply in zip(window, found, strict=True):
        if isinstance(reply, Exception):
            trouble = trouble or reply
            answers += [None] * len(chunk)
            continue
        if reply and isinstance(reply[-1], Exception):
            trouble = trouble or reply[-1]
        parsed = booleans(reply)
        answers += parsed + [None] * (len(chunk) - len(parsed))
    return answers, trouble


def with_answers(trouble: Exception, key: object, answers: list[bool | None]) -> Exception:
    error = named(trouble, key)
    if isinstance(error, BloomgateError):
        error.answers = answers
    return error
