"""One set of methods for threads and for tasks. A `method` is written once, as steps: an object for threads runs them when the
method is called, and an object for tasks when the call is awaited. Type checkers and editors see the signature of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .errors import BloomgateError
from .items import Item, Items, Window, Windows, async_windows, refuse_single, windows, windows_of
from .steps import AsyncClient, Client, Steps, adrive, client_error, drive, next_window

P = ParamSpec("P")
R = TypeVar("R")
Send = Callable[[Window], Steps[list[bool]]]


class Prepared:
    """Runs the calls of an object."""

    def _prepared(self, steps: Steps[R]) -> Steps[R]:
        return steps


class Threads(Prepared):
    """An object whose calls run in the calling thread."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._error = client_error(client)

    def _run(self, steps: Steps[R]) -> R:
        return drive(self.client, self._error, self._prepared(steps))


class Tasks(Prepared):
    """An object whose calls are awaited."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self._error = client_error(client, is_async=True)

    async def _run(self, steps: Steps[R]) -> R:
        return await adrive(self.client, self._error, self._prepared(steps))


class method(Generic[P, R]):
    """Decorates a function that returns steps: `object.name(...)` runs the steps, and `Class.name` is the function itself."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, one: None, owner: Any = None) -> Callable[Concatenate[Any, P], Steps[R]]: ...

    @overload
    def __get__(self, one: Threads, owner: Any = None) -> Callable[P, R]: ...

    @overload
    def __get__(self, one: Tasks, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, one: Any, owner: Any = None) -> Any:
        steps = self._steps
        if one is None:
            return steps
        return lambda *args, **words: one._run(steps(one, *args, **words))


class Batches:
    """Batches of any size, split into windows whose commands are sent together."""

    def _add_window(self, window: Window) -> Steps[list[bool]]:
        raise NotImplementedError

    def _exists_window(self, window: Window) -> Steps[list[bool]]:
        raise NotImplementedError

    def _delete_window(self, window: Window) -> Steps[list[bool]]:
        raise NotImplementedError

    @method
    def add_many(self, items: Items) -> Steps[list[bool]]:
        """Adds items, up to 500 or 1 MiB per command and 16 commands at a time. Returns the answers in the order of the items.
        A BloomgateError carries the answers so far."""
        return many(items, self._add_window)

    @method
    def exists_many(self, items: Items) -> Steps[list[bool]]:
        """Looks up items."""
        return many(items, self._exists_window)

    @method
    def delete_many(self, items: Items) -> Steps[list[bool]]:
        """Deletes items from filters with `cuckoo`, `hash="siphash"` or `counting`. Returns whether each was found."""
        return many(items, self._delete_window)


def many(items: Items, send: Send) -> Steps[list[bool]]:
    """Sends a batch of any size. Refuses a single item before anything is sent."""
    return in_windows(windows_of(items), send)


def in_windows(source: Windows, send: Send) -> Steps[list[bool]]:
    answers: list[bool] = []
    try:
        while (window := (yield from next_window(source))) is not None:
            answers += yield from send(window)
    except BloomgateError as error:
        error.answers = [*answers, *error.answers]
        raise
    return answers


def single(steps: Steps[list[bool]]) -> Steps[bool]:
    [answer] = yield from steps
    return answer


class ThreadBatches(Batches, Threads):
    """Batches larger than memory, as iterators."""

    def add_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `add_many`, but returns an iterator of the answers, for batches larger than memory. Items are read as the
        answers are consumed, up to 8,000 ahead; items that were not read are not added."""
        return self._each(items, self._add_window)

    def exists_each(self, items: Iterable[Item]) -> Iterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._exists_window)

    def _each(self, items: Iterable[Item], send: Send) -> Iterator[bool]:
        refuse_single(items)
        return (answer for window in windows(items) for answer in self._run(send(window)))


class TaskBatches(Batches, Tasks):
    """Batches larger than memory, as asynchronous iterators."""

    def add_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `add_many`, but returns an iterator of the answers, for batches larger than memory. Items are read as the
        answers are consumed, up to 8,000 ahead; items that were not read are not added."""
        return self._each(items, self._add_window)

    def exists_each(self, items: Items) -> AsyncIterator[bool]:
        """Like `exists_many`, but returns an iterator of the answers."""
        return self._each(items, self._exists_window)

    def _each(self, items: Items, send: Send) -> AsyncIterator[bool]:
        refuse_single(items)

        async def answers() -> AsyncIterator[bool]:
            async for window in async_windows(items):
                for answer in await self._run(send(window)):
                    yield answer

        return answers()
