"""The words of BF.RESERVE, BF.INSERT and BF.PLAN, as keyword arguments. The server checks what they say; here only
their names and types are checked."""

from __future__ import annotations

from typing import Literal, TypedDict

Word = bytes | str | int | float


class Words(TypedDict, total=False):
    """How a filter is created. docs/kinds.md says which words make which kind."""

    expansion: int
    """The factor from one layer's capacity to the next, 0 to 32768; 0 makes a filter that does not grow."""
    nonscaling: bool
    """A full filter refuses more items instead of growing."""
    seed: int | str
    """0 to 2^32 - 1; with `hash="siphash"` 32 hexadecimal digits. Filters of one seed can be merged."""
    layout: Literal["native", "redisbloom"]
    hash: Literal["murmur3", "siphash"]
    """siphash: for items that an enemy chooses; lets items be deleted."""
    window: int
    """Seconds after which an item is forgotten, 1 to 10^10."""
    rolling: bool
    """At least the last `capacity` new items are found."""
    buckets: int
    """The most buckets of a filter that forgets, 3 to 64."""
    sliding: bool
    """With `window`: an add of an item that is in begins its window anew."""
    counting: bool
    """Counters in the place of bits: four times the memory, and deletes without end."""
    ex: int
    """The key's time to live in seconds, set only where the filter is created."""
    px: int
    """The same in milliseconds."""


FLAGS = ("nonscaling", "rolling", "sliding", "counting")
VALUES = ("expansion", "seed", "layout", "hash", "window", "buckets", "ex", "px")


def creation_words(words: Words) -> list[Word]:
    """The words as a command has them. Raises TypeError for a name that is none of them, or a value of the wrong type."""
    result: list[Word] = []
    for name, value in words.items():
        if name in FLAGS:
            if not isinstance(value, bool):
                raise TypeError(f"{name} is True or False, not {value!r}")
            if value:
                result.append(name.upper())
        elif name in VALUES:
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise TypeError(f"{name} cannot be {value!r}")
            result += [name.upper(), value]
        else:
            raise TypeError(f"there is no word {name!r}: {', '.join(VALUES + FLAGS)}")
    return result
