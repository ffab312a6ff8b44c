"""The package's classes for threads, and its classes for asyncio behind the same calls, so that a test of both is written
once."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis.asyncio
from server import PATIENCE

import bloomgate
import bloomgate.asyncio

OBJECTS = (redis.asyncio.Redis, bloomgate.asyncio.Filter, bloomgate.asyncio.Guard)


class Tasks:
    """The module `bloomgate.asyncio`, or an object of it. A call runs its coroutine as a task of one loop, and returns its
    result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Any) -> None:
        self._loop, self._of = loop, of

    def _wait(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self._wrapped(asyncio.run_coroutine_threadsafe(wait(), self._loop).result())

    def _wrapped(self, value: Any) -> Any:
        return Tasks(self._loop, value) if isinstance(value, OBJECTS) else value

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if not callable(value) or name.startswith("_"):
            return value

        def call(*words: Any, **options: Any) -> Any:
            words = tuple(plain(word) for word in words)
            found = value(*words, **{name: plain(option) for name, option in options.items()})
            if inspect.isawaitable(found):
                return self._wait(found)
            return self._within(found) if name == "changed" else self._wrapped(found)

        return call

    @contextmanager
    def _within(self, block: Any) -> Iterator[Any]:
        found = self._wait(block.__aenter__())
        try:
            yield found
        except BaseException as error:
            if not self._wait(block.__aexit__(type(error), error, None)):
                raise
        else:
            self._wait(block.__aexit__(None, None, None))

    def __enter__(self) -> Any:
        return self._wait(self._of.__aenter__())

    def __exit__(self, *error: Any) -> None:
        self._wait(self._of.__aexit__(*error))


def plain(word: Any) -> Any:
    """Converts an argument for asyncio: wrappers to the objects, and loaders to coroutines."""
    if isinstance(word, Tasks):
        return word._of
    if not inspect.isroutine(word):
        return word

    async def load(wanted: Any) -> Any:
        return await asyncio.to_thread(word, wanted)

    return load


@contextmanager
def kind(name: str) -> Iterator[Any]:
    """The module `bloomgate`, or `bloomgate.asyncio` with an event loop in a thread."""
    if name == "threads":
        yield bloomgate
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Tasks(loop, bloomgate.asyncio)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def until(condition: Callable[[], Any]) -> None:
    """Lets other tasks run until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE, "the condition never came true"
        await asyncio.sleep(0.001)
