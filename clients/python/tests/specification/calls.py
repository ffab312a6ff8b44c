"""The calls of the cases, as calls of this package: in threads, and as tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import io
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry
from server import PATIENCE

import bloomgate
import bloomgate.asyncio
from bloomgate import guard_words, items, sharded
from bloomgate.codec import Json

from .words import SpecificationError, item_list, known, one_item


class LoadError(Exception):
    """What a function of an actor raises if the case says so."""


class Fatal(BaseException):
    """What it raises if that is fatal."""


def in_seconds(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options of a case by the names of this package, whose times are all in seconds."""
    return {name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") else value for name, value in options.items()}


def as_value(value: Any, is_json: bool) -> Any:
    """Returns the guard's value that a case names."""
    if value is None or is_json:
        return value
    return value.encode() if isinstance(value, str) else one_item(value)


class Call:
    """A call of one actor. Whenever the client calls the actor's function, `called` gets the argument and a Future for the
    outcome."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name = name
        self.arguments = arguments
        self.called: queue.Queue[tuple[Any, Future[Any]]] = queue.Queue()
        self.pending: Future[Any] | None = None
        self.ended: Future[Any] = Future()
        self.task: asyncio.Task[Any] | None = None

    def begin_function(self, argument: Any) -> Future[Any]:
        outcome: Future[Any] = Future()
        self.called.put((argument, outcome))
        return outcome

    def wait_until_called(self) -> Any:
        for _ in range(PATIENCE):
            with contextlib.suppress(queue.Empty):
                argument, self.pending = self.called.get(timeout=1)
                return argument
            assert not self.ended.done(), f"{self.name} has ended without calling its function: {self.ended!r}"
        raise AssertionError(f"{self.name} has not called its function")

    def take_pending(self) -> Future[Any]:
        if self.pending is None:
            self.wait_until_called()
        pending, self.pending = self.pending, None
        assert pending is not None
        return pending


class Process:
    """What one process of a case has: a client, and the objects of the case, which are made when they are used first."""

    def __init__(self, module: Any, client: Any, case: dict[str, Any]) -> None:
        self.module = module
        self.client = client
        self.case = case
        self.is_json = case.get("guard", {}).get("codec") == "json"
        self.sharded: Any = None

    def outcome(self, argument: tuple[Any, ...], value: Any) -> Any:
        """Returns what an actor's function returns: a row, or from `load_many` the rows by the ids as it got them."""
        if not argument or not isinstance(argument[0], list):
            return as_value(value, self.is_json)
        return {id: as_value(value[str(id)], self.is_json) for id in argument[0] if str(id) in value}

    @cached_property
    def filter(self) -> Any:
        return self.module.Filter(self.client, **self.case["filter"])

    @cached_property
    def guard(self) -> Any:
        options = in_seconds(self.case["guard"])
        codec = options.pop("codec", None)
        if codec not in (None, "json"):
            raise SpecificationError(f"unknown codec {codec}")
        return self.module.Guard(self.client, codec=Json() if codec else None, **options)


class Threads:
    """Calls in threads of their own."""

    abilities = frozenset({"timeout", "pool", "share", "pause", "fatal", "resp2", "resp3"})
    module: Any = bloomgate

    def __init__(self, case: dict[str, Any], port: int, is_cluster: bool, options: dict[str, Any]) -> None:
        self.case, self.port, self.is_cluster, self.options = case, port, is_cluster, options
        self.processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        if name not in self.processes:
            self.processes[name] = Process(self.module, self.connect(), self.case)
        return self.processes[name]

    def connect(self) -> Any:
        if self.is_cluster:
            return redis.RedisCluster(host="127.0.0.1", port=self.port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 0))
        return self.module.connect(f"redis://127.0.0.1:{self.port}", **self.options)

    def start(self, process: str, calls: list[Call]) -> None:
        for call in calls:
            threading.Thread(target=self.run, args=(self.process(process), call), daemon=True).start()

    def run(self, process: Process, call: Call) -> None:
        try:
            call.ended.set_result(self.perform(process, call))
        except BaseException as error:
            call.ended.set_exception(error)

    def perform(self, process: Process, call: Call) -> Any:
        def function(*argument: Any) -> Any:
            outcome = call.begin_function(argument[0] if argument else None).result(PATIENCE)
            return process.outcome(argument, outcome)

        if call.name == "guard.changed":
            with process.guard.changed(*item_list(call.arguments["ids"])):
                return function()
        return result_of(process, call, perform(process, call, function))

    def close(self) -> None:
        for process in self.processes.values():
            process.client.close()


class Tasks(Threads):
    """Calls as tasks of one event loop, which runs in a thread of its own."""

    abilities = Threads.abilities | {"cancel", "turns"}
    module = bloomgate.asyncio

    def __init__(self, case: dict[str, Any], port: int, is_cluster: bool, options: dict[str, Any]) -> None:
        super().__init__(case, port, is_cluster, options)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def connect(self) -> Any:
        if self.is_cluster:
            return redis.asyncio.RedisCluster(
                host="127.0.0.1", port=self.port, socket_timeout=PATIENCE, retry=redis.asyncio.retry.Retry(NoBackoff(), 0)
            )
        return super().connect()

    def start(self, process: str, calls: list[Call]) -> None:
        def ended(call: Call, task: asyncio.Task[Any]) -> None:
            if not call.ended.done():
                # It was cancelled before its first step.
                call.ended.set_exception(asyncio.CancelledError())

        def begin() -> None:
            for call in calls:
                call.task = self.loop.create_task(self.arun(process, call))
                call.task.add_done_callback(functools.partial(ended, call))

        self.loop.call_soon_threadsafe(begin)

    def cancel(self, call: Call) -> None:
        self.loop.call_soon_threadsafe(lambda: call.task and call.task.cancel())

    async def arun(self, process: str, call: Call) -> None:
        try:
            call.ended.set_result(await self.aperform(self.process(process), call))
        except BaseException as error:
            call.ended.set_exception(error)

    async def aperform(self, process: Process, call: Call) -> Any:
        async def function(*argument: Any) -> Any:
            outcome = await asyncio.wrap_future(call.begin_function(argument[0] if argument else None))
            return process.outcome(argument, outcome)

        if call.name == "guard.changed":
            async with process.guard.changed(*item_list(call.arguments["ids"])):
                return await function()
        found = perform(process, call, function)
        return result_of(process, call, await found if inspect.isawaitable(found) else found)

    def close(self) -> None:
        async def close() -> None:
            for process in self.processes.values():
                await process.client.aclose()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()


PURE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "item_bytes": lambda given: items.item_bytes(one_item(given["item"])),
    "shard_of": lambda given: sharded.shard_of(items.item_bytes(one_item(given["item"])), given["shards"]),
    "shard_capacity": lambda given: sharded.shard_capacity(given["capacity"], given["shards"]),
    "shard_key": lambda given: sharded.shard_key(given["name"], given["shard"]),
    "cache_prefix": lambda given: guard_words.cache_prefix(given["filter"].encode()),
    "filling_name": lambda given: guard_words.filling_name(given["filter"].encode()),
}
"""Calls that need no server."""

METHODS = {
    "filter": {"reserve", "card", "info", "stats", "clear", "drop", "add", "exists", "delete", "count"}
    | {"add_many", "exists_many", "delete_many", "dump", "load"},
    "sharded": {"add", "exists", "add_many", "exists_many", "delete_many", "card", "double", "drop"},
    "guard": {"get", "get_nested", "get_many", "announce", "confirm", "forget"},
}


def perform(process: Process, call: Call, function: Callable[..., Any]) -> Any:
    """Begins a call. Returns its result, or under asyncio what awaits it."""
    given = dict(call.arguments)
    if call.name in PURE:
        return PURE[call.name](given)
    if call.name == "plan":
        return process.module.plan(process.client, **given)
    if call.name == "fill_filter":
        return process.module.fill_filter(process.client, ids=item_list(given.pop("ids")), **in_seconds(given))
    if call.name in ("sharded.open", "sharded.create"):
        make = getattr(process.module.ShardedFilter, call.name.removeprefix("sharded."))
        return make(process.client, **process.case["sharded"], **given)
    kind, _, method = call.name.partition(".")
    if method not in METHODS.get(kind, set()):
        raise SpecificationError(f"unknown call {call.name}")
    if method == "get_nested":
        id = one_item(given.pop("id"))
        return process.guard.get(id, lambda _: process.guard.get(id, function), **given)
    run = getattr(getattr(process, kind), method)
    if "items" in given:
        return run(item_list(given.pop("items")), **given)
    if "item" in given:
        return run(one_item(given.pop("item")), **given)
    if call.name == "guard.get":
        return run(one_item(given.pop("id")), function, **given)
    if call.name == "guard.get_many":
        return run(item_list(given.pop("ids")), function, **given)
    if kind == "guard":
        known(call.name, set(given), {"ids"})
        return run(*item_list(given["ids"]))
    if call.name == "filter.dump":
        call.arguments["into"] = io.BytesIO()
        return run(call.arguments["into"])
    if call.name == "filter.load":
        return run(io.BytesIO(one_item(given.pop("file"))), **given)
    return run(**given)


def result_of(process: Process, call: Call, found: Any) -> Any:
    """Returns the result of a call as JSON would write it."""
    if call.name in ("sharded.open", "sharded.create"):
        process.sharded = found
        return found.shards if call.name == "sharded.open" else None
    if call.name == "filter.dump":
        return {"hex": call.arguments["into"].getvalue().hex()}
    if call.name == "item_bytes":
        return {"hex": found.hex()}
    if call.name == "guard.get_many":
        return [[plain(id), plain(row)] for id, row in found.items()]
    return plain(found)


def plain(found: Any) -> Any:
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return plain(dataclasses.asdict(found))
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    if isinstance(found, bytes):
        try:
            return found.decode()
        except UnicodeDecodeError:
            return {"hex": found.hex()}
    return found
