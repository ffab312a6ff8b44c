"""Tasks that are cancelled: whatever they were doing, no lease outlives them, and each is given up once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from server import PATIENCE, Server

from bloomgate import Filter
from bloomgate.asyncio import Guard, connect

LEASE = 3600.0
"""Longer than any test waits: a lease that is not given up is noticed."""


@pytest.fixture
async def client(port: int) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
        yield client


class Counters:
    """How the server's counters have changed."""

    def __init__(self, probe: redis.Redis) -> None:
        self.probe = probe
        self.before = self.read()

    def read(self) -> dict[str, int]:
        info = self.probe.info("bf")
        return {name: info[f"bf_bloom_{name}"] for name in ("fetches_load", "fills", "fills_refused", "leases")}

    def changes(self) -> dict[str, int]:
        return {name: value - self.before[name] for name, value in self.read().items()}


async def until(condition: Callable[[], Any]) -> None:
    """Lets other tasks run until the condition holds."""
    for _ in range(PATIENCE * 1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition never came true")


async def settled(probe: redis.Redis) -> None:
    """Waits until no lease is left."""
    await until(lambda: not probe.info("bf")["bf_bloom_leases"])


async def until_asked(guard: Guard[bytes], count: int) -> None:
    """Waits until one task loads the row, and the others have been told to wait."""
    await until(lambda: guard.counts["load"] + guard.counts["wait"] == count)


async def never(_: Any = None) -> bytes:
    await asyncio.sleep(3600)
    return b"never"


async def at_once(_: Any = None) -> bytes:
    return b"row"


async def cancel_together(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancels all tasks in one turn of the loop, and waits until they have ended."""
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
    assert len(ended) == len(tasks), "a cancelled task goes on"


@pytest.mark.parametrize("load", [never, at_once])
@pytest.mark.parametrize("is_warm", [False, True], ids=["new-connections", "open-connections"])
async def test_cancelled_together_at_any_turn(
    probe: redis.Redis, port: int, load: Callable[[Any], Awaitable[bytes]], is_warm: bool
) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        counters = Counters(probe)
        async with connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
            guard = Guard(client, "rows", lease=LEASE)
            count = chance.randint(2, 5)
            if is_warm:
                await asyncio.gather(*(client.ping() for _ in range(count)))
            tasks = [asyncio.create_task(guard.get(seed, load)) for _ in range(count)]
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(chance.choice([0, 0, 0.0003]))
            chance.shuffle(tasks)
            await cancel_together(tasks)
            await settled(probe)
        changes = counters.changes()
        assert changes["fills"] == changes["fetches_load"], f"seed {seed}: each lease ends once"
        assert changes["fills_refused"] == 0, f"seed {seed}: no lease ends twice"


async def test_cancelled_while_one_loads_and_others_wait(probe: redis.Redis, client: redis.asyncio.Redis) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        counters = Counters(probe)
        guard = Guard(client, "rows", lease=LEASE)
        tasks = [asyncio.create_task(guard.get(seed, never)) for _ in range(chance.randint(2, 5))]
        await until_asked(guard, len(tasks))
        chance.shuffle(tasks)
        await cancel_together(tasks)
        await settled(probe)
        assert counters.changes() == {"fetches_load": 1, "fills": 1, "fills_refused": 0, "leases": 0}, f"seed {seed}"


async def test_the_others_load_if_one_is_cancelled(probe: redis.Redis, client: redis.asyncio.Redis) -> None:
    guard = Guard(client, "rows", lease=LEASE)
    loading = asyncio.create_task(guard.get(1, never))
    await until(lambda: guard.counts["load"])
    others = [asyncio.create_task(guard.get(1, at_once)) for _ in range(4)]
    await until(lambda: guard.counts["wait"] == 4)
    await cancel_together([loading, others[0]])
    assert await asyncio.gather(*others[1:]) == [b"row"] * 3
    assert guard.counts["load"] == 2 and guard.counts["unguarded"] == 0


async def test_cancelled_while_another_process_loads(probe: redis.Redis, client: redis.asyncio.Redis) -> None:
    word, token = probe.execute_command("BF.FETCH", "rows", 1, "{rows}:1", "LEASE", round(1000 * LEASE))
    assert word == b"load"
    guard = Guard(client, "rows", lease=LEASE)
    tasks = [asyncio.create_task(guard.get(1, at_once)) for _ in range(3)]
    await until(lambda: probe.info("clients")["blocked_clients"])
    assert probe.info("clients")["blocked_clients"] == 1, "the others wait in the process"
    await cancel_together(tasks)
    # The server does not know yet that nobody waits, and gives the lease to the one that did.
    assert probe.execute_command("BF.FILL", "rows", 1, "{rows}:1", token, "GIVEUP") == b"OK"
    await settled(probe)


async def test_many_rows_cancelled_at_any_turn(probe: redis.Redis, port: int) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        counters = Counters(probe)
        async with connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
            guard = Guard(client, "rows", lease=LEASE)

            async def load_many(ids: list[int], chance: random.Random = chance) -> dict[int, bytes]:
                return {id: await chance.choice([never, at_once])() for id in ids}

            ids = [range(600), range(300, 900), [1, 2], [2, 400]]
            tasks = [asyncio.create_task(guard.get_many(chance.sample(some, len(some)), load_many)) for some in ids]
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(chance.choice([0, 0, 0.0003]))
            await cancel_together(tasks)
            await settled(probe)
        changes = counters.changes()
        assert changes["fills"] == changes["fetches_load"] and changes["fills_refused"] == 0, f"seed {seed}"
        probe.delete(*(f"{{rows}}:{id}" for id in range(900)))


def test_a_loop_that_ends(probe: redis.Redis, port: int) -> None:
    """`asyncio.run` cancels every task there is, those of the guard's own commands included."""

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
        await cancel_together([task])
        os.kill(server.process.pid, signal.SIGCONT)
        # The command had been sent.
        await until(lambda: probe.info("bf")["bf_bloom_fetches_load"] == 1)
        await settled(probe)
