"""Items as bytes, and batches of any size as commands of a good size."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

Item = bytes | bytearray | memoryview | str | int
"""What a filter can hold: bytes as they are, text as UTF-8, a whole number in decimal."""

Key = bytes | str

COMMAND_ITEMS = 500
"""Items of one command. More gain nothing (docs/speed.md), and hold up other clients of the server."""

COMMAND_BYTES = 1 << 20
"""Bytes of the items of one command, after which the next begins."""

WINDOW_COMMANDS = 16
"""Commands that are sent together, before their replies are read."""

Chunk = list[bytes]
Window = list[Chunk]


def item_bytes(item: Item) -> bytes:
    """The bytes of an item, which are what is hashed. Raises TypeError for anything that has no one obvious form."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return b"%d" % item
    raise TypeError(f"an item is bytes, str or int, not {type(item).__name__}")


def refuse_single(items: object) -> None:
    """Refuses what can be iterated, but was meant as one item."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"items is one {type(items).__name__}; it should be an iterable of items, such as a list")


class Windows:
    """Collects items into chunks of a command each, and these into windows that are sent together."""

    def __init__(self) -> None:
        self.window: Window = []
        self._bytes = 0

    def put(self, item: Item) -> bool:
        """Takes an item; True where the window is full now."""
        data = item_bytes(item)
        if not self.window or len(self.window[-1]) >= COMMAND_ITEMS or self._bytes + len(data) > COMMAND_BYTES:
            self.window.append([])
            self._bytes = 0
        self.window[-1].append(data)
        self._bytes += len(data)
        last = self.window[-1]
        return len(self.window) >= WINDOW_COMMANDS and (len(last) >= COMMAND_ITEMS or self._bytes >= COMMAND_BYTES)

    def take(self) -> Window:
        """The window, and begins the next."""
        window, self.window = self.window, []
        return window


def windows(items: Iterable[Item]) -> Iterator[Window]:
    """Cuts items into windows. Reads no further ahead than one window."""
    refuse_single(items)
    collected = Windows()
    for item in items:
        if collected.put(item):
            yield collected.take()
    if collected.window:
        yield collected.take()


async def async_windows(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Window]:
    """As `windows`, of either kind of iterable."""
    if not isinstance(items, AsyncIterable):
        for window in windows(items):
            yield window
        return
    collected = Windows()
    async for item in items:
        if collected.put(item):
            yield collected.take()
    if collected.window:
        yield collected.take()
