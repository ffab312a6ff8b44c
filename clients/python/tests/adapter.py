"""Makes the calls of the cases in clients/specification: it reads messages from its standard input, and answers on its standard output.
The README.md there describes them. The argument is the flavour: `threads` or `tasks`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import inspect
import itertools
import json
import logging
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff

import bloomgate
import bloomgate.asyncio
from bloomgate import guard_options, items, sharded
from bloomgate.codec import Json

PATIENCE = 120
"""Longer than the duration of any case."""

ABILITIES = ["timeout", "pool", "share", "pause", "fatal", "background", "transaction", "resp2", "resp3", "sharded"]


class LoadError(Exception):
    """The error that an actor's function raises on request of a case."""


class Fatal(BaseException):
    """The error that an actor's function raises if it is fatal."""


class UnknownError(Exception):
    """A message of the runner that this adapter does not understand."""


NAMES: dict[str, Any] = {
    "load": LoadError,
    "fatal": Fatal,
    "unknown": UnknownError,
    "refused": (TypeError, ValueError),
    "connection": (redis.ConnectionError, redis.TimeoutError),
    "server": redis.ResponseError,
    "cancelled": (asyncio.CancelledError, concurrent.futures.CancelledError),
    "TimeoutError": TimeoutError,
    **{name: kind for name, kind in vars(bloomgate).items() if inspect.isclass(kind) and issubclass(kind, bloomgate.BloomgateError)},
}
"""The errors by their names in the cases."""

output = threading.Lock()
numbers = itertools.count(1)


def say(**message: Any) -> None:
    line = json.dumps(message)
    with output:
        print(line, flush=True)


def item(of: Any) -> Any:
    """Returns an item, an id or a value that a case names."""
    match of:
        case {"hex": digits}:
            return bytes.fromhex(digits)
        case {"integer": digits}:
            return int(digits)
        case {"boolean": value} | {"float": value}:
            return value
        case {"null": True}:
            return None
        case {"utf16": units}:
            return "".join(map(chr, units))
        case dict():
            raise UnknownError(f"unknown item {of}")
    return of


def item_list(of: Any) -> Any:
    """Returns items. A text in place of a batch is passed on, and the client refuses it."""
    return [item(one) for one in of] if isinstance(of, list) else of


def plain(found: Any) -> Any:
    """Converts a result to JSON values."""
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


def in_seconds(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a case under the names of this package, whose times are all in seconds."""
    return {name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") else value for name, value in options.items()}


class Process:
    """The state of one process of a case: a client, and the objects of the case, which are created on first use."""

    def __init__(self, module: Any, case: dict[str, Any]) -> None:
        self.module = module
        self.case = case
        self.is_json = case.get("guard", {}).get("codec") == "json"
        self.sharded: Any = None
        chosen, ports = case.get("client", {}), case["ports"]
        if len(ports) > 1:
            library = redis.asyncio if module is bloomgate.asyncio else redis
            retry = library.retry.Retry(NoBackoff(), 0)  # type: ignore[attr-defined]
            self.client: Any = library.RedisCluster(host="127.0.0.1", port=ports[0], socket_timeout=PATIENCE, retry=retry)
        else:
            options = {"max_connections": chosen["connections"]} if "connections" in chosen else {}
            timeout_s = chosen.get("timeout_ms", PATIENCE * 1000) / 1000
            url = f"redis://127.0.0.1:{ports[0]}"
            self.client = module.connect(url, protocol=case["protocol"], socket_timeout=timeout_s, timeout=PATIENCE, **options)

    @cached_property
    def filter(self) -> Any:
        return self.module.Filter(self.client, **self.case["filter"])

    @cached_property
    def guard(self) -> Any:
        options = in_seconds(self.case["guard"])
        return self.module.Guard(self.client, codec=Json() if options.pop("codec", None) else None, **options)

    def value(self, value: Any) -> Any:
        """Returns the value of the guard for a value in a case."""
        if value is None or self.is_json:
            return value
        return value.encode() if isinstance(value, str) else item(value)

    def outcome(self, argument: tuple[Any, ...], value: Any) -> Any:
        """Returns the result of an actor's function: a row, or for `load_many` the rows by the ids that it received."""
        if not argument or not isinstance(argument[0], list):
            return self.value(value)
        return {id: self.value(value[str(id)]) for id in argument[0] if str(id) in value}


PURE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "item_bytes": lambda given: {"hex": items.item_bytes(item(given["item"])).hex()},
    "shard_of": lambda given: sharded.shard_of(items.item_bytes(item(given["item"])), given["shards"]),
    "shard_capacity": lambda given: sharded.shard_capacity(given["capacity"], given["shards"]),
    "shard_key": lambda given: sharded.shard_key(given["name"], given["shard"]),
    "cache_prefix": lambda given: guard_options.cache_prefix(given["filter"].encode()),
    "filling_name": lambda given: guard_options.filling_name(given["filter"].encode()),
}
"""Calls that need no server."""


def perform(process: Process, name: str, given: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Begins a call. Returns its result, or under asyncio an awaitable of it."""
    module, kind, method = process.module, *name.partition(".")[::2]
    if name in PURE:
        return PURE[name](given)
    if name == "plan":
        return module.plan(process.client, **given)
    if name == "fill_filter":
        return module.fill_filter(process.client, ids=item_list(given.pop("ids")), **in_seconds(given))
    if name in ("sharded.open", "sharded.create"):
        return getattr(module.ShardedFilter, method)(process.client, **process.case["sharded"], **given)
    if method == "get_nested":
        id = item(given.pop("id"))
        return process.guard.get(id, lambda _: process.guard.get(id, function), **given)
    run = getattr(getattr(process, kind), method, None) if kind in ("filter", "guard", "sharded") else None
    if run is None:
        raise UnknownError(f"unknown call {name}")
    if name in ("guard.get", "guard.get_in_transaction"):
        return run(item(given.pop("id")), function, **given)
    if name == "guard.get_many":
        return run(item_list(given.pop("ids")), function, **given)
    if kind == "guard":
        return run(*item_list(given["ids"]))
    if "items" in given:
        return run(item_list(given.pop("items")), **given)
    return run(item(given.pop("item")), **given) if "item" in given else run(**given)


def result_of(process: Process, name: str, given: dict[str, Any], found: Any) -> Any:
    if name in ("sharded.open", "sharded.create"):
        process.sharded = found
        return found.shards if name == "sharded.open" else None
    return [[id, row] for id, row in found.items()] if name == "guard.get_many" else found


class Threads:
    """Runs each call in a separate thread."""

    abilities = ABILITIES
    module: Any = bloomgate

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}
        self.functions: dict[int, concurrent.futures.Future[Any]] = {}

    def run_forever(self) -> None:
        for line in sys.stdin:
            self.take(json.loads(line))

    def take(self, message: dict[str, Any]) -> None:
        """Executes a message."""
        match message:
            case {"open": number}:
                self.processes[number] = Process(self.module, message)
                say(done=message["id"])
            case {"close": number}:
                self.close(self.processes.pop(number), message["id"])
            case {"cancel": number}:
                self.cancel(number, message["id"])
            case {"return": number, "value": value}:
                self.functions.pop(number).set_result(value)
            case {"raise": number, "message": text, "fatal": is_fatal}:
                self.functions.pop(number).set_exception((Fatal if is_fatal else LoadError)(text))
            case {"start": calls, "process": number}:
                for call in calls:
                    self.start(self.processes[number], call)

    def called(self, id: int, ids: Any) -> concurrent.futures.Future[Any]:
        """Reports that the client calls an actor's function."""
        number = next(numbers)
        outcome = self.functions[number] = concurrent.futures.Future()
        say(called=id, function=number, ids=plain(ids))
        return outcome

    def start(self, process: Process, call: dict[str, Any]) -> None:
        threading.Thread(target=self.run, args=(process, call), daemon=True).start()

    def cancel(self, id: int, request: int) -> None:
        say(done=request, error="a call in a thread cannot be cancelled")

    def close(self, process: Process, request: int) -> None:
        process.client.close()
        say(done=request)

    def run(self, process: Process, call: dict[str, Any]) -> None:
        try:
            result = self.perform(process, call["id"], call["call"], call["with"])
        except BaseException as error:
            self.fail(call["id"], error)
        else:
            say(end=call["id"], result=plain(result))

    def perform(self, process: Process, id: int, name: str, given: dict[str, Any]) -> Any:
        def function(*argument: Any) -> Any:
            return process.outcome(argument, self.called(id, argument[0] if argument else None).result(PATIENCE))

        if name == "guard.changed":
            with process.guard.changed(*item_list(given["ids"])):
                return function()
        return result_of(process, name, given, perform(process, name, given, function))

    def fail(self, id: int, error: BaseException) -> None:
        """Reports the error of a call."""
        names = [name for name, kind in NAMES.items() if isinstance(error, kind)]
        ids = [one.decode() if isinstance(one, bytes) else str(one) for one in getattr(error, "ids", None) or ()]
        say(end=id, error=names, message=str(error), answers=getattr(error, "answers", None), ids=ids)


class Tasks(Threads):
    """Runs calls as tasks of one event loop. A thread reads the messages."""

    abilities = [*ABILITIES, "cancel", "turns"]
    module = bloomgate.asyncio

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def run_forever(self) -> None:
        async def run() -> None:
            loop = self.loop = asyncio.get_running_loop()
            reading = threading.Thread(target=self.read, daemon=True)
            reading.start()
            await loop.run_in_executor(None, reading.join)

        asyncio.run(run())

    def read(self) -> None:
        for line in sys.stdin:
            self.loop.call_soon_threadsafe(self.take, json.loads(line))

    def start(self, process: Process, call: dict[str, Any]) -> None:
        task = self.tasks[call["id"]] = self.loop.create_task(self.arun(process, call))
        task.add_done_callback(functools.partial(self.ended, call["id"]))

    def ended(self, id: int, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # The call was cancelled before its first step.
            self.fail(id, asyncio.CancelledError())
        del self.tasks[id]

    def cancel(self, id: int, request: int) -> None:
        if id in self.tasks:
            self.tasks[id].cancel()
        say(done=request)

    def close(self, process: Process, request: int) -> None:
        async def close() -> None:
            await process.client.aclose()
            say(done=request)

        self.tasks[-request] = self.loop.create_task(close())

    async def arun(self, process: Process, call: dict[str, Any]) -> None:
        try:
            result = await self.aperform(process, call["id"], call["call"], call["with"])
        except BaseException as error:
            self.fail(call["id"], error)
        else:
            say(end=call["id"], result=plain(result))

    async def aperform(self, process: Process, id: int, name: str, given: dict[str, Any]) -> Any:
        async def function(*argument: Any) -> Any:
            outcome = await asyncio.wrap_future(self.called(id, argument[0] if argument else None))
            return process.outcome(argument, outcome)

        if name == "guard.changed":
            async with process.guard.changed(*item_list(given["ids"])):
                return await function()
        found = perform(process, name, given, function)
        return result_of(process, name, given, await found if inspect.isawaitable(found) else found)


if __name__ == "__main__":
    # The cases make the client warn.
    logging.disable()
    flavour = {"threads": Threads, "tasks": Tasks}[sys.argv[1]]()
    say(abilities=flavour.abilities)
    flavour.run_forever()
