"""The options of BF.RESERVE, BF.INSERT and BF.PLAN as keyword arguments. Their names and types are checked here, their
values by the server."""

from __future__ import annotations

from typing import Literal, TypedDict

Word = bytes | str | int | float


class CreationOptions(TypedDict, total=False):
    """The options of a new filter. docs/kinds.md describes the kinds."""

    expansion: int
    """The factor from one layer's capacity to the next, 0 to 32768. With 0 the filter does not grow."""
    nonscaling: bool
    """Makes a full filter refuse items instead of growing."""
    seed: int | str
    """0 to 2^32 - 1; with `hash="siphash"` 32 hexadecimal digits. Filters with the same seed can be merged."""
    layout: Literal["native", "redisbloom"]
    hash: Literal["murmur3", "siphash"]
    """siphash is for untrusted items, and allows deletes."""
    window: int
    """Seconds after which an item is forgotten, 1 to 10^10."""
    rolling: bool
    """Keeps at least the last `capacity` new items."""
    buckets: int
    """The maximum number of buckets of a filter that forgets, 3 to 64."""
    sliding: bool
    """With `window`: adding an item again restarts its window."""
    cuckoo: bool
    """A cuckoo filter: unlimited deletes in little more memory than bits. Every add stores a copy of the item, up to four, and a
    delete removes one: delete only what was added."""
    counting: bool
    """Counters instead of bits: four times the memory, unlimited deletes."""
    ex: int
    """The key's time to live in seconds, set only if the filter is created."""
    px: int
    """The key's time to live in milliseconds."""


FLAGS = ("nonscaling", "rolling", "sliding", "cuckoo", "counting")
VALUES = ("expansion", "seed", "layout", "hash", "window", "buckets", "ex", "px")


def creation_words(words: CreationOptions) -> list[Word]:
    """Returns the options as words of a command. Raises TypeError for an unknown name, or a value of the wrong type."""
    result: list[Word] = []
    for name, value in words.items():
        if name in FLAGS:
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, not {value!r}")
            if value:
                result.append(name.upper())
        elif name in VALUES:
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise TypeError(f"{name} cannot be {value!r}")
            result += [name.upper(), value]
        else:
            raise TypeError(f"there is no option {name!r}: {', '.join(VALUES + FLAGS)}")
    return result


def insert_words(
    capacity: int | None,
    rate: float | None,
    nocreate: bool,
    tightening: float | None,
    validate_scale_to: int | None,
    seed32: bytes | None,
    sync: bool,
    words: CreationOptions,
) -> list[Word]:
    """Returns the options of BF.INSERT that precede ITEMS."""
    if seed32 is not None and len(seed32) != 32:
        raise ValueError(f"seed32 is 32 bytes, not {len(seed32)}")
    result = creation_words(words)
    valued: list[tuple[str, Word | None]] = [
        ("CAPACITY", capacity),
        ("ERROR", rate),
        ("TIGHTENING", tightening),
        ("VALIDATESCALETO", validate_scale_to),
        ("SEED", seed32),
    ]
    for word, value in valued:
        if value is not None:
            result += [word, value]
    if nocreate:
        result.append("NOCREATE")
    if sync:
        result.append("SYNC")
    return result
