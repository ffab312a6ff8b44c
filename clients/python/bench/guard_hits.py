"""Lookups per second of cached rows by 64 callers: through the guard, and with the client's own GET. Prints, for each round,
the kind of callers and both rates. The server needs the module; the benchmark deletes the keys that begin with `bench`."""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis

import bloomgate
import bloomgate.asyncio

ROWS = 1000
ROW = b"x" * 200


def prepare(url: str) -> None:
    """Announces and caches every row."""
    client = redis.Redis.from_url(url)
    client.unlink("bench", *[f"{{bench}}:{id}" for id in range(ROWS)])
    bloomgate.fill_filter(client, "bench", range(ROWS), 0.001, ROWS)
    client.mset({f"{{bench}}:{id}": ROW for id in range(ROWS)})
    client.close()


def threads(look_up: Callable[[int], Any], callers: int, lookups: int) -> float:
    """Returns the lookups per second of `callers` threads."""

    def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(lookups // callers):
            assert look_up(chance.randrange(ROWS)) == ROW

    running = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    begun = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return lookups / (time.perf_counter() - begun)


async def tasks(look_up: Callable[[int], Awaitable[Any]], callers: int, lookups: int) -> float:
    """Returns the lookups per second of `callers` tasks."""

    async def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(lookups // callers):
            assert await look_up(chance.randrange(ROWS)) == ROW

    begun = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(callers)))
    return lookups / (time.perf_counter() - begun)


def never(_: Any) -> bytes:
    raise AssertionError("a row was not cached")


async def anever(_: Any) -> bytes:
    return never()


async def measure_tasks(options: argparse.Namespace) -> None:
    async with bloomgate.asyncio.connect(options.url) as client:
        guard = bloomgate.asyncio.Guard(client, "bench", ttl=3600)
        await guard.get(0, anever)
        for _ in range(options.rounds):
            hits = await tasks(lambda id: guard.get(id, anever), options.callers, options.lookups)
            gets = await tasks(lambda id: client.get(f"{{bench}}:{id}"), options.callers, options.lookups)
            print(f"tasks,{hits:.0f},{gets:.0f}")


def measure_threads(options: argparse.Namespace) -> None:
    with bloomgate.connect(options.url) as client:
        guard = bloomgate.Guard(client, "bench", ttl=3600)
        for _ in range(options.rounds):
            hits = threads(lambda id: guard.get(id, never), options.callers, options.lookups)
            gets = threads(lambda id: client.get(f"{{bench}}:{id}"), options.callers, options.lookups)
            print(f"threads,{hits:.0f},{gets:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="redis://host:port")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--lookups", type=int, default=32_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    prepare(options.url)
    measure_threads(options)
    asyncio.run(measure_tasks(options))


if __name__ == "__main__":
    main()
