"""Converts items to bytes, and splits batches of any size into commands."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

Item = bytes | bytearray | memoryview | str | int
"""An item of a filter: bytes, a str that is encoded as UTF-8, or an int that is written in decimal."""

Items = Iterable[Item] | AsyncIterable[Item]
"""Items of a batch. Only tasks accept asynchronous iterables."""

Key = bytes | str

COMMAND_ITEMS = 500
"""The maximum number of items in one command. Larger commands gain nothing (docs/speed.md), and delay other clients."""

COMMAND_BYTES = 1 << 20
"""The maximum size of one command's items in bytes, unless it has one item."""

WINDOW_COMMANDS = 16
"""The commands that are sent together, before their replies are read."""

Chunk = list[bytes]
Window = list[Chunk]
Windows = Iterator[Window] | AsyncIterator[Window]


def item_bytes(item: Item) -> bytes:
    """Returns the bytes of an item, which the filter hashes. Raises TypeError for a type without one obvious encoding."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return b"%d" % item
    raise TypeError(f"an item must be bytes, str or int, not {type(item).__name__}")


def refuse_single(items: object) -> None:
    """Refuses a single item where a batch is expected, although it can be iterated."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"items is a single {type(items).__name__}; pass an iterable of items, such as a list")


class Collected:
    """Collects items into chunks, one per command, and chunks into windows, which are sent together."""

    def __init__(self) -> None:
        self.window: Window = []
        self._bytes = 0

    def put(self, item: Item) -> bool:
        """Adds an item. Returns whether the window is full now."""
        data = item_bytes(item)
        if not self.window or len(self.window[-1]) >= COMMAND_ITEMS or self._bytes + len(data) > COMMAND_BYTES:
            self.window.append([])
            self._bytes = 0
        self.window[-1].append(data)
        self._bytes += len(data)
        last = self.window[-1]
        return len(self.window) >= WINDOW_COMMANDS and (len(last) >= COMMAND_ITEMS or self._bytes >= COMMAND_BYTES)

    def take(self) -> Window:
        """Returns the window, and begins the next."""
        window, self.window = self.window, []
        return window


def windows(items: Iterable[Item]) -> Iterator[Window]:
    """Splits items into windows. Reads no further ahead than one window."""
    refuse_single(items)
    collected = Collected()
    for item in items:
        if collected.put(item):
            yield collected.take()
    if collected.window:
        yield collected.take()


async def async_windows(items: Items) -> AsyncIterator[Window]:
    """Like `windows`, for synchronous and asynchronous iterables."""
    if not isinstance(items, AsyncIterable):
        for window in windows(items):
            yield window
        return
    collected = Collected()
    async for item in items:
        if collected.put(item):
            yield collected.take()
    if collected.window:
        yield collected.take()


def windows_of(items: Items) -> Windows:
    """Splits a synchronous or asynchronous iterable."""
    refuse_single(items)
    return async_windows(items) if isinstance(items, AsyncIterable) else windows(items)
