"""Cancelled tasks: in every state, no lease outlives its task, and each lease is given up once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis
from kinds import until
from server import PATIENCE, Server

from bloomgate import Filter
from bloomgate.asyncio import Guard, connect
from bloomgate.steps import background

LEASE = 3600.0
"""Longer than any test waits, so that a lease that is not given up makes a test fail."""


class Counters:
    """The changes of the server's counters."""

    def __init__(self, probe: redis.Redis) -> None:
        self.probe = probe
        self.before = self.read()

    def read(self) -> dict[str, int]:
        info = self.probe.info("bf")
        return {name: info[f"bf_bloom_{name}"] for name in ("fetches_load", "fills", "fills_refused", "leases")}

    def changes(self) -> dict[str, int]:
        return {name: value - self.before[name] for name, value in self.read().items()}


async def until_asked(guard: Guard[bytes], count: int) -> None:
    """Waits until one task loads the row, and the others have been told to wait."""
    await until(lambda: guard.counts["load"] + guard.counts["wait"] == count)


async def never(_: Any = None) -> bytes:
    await asyncio.sleep(3600)
    return b"never"


async def at_once(_: Any = None) -> bytes:
    return b"row"


def one_row(guard: Guard[bytes], chance: random.Random) -> list[Any]:
    load = chance.choice([never, at_once])
    return [guard.get(1, load) for _ in range(chance.randint(2, 5))]


def rows_of_a_turn(guard: Guard[bytes], chance: random.Random) -> list[Any]:
    return [guard.get(chance.randrange(3), chance.choice([never, at_once])) for _ in range(chance.randint(2, 8))]


def many_rows(guard: Guard[bytes], chance: random.Random) -> list[Any]:
    async def load_many(ids: list[int]) -> dict[int, bytes]:
        return {id: await chance.choice([never, at_once])() for id in ids}

    ids = [range(600), range(300, 900), [1, 2], [2, 400]]
    return [guard.get_many(chance.sample(some, len(some)), load_many) for some in ids]


@pytest.mark.parametrize(("calls", "seeds"), [(one_row, 100), (rows_of_a_turn, 60), (many_rows, 30)])
async def test_cancelled_at_any_turn(probe: redis.Redis, port: int, calls: Callable[..., list[Any]], seeds: int) -> None:
    for seed in range(seeds):
        chance = random.Random(seed)
        counters = Counters(probe)
        async with connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
            guard = Guard(client, "rows", lease=LEASE)
            if chance.random() < 0.5:
                # Opens some connections first.
                await asyncio.gather(*(client.ping() for _ in range(5)))
            tasks = [asyncio.create_task(call) for call in calls(guard, chance)]
            for _ in range(chance.randrange(50)):
                await asyncio.sleep(chance.choice([0, 0, 0.0003]))
            chance.shuffle(tasks)
            for count in (chance.randrange(len(tasks)), len(tasks)):
                for task in tasks[:count]:
                    task.cancel()
                await asyncio.sleep(0)
            ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
            assert len(ended) == len(tasks), "a cancelled task goes on"
            # The server may have ended a lease whose reply is still in transit; a reply that is cut off would count as a
            # failure.
            await until(lambda: not probe.info("bf")["bf_bloom_leases"] and not background)
        changes = counters.changes()
        assert changes["fills"] == changes["fetches_load"], f"seed {seed}: each lease ends once"
        assert changes["fills_refused"] == 0, f"seed {seed}: no lease ends twice"
        probe.delete(*(f"{{rows}}:{id}" for id in range(900)))


def test_a_loop_that_ends(probe: redis.Redis, port: int) -> None:
    """`asyncio.run` cancels all tasks, including the tasks of the guard's commands."""

    async def main() -> None:
        guard = Guard(connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE), "rows", lease=LEASE)
        tasks = [asyncio.create_task(guard.get(1, never)) for _ in range(5)]
        await until_asked(guard, len(tasks))
        left.extend(tasks)

    left: list[Any] = []
    counters = Counters(probe)
    asyncio.run(main())
    assert all(task.cancelled() for task in left)
    assert counters.changes() == {"fetches_load": 1, "fills": 1, "fills_refused": 0, "leases": 0}


async def test_a_server_that_does_not_answer_delays_no_cancellation(start: Callable[..., Server]) -> None:
    server = start()
    probe = server.client()
    Filter(probe, "rows").insert([1], capacity=100)
    async with connect(f"redis://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
        guard = Guard(client, "rows", lease=LEASE)
        await client.ping()
        os.kill(server.process.pid, signal.SIGSTOP)
        task = asyncio.create_task(guard.get(1, at_once))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait([task], timeout=PATIENCE)
        assert ended, "a cancelled task goes on"
        os.kill(server.process.pid, signal.SIGCONT)
        # The command had been sent.
        await until(lambda: probe.info("bf")["bf_bloom_fetches_load"] == 1)
        await until(lambda: not probe.info("bf")["bf_bloom_leases"])
