"""How one implementation serves both threads and asyncio: an operation is a generator that yields what it wants done
(`Ask`, `Sleep`, `Do`) and is sent the outcome. `drive` does these things in the calling thread, `adrive` awaits them."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from .words import Word

T = TypeVar("T")
R = TypeVar("R")


class Client(Protocol):
    """What is used of a client: `redis.Redis`, `redis.RedisCluster`, `valkey.Valkey` and the like."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, transaction: Any = ...) -> Any: ...


class AsyncClient(Protocol):
    """The same of `redis.asyncio`."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, transaction: Any = ...) -> Any: ...


def same(reply: Any) -> Any:
    return reply


@dataclass(frozen=True)
class Call(Generic[T]):
    """A command, and how its reply is read. All strings of the reply come as bytes, whatever the client decodes. A
    `keyless` command is one that any node of a cluster may answer."""

    words: Sequence[Word]
    parse: Callable[[Any], T] = same
    keyless: bool = False


@dataclass(frozen=True)
class Ask:
    """Commands to send together. The outcome is a list with the result of each, or the exception in its place."""

    calls: Sequence[Call[Any]]


@dataclass(frozen=True)
class Sleep:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True)
class Do:
    """A function of the caller's to call, and to await under asyncio. What it raises is raised where it was yielded."""

    function: Callable[[], Any]


Step = Ask | Sleep | Do
Steps = Generator[Step, Any, R]


def client_error(client: object) -> type[Exception]:
    """The root of the client library's errors: RedisError or ValkeyError."""
    for ancestor in type(client).__mro__:
        library = ancestor.__module__.partition(".")[0]
        if library in ("redis", "valkey"):
            exceptions = importlib.import_module(f"{library}.exceptions")
            error: type[Exception] = getattr(exceptions, "RedisError", None) or exceptions.ValkeyError
            return error
    raise TypeError(f"a client of redis-py or valkey-py is needed, not {type(client).__name__}")


def is_cluster(client: object) -> bool:
    """Whether the client routes commands by their keys."""
    return hasattr(client, "get_random_node") or hasattr(client, "nodes_manager")


def options(client: object, call: Call[Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"NEVER_DECODE": True}
    if call.keyless and is_cluster(client):
        chosen["target_nodes"] = cast(Any, client).get_random_node()
    return chosen


def read(call: Call[Any], reply: Any) -> Any:
    return reply if isinstance(reply, Exception) else call.parse(reply)


def ask(client: Client, error: type[Exception], calls: Sequence[Call[Any]]) -> list[Any]:
    try:
        if len(calls) == 1:
            [call] = calls
            return [read(call, client.execute_command(*call.words, **options(client, call)))]
        with client.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.execute_command(*call.words, **options(client, call))
            replies = pipe.execute(raise_on_error=False)
    except error as trouble:
        return [trouble] * len(calls)
    return [read(call, reply) for call, reply in zip(calls, replies, strict=True)]


async def aask(client: AsyncClient, error: type[Exception], calls: Sequence[Call[Any]]) -> list[Any]:
    try:
        if len(calls) == 1:
            [call] = calls
            if call.keyless and is_cluster(client):
                await cast(Any, client).initialize()
            return [read(call, await client.execute_command(*call.words, **options(client, call)))]
        async with client.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.execute_command(*call.words, **options(client, call))
            replies = await pipe.execute(raise_on_error=False)
    except error as trouble:
        return [trouble] * len(calls)
    return [read(call, reply) for call, reply in zip(calls, replies, strict=True)]


def drive(client: Client, error: type[Exception], steps: Steps[R]) -> R:
    """Runs an operation in this thread."""

    def perform(step: Step) -> Any:
        if isinstance(step, Ask):
            return ask(client, error, step.calls)
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        return step.function()

    try:
        step = next(steps)
        while True:
            try:
                outcome = perform(step)
            except BaseException as trouble:
                step = steps.throw(trouble)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: R = end.value
        return result


async def adrive(client: AsyncClient, error: type[Exception], steps: Steps[R]) -> R:
    """Runs an operation in this task."""

    async def perform(step: Step) -> Any:
        if isinstance(step, Ask):
            return await aask(client, error, step.calls)
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        outcome: Awaitable[Any] = step.function()
        return await outcome

    try:
        step = next(steps)
        while True:
            try:
                outcome = await perform(step)
            except BaseException as trouble:
                step = steps.throw(trouble)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: R = end.value
        return result
