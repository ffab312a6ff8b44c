"""Runs one implementation in threads and under asyncio. An operation is a generator that yields steps (`Ask`, `Sleep`, `Wait`,
`Do`, `Start`, `Join`, `Shield`) and receives their outcomes. `drive` performs the steps in the calling thread, `adrive` awaits
them."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from .creation import Word
from .errors import ModuleMissing, named
from .items import Window, Windows
from .replies import text

T = TypeVar("T")
R = TypeVar("R")

UNDO_TIMEOUT_S = 0.25
"""How long a cancelled task waits for its commands to be undone. After that, the undoing continues in the background."""


class Client(Protocol):
    """The methods that this package needs of a client: `redis.Redis`, `redis.RedisCluster`, `valkey.Valkey` and the like. Only
    clients for threads have `__enter__`, so type checkers refuse the clients of asyncio."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, transaction: Any = ...) -> Any: ...

    def __enter__(self) -> Any: ...


class AsyncClient(Protocol):
    """The same methods of `redis.asyncio`."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, transaction: Any = ...) -> Any: ...

    async def __aenter__(self) -> Any: ...


def same(reply: Any) -> Any:
    return reply


@dataclass(slots=True)
class Call(Generic[T]):
    """A command and the function that reads its reply. Strings in the reply are bytes, even if the client decodes replies.

    A cluster's client sends a command to the node that holds the key `node_of`. Without `node_of`, a `keyless` command is sent
    to any node, and for other commands the client finds the keys itself. For the guard's commands it would query a node each
    time (COMMAND GETKEYS): always the same node, even after that node has failed."""

    words: Sequence[Word]
    parse: Callable[[Any], T] = same
    keyless: bool = False
    node_of: bytes | None = None


def packed(words: Sequence[Word]) -> bytes:
    """Encodes a small command, faster than the client libraries."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        one = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(one), one))
    return b"".join(parts)


def command_bytes(connection: Any, step: Ask) -> Any:
    """Encodes the commands of a step for a connection."""
    if len(step.calls) == 1 and step.is_small:
        return [packed(step.calls[0].words)]
    return connection.pack_commands([call.words for call in step.calls])


@dataclass(slots=True)
class Ask:
    """Commands to send together on one connection. The outcome lists the result of each, or the exception in its place.

    With `undo`, cancelling the task does not abort the commands: their replies are still read, and the commands that `undo`
    returns for the outcome are sent. The task ends when that is done, or after UNDO_TIMEOUT_S, or at once if the commands wait
    inside the server. Commands that wait there have a `finished`, which is called when their replies have arrived or can no
    longer arrive.

    The server may withhold replies for `wait_s` seconds in addition to the client's time limit. With `together`, tasks send
    these commands in batches with the commands of other tasks. A single command that `is_small` is encoded in a faster way."""

    calls: Sequence[Call[Any]]
    undo: Callable[[list[Any]], Sequence[Call[Any]]] | None = None
    finished: Callable[[], None] | None = None
    wait_s: float = 0.0
    batcher: CommandBatcher | None = None
    is_small: bool = False


class CommandBatcher(Protocol):
    """Sends the commands of many tasks in batches."""

    async def send(self, step: Ask) -> list[Any]: ...


@dataclass(frozen=True)
class Sleep:
    """Sleeps for some seconds."""

    seconds: float


class Signal:
    """An event for one task, much lighter than `asyncio.Event`, because many tasks may wait for one row."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        timer = self._loop.call_later(seconds, self.set)
        try:
            await self._future
        finally:
            timer.cancel()


Event = threading.Event | Signal


@dataclass(frozen=True)
class Wait:
    """Waits until an event is set, for at most some seconds."""

    event: Event
    seconds: float


@dataclass(frozen=True)
class Do:
    """Calls a function of the caller, and awaits it under asyncio. Its exceptions are raised where `Do` was yielded."""

    function: Callable[[], Any]


Running = Future[Any] | asyncio.Task[Any]
"""An operation in its own thread or task."""


@dataclass(frozen=True)
class Start:
    """Runs an operation in a separate thread or task, and waits for it for some seconds. The outcome is a Running. If the
    operation takes longer, it continues; but if the waiting task is cancelled within these seconds, so is the operation."""

    steps: Generator[Any, Any, Any]
    seconds: float


@dataclass(frozen=True)
class Join:
    """Waits until an operation ends. The outcome is its result; its exception is raised."""

    running: Running


@dataclass(frozen=True)
class Shield:
    """Runs an operation to its end, even if the task is cancelled. The outcome is its result."""

    steps: Generator[Any, Any, Any]


Step = Ask | Sleep | Wait | Do | Start | Join | Shield
Steps = Generator[Step, Any, R]


def next_window(source: Windows) -> Steps[Window | None]:
    """Returns the next window of a batch, or None after the last."""
    if isinstance(source, AsyncIterator):
        window: Window | None = yield Do(lambda: anext(source, None))
        return window
    return next(source, None)


def send(call: Call[T], key: object = None, wait_s: float = 0.0) -> Steps[T]:
    """Sends one command. Raises its error, converted to this package's error for a key."""
    [found] = yield Ask([call], wait_s=wait_s)
    if isinstance(found, Exception):
        raise named(found, key) if key is not None else found
    result: T = found
    return result


def client_error(client: object, *, is_async: bool = False) -> type[Exception]:
    """Returns the base class of the client library's errors: RedisError or ValkeyError. Raises TypeError for a client of the
    other kind, whose return values are not replies, and for a pipeline."""
    kind = (
        "bloomgate.asyncio needs a client of redis.asyncio or valkey.asyncio"
        if is_async
        else ("a client of redis-py or valkey-py for threads is needed (bloomgate.asyncio has the same for asyncio)")
    )
    for ancestor in type(client).__mro__:
        library = ancestor.__module__.partition(".")[0]
        if library in ("redis", "valkey"):
            if hasattr(client, "__aenter__") is not is_async or hasattr(client, "execute"):
                break
            exceptions = importlib.import_module(f"{library}.exceptions")
            error: type[Exception] = getattr(exceptions, "RedisError", None) or exceptions.ValkeyError
            return error
    raise TypeError(f"{kind}, not {type(client).__module__}.{type(client).__name__}")


def is_cluster(client: object) -> bool:
    """Whether the client routes commands by their keys."""
    return hasattr(client, "get_random_node") or hasattr(client, "nodes_manager")


def cluster_options(client: object, call: Call[Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"NEVER_DECODE": True}
    cluster = cast(Any, client)
    if call.node_of is not None:
        chosen["target_nodes"] = cluster.get_node_from_key(call.node_of)
    elif call.keyless:
        chosen["target_nodes"] = cluster.get_random_node()
    return chosen


def errors_of(error: type[Exception]) -> tuple[type[Exception], type[Exception]]:
    """Returns the base classes of the library's errors. A cluster's client that cannot reach a node, or has no node for a
    slot, raises errors of the second class, which is not a subclass of the first."""
    return error, getattr(sys.modules[error.__module__], error.__name__.replace("Error", "ClusterException"))


NEWER_WORDS = ("BF.FETCH", "BF.MFETCH", "BF.FILL", "BF.CHANGED", "BF.MCHANGED")
"""The commands of the guard, whose options older modules do not support."""


def read(call: Call[Any], reply: Any) -> Any:
    """Parses a reply. A reply that cannot be parsed is an error, like an error of the server."""
    if not isinstance(reply, Exception):
        try:
            return call.parse(reply)
        except Exception as error:
            return error
    command, message = text(call.words[0]), str(reply)
    # A cluster's client looks a command up before it sends it.
    if command.startswith("BF.") and ("unknown command" in message or "command doesn't exist" in message):
        missing = ModuleMissing(f"the server does not know {command}: it has not loaded the module bloomgate")
    elif command in NEWER_WORDS and message.removeprefix("ERR ") == "syntax error":
        missing = ModuleMissing(
            f"the server does not know the options of {command}: its module bloomgate is older than this client"
        )
    else:
        return reply
    missing.__cause__ = reply
    return missing


def pool_of(client: object) -> Any:
    """Returns the pool of a client, from which this module takes connections itself. Returns None for a cluster's client,
    which routes commands to nodes, and whose own time limit must be long enough for commands that wait."""
    return getattr(client, "connection_pool", None)


def connection_words(pool: Any) -> tuple[str, ...]:
    """The pools of valkey-py require the name of a command, which they do not use; redis-py's pools do not."""
    return ("BF.FETCH",) if type(pool).__module__.startswith("valkey") else ()


NOT_PRIMARY = ("ReadOnlyError", "MasterDownError")
"""Errors of a server that is no longer a primary: the next command needs another connection, which may reach the new primary.
LOADING is missing here, because the client library reports it as a lost connection."""


def ask_pool(pool: Any, error: type[Exception], step: Ask) -> list[Any]:
    """Sends commands on one connection, and reads their replies. No command is sent twice. A connection with unread replies is
    closed before it returns to the pool, because another call would read them as its own."""
    library = sys.modules[error.__module__]
    connection = pool.get_connection(*connection_words(pool))

    def reply() -> Any:
        if step.wait_s and (limit := connection.socket_timeout) is not None:
            limit += step.wait_s
            if not connection.can_read(timeout=limit):
                raise library.TimeoutError(f"no reply for {limit} s")
        try:
            return connection.read_response(disable_decoding=True)
        except library.ResponseError as refused:
            return refused

    try:
        connection.send_packed_command(command_bytes(connection, step))
        replies = [reply() for _ in step.calls]
        if any(type(one).__name__ in NOT_PRIMARY for one in replies):
            connection.disconnect()
        return replies
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


async def aask_pool(pool: Any, error: type[Exception], step: Ask) -> list[Any]:
    """Like `ask_pool`, under asyncio. The `timeout` of read_response is not used: when it expires, the connection stays open
    and the result is None, as for a null reply."""
    library = sys.modules[error.__module__]
    connection = await pool.get_connection(*connection_words(pool))
    default_timeout: float | None = connection.socket_timeout
    limit = default_timeout + step.wait_s if step.wait_s and default_timeout is not None else default_timeout

    async def reply() -> Any:
        try:
            return await connection.read_response(disable_decoding=True)
        except library.ResponseError as refused:
            return refused

    try:
        if (reader := getattr(connection, "_reader", None)) is not None and reader.at_eof():
            # With RESP3, the pools of redis-py 8 return connections that the server has closed, and rely on retries.
            await connection.disconnect(nowait=True)
        connection.socket_timeout = limit
        await connection.send_packed_command(command_bytes(connection, step))
        replies = [await reply() for _ in step.calls]
        if any(type(one).__name__ in NOT_PRIMARY for one in replies):
            await connection.disconnect(nowait=True)
        return replies
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        connection.socket_timeout = default_timeout
        await pool.release(connection)


def ask(client: Client, error: type[Exception], step: Ask) -> list[Any]:
    calls = step.calls
    try:
        if (pool := pool_of(client)) is not None:
            replies = ask_pool(pool, error, step)
        elif len(calls) == 1:
            [call] = calls
            replies = [client.execute_command(*call.words, **cluster_options(client, call))]
        else:
            with client.pipeline(transaction=False) as pipe:
                for call in calls:
                    pipe.execute_command(*call.words, **cluster_options(client, call))
                replies = pipe.execute(raise_on_error=False)
    except errors_of(error) as failure:
        replies = [failure] * len(calls)
    finally:
        if step.finished is not None:
            step.finished()
    return [read(call, reply) for call, reply in zip(calls, replies, strict=True)]


def connection_lost(error: type[Exception], cause: Exception) -> Exception:
    """Returns the library's error for a lost connection."""
    lost = next(kind for kind in error.__subclasses__() if kind.__name__ == "ConnectionError")
    failure: Exception = lost(f"the connection was closed: {cause}")
    failure.__cause__ = cause
    return failure


def until_lost(replies: list[Any], error: type[Exception]) -> list[Any]:
    """Returns the replies up to the first that could not be read, and the error of that one in place of it and of all later
    ones. After a time limit, the pipelines of asyncio's cluster clients continue with the next command: with RESP3, they
    return the late reply of the previous command for it."""
    refused = sys.modules[error.__module__].ResponseError
    for index, reply in enumerate(replies):
        if isinstance(reply, Exception) and not isinstance(reply, refused):
            return [*replies[:index], *[reply] * (len(replies) - index)]
    return replies


async def aask(client: AsyncClient, error: type[Exception], step: Ask) -> list[Any]:
    calls = step.calls
    try:
        if (pool := pool_of(client)) is not None:
            replies = await aask_pool(pool, error, step)
        elif len(calls) == 1:
            [call] = calls
            await cast(Any, client).initialize()
            replies = [await client.execute_command(*call.words, **cluster_options(client, call))]
        else:
            async with client.pipeline(transaction=False) as pipe:
                for call in calls:
                    pipe.execute_command(*call.words, **cluster_options(client, call))
                replies = until_lost(await pipe.execute(raise_on_error=False), error)
    except AttributeError as failure:
        # Cluster clients may write to a connection that was closed after a failure of another task.
        if pool_of(client) is not None:
            raise
        replies = [connection_lost(error, failure)] * len(calls)
    except errors_of(error) as failure:
        replies = [failure] * len(calls)
    finally:
        if step.finished is not None:
            step.finished()
    return [read(call, reply) for call, reply in zip(calls, replies, strict=True)]


background: set[asyncio.Task[Any]] = set()
"""Background tasks. The event loop holds only weak references to tasks."""


def keep(task: asyncio.Task[Any]) -> None:
    """Keeps a task until it ends, even if no caller awaits it."""

    def ended(task: asyncio.Task[Any]) -> None:
        background.discard(task)
        if not task.cancelled():
            task.exception()

    background.add(task)
    task.add_done_callback(ended)


async def ask_shielded(client: AsyncClient, error: type[Exception], step: Ask) -> list[Any]:
    """Sends commands in a separate task, which continues if the caller is cancelled."""

    async def undo() -> None:
        calls = cast(Any, step.undo)(await asking)
        if calls:
            await aask(client, error, Ask(calls))

    asking = asyncio.create_task(aask(client, error, step) if step.batcher is None else step.batcher.send(step))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        undoing = asyncio.create_task(undo())
        keep(undoing)
        await asyncio.wait([undoing], timeout=UNDO_TIMEOUT_S if step.finished is None else 0)
        raise


async def shield(task: asyncio.Task[R]) -> R:
    """Waits for a task, which continues if the caller is cancelled."""
    keep(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=UNDO_TIMEOUT_S)
        raise


def drive(client: Client, error: type[Exception], steps: Steps[R]) -> R:
    """Runs an operation in this thread."""

    def run(steps: Steps[Any], future: Future[Any]) -> None:
        try:
            future.set_result(drive(client, error, steps))
        except BaseException as failure:
            future.set_exception(failure)

    def perform(step: Step) -> Any:
        if isinstance(step, Ask):
            return ask(client, error, step)
        if isinstance(step, Start):
            future: Future[Any] = Future()
            threading.Thread(target=run, args=(step.steps, future), name="bloomgate load", daemon=True).start()
            wait_for_futures([future], step.seconds)
            return future
        if isinstance(step, Join):
            return step.running.result()
        if isinstance(step, Shield):
            return drive(client, error, step.steps)
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Wait):
            return cast(threading.Event, step.event).wait(step.seconds)
        return step.function()

    try:
        step = next(steps)
        while True:
            try:
                outcome = perform(step)
            except BaseException as failure:
                step = steps.throw(failure)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: R = end.value
        return result


async def adrive(client: AsyncClient, error: type[Exception], steps: Steps[R], is_background: bool = False) -> R:
    """Runs an operation in this task. A task that `is_background` is never cancelled, so its commands need no separate
    task."""

    async def perform(step: Step) -> Any:
        if isinstance(step, Ask):
            return await (aask if is_background or step.undo is None else ask_shielded)(client, error, step)
        if isinstance(step, Start):
            task = asyncio.create_task(adrive(client, error, step.steps))
            keep(task)
            try:
                await asyncio.wait([task], timeout=step.seconds)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait([task], timeout=UNDO_TIMEOUT_S)
                raise
            return task
        if isinstance(step, Join):
            return await cast("asyncio.Task[Any]", step.running)
        if isinstance(step, Shield):
            return await shield(asyncio.create_task(adrive(client, error, step.steps)))
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Wait):
            return await cast(Signal, step.event).wait(step.seconds)
        outcome: Awaitable[Any] = step.function()
        return await outcome

    try:
        step = next(steps)
        while True:
            try:
                outcome = await perform(step)
            except BaseException as failure:
                step = steps.throw(failure)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: R = end.value
        return result
