"""Many rows in one command: `get_many`, changes of many rows, and what tasks ask for in one turn of the event loop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio
from rows import Rows
from server import PATIENCE

import bloomgate.asyncio
from bloomgate import Filter, Guard, Unconfirmed
from bloomgate.steps import background

LEASE = 3600.0
"""Longer than any test waits: a lease that is not given up is noticed."""


@pytest.fixture
def rows() -> Rows:
    rows = Rows()
    for id in range(1000):
        rows.save(id, b"%d" % id)
    return rows


@pytest.fixture
async def guard(probe: redis.Redis, port: int) -> AsyncIterator[bloomgate.asyncio.Guard[bytes]]:
    async with bloomgate.asyncio.connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
        yield bloomgate.asyncio.Guard(client, "rows", lease=LEASE, beta=0)


class Commands:
    """The guard's commands that the server has executed since."""

    def __init__(self, probe: redis.Redis) -> None:
        self.probe = probe
        self.before = self.read()

    def read(self) -> Counter[str]:
        stats = self.probe.info("commandstats").items()
        return Counter({name.removeprefix("cmdstat_").upper(): one["calls"] for name, one in stats if "bf." in name.lower()})

    def executed(self) -> dict[str, int]:
        return dict(self.read() - self.before)


async def test_the_fetches_of_one_turn(guard: bloomgate.asyncio.Guard[bytes], probe: redis.Redis, rows: Rows) -> None:
    commands = Commands(probe)
    ids = [*range(100), *range(5000, 5300)]
    wanted = [b"%d" % id if id < 1000 else None for id in ids]
    assert await asyncio.gather(*(guard.get(id, rows.aload) for id in ids)) == wanted
    assert commands.executed() == {"BF.MFETCH": 1, "BF.FILL": 100}
    commands = Commands(probe)
    assert await asyncio.gather(*(guard.get(id, rows.aload) for id in ids)) == wanted
    assert await guard.get(1, rows.aload) == b"1"
    assert commands.executed() == {"BF.MFETCH": 1, "BF.FETCH": 1} and rows.queries == 100
    commands = Commands(probe)
    assert await asyncio.gather(*(guard.get(id, rows.aload) for id in range(5000, 6200))) == [None] * 1200
    assert commands.executed() == {"BF.MFETCH": 3}


async def test_one_row_for_many_tasks(guard: bloomgate.asyncio.Guard[bytes], probe: redis.Redis, rows: Rows) -> None:
    loads = 0

    async def load(_: Any) -> bytes:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0.01)
        return b"row"

    assert await asyncio.gather(*(guard.get(7, load) for _ in range(20))) == [b"row"] * 20
    assert loads == 1 and guard.counts["load"] == 1 and guard.counts["wait"] >= 19
    assert await asyncio.gather(*(guard.get(7, load) for _ in range(20))) == [b"row"] * 20 and loads == 1
    stale: bloomgate.asyncio.Guard[bytes] = bloomgate.asyncio.Guard(guard.client, "rows", ttl=0.001, fail_safe=3600, beta=0)
    probe.set("{rows}:8", b"old", ex=60)
    found = await asyncio.gather(*(stale.get(8, load) for _ in range(20)))
    assert sorted(found) == [b"old"] * 19 + [b"row"] and loads == 2


async def test_a_crowd_for_one_row(guard: bloomgate.asyncio.Guard[bytes], probe: redis.Redis) -> None:
    """Those that wait share one answer. Were each to fetch, the process would do little else for seconds."""
    crowd = 10_000

    async def load(_: Any) -> bytes:
        while sum(len(row.waiting) for row in guard._steps.flights._rows.values()) < crowd - 1:
            await asyncio.sleep(0)
        return b"row"

    commands = Commands(probe)
    assert await asyncio.gather(*(guard.get(7, load) for _ in range(crowd))) == [b"row"] * crowd
    assert commands.executed() == {"BF.FETCH": 2, "BF.FILL": 1} and guard.counts["shared"] == crowd - 2


async def test_an_error_for_one_row(guard: bloomgate.asyncio.Guard[bytes], probe: redis.Redis, rows: Rows) -> None:
    probe.lpush("{rows}:3", 1)
    assert await asyncio.gather(*(guard.get(id, rows.aload) for id in range(10))) == [b"%d" % id for id in range(10)]
    assert guard.counts["errors"] == 1 and guard.counts["unguarded"] == 1 and guard.counts["filled"] == 9
    assert await guard.get_many(range(10), rows.aload_many) == {id: b"%d" % id for id in range(10)}
    assert guard.counts["errors"] == 2


async def test_tasks_that_are_cancelled_at_any_turn(probe: redis.Redis, port: int) -> None:
    async def never(_: Any) -> bytes:
        await asyncio.sleep(3600)
        return b"never"

    async def at_once(_: Any) -> bytes:
        return b"row"

    for seed in range(60):
        chance = random.Random(seed)
        before = probe.info("bf")
        async with bloomgate.asyncio.connect(f"redis://127.0.0.1:{port}", timeout=PATIENCE) as client:
            guard = bloomgate.asyncio.Guard(client, "rows", lease=LEASE)
            ids = [10 * seed + chance.randrange(3) for _ in range(chance.randint(2, 8))]
            tasks = [asyncio.create_task(guard.get(id, chance.choice([never, at_once]))) for id in ids]
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(chance.choice([0, 0, 0.0003]))
            chance.shuffle(tasks)
            for count in (len(tasks) // 2, len(tasks)):
                for task in tasks[:count]:
                    task.cancel()
                await asyncio.sleep(0)
            ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
            assert len(ended) == len(tasks), "a cancelled task goes on"
            for _ in range(PATIENCE * 1000):
                after = probe.info("bf")
                if not after["bf_bloom_leases"] and not background:
                    # A reply that is cut off counts as a failure: the lease is given up once more.
                    break
                await asyncio.sleep(0.001)
        leases, fills = (after[name] - before[name] for name in ("bf_bloom_fetches_load", "bf_bloom_fills"))
        assert not after["bf_bloom_leases"] and fills == leases, f"seed {seed}: each lease ends once"
        assert after["bf_bloom_fills_refused"] == before["bf_bloom_fills_refused"], f"seed {seed}: no lease ends twice"


async def test_a_client_that_fails_by_itself(guard: bloomgate.asyncio.Guard[bytes], rows: Rows) -> None:
    """What the client raises that is no error of the server reaches the callers."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    guard.client.execute_command = guard.client.pipeline = fail  # type: ignore[method-assign]
    found = await asyncio.gather(*(guard.get(id, rows.aload) for id in (1, 2)), return_exceptions=True)
    assert [str(one) for one in found] == ["a bug"] * 2


def test_many_rows(probe: redis.Redis, rows: Rows) -> None:
    Filter(probe, "{rows}~filling").reserve(0.01, 1000)
    guard = Guard(probe, "rows", announce_to=["{rows}~filling"], beta=0)
    commands = Commands(probe)
    with guard.changed(*range(600)):
        pass
    assert commands.executed() == {"BF.MCHANGED": 8}
    assert Filter(probe, "{rows}~filling").exists_many(range(600)) == [True] * 600
    commands = Commands(probe)
    assert guard.get_many(range(300), rows.load_many) == {id: b"%d" % id for id in range(300)}
    assert guard.get_many(range(300), rows.load_many) == {id: b"%d" % id for id in range(300)}
    assert commands.executed() == {"BF.MFETCH": 2, "BF.FILL": 300} and rows.batches == 1
    with guard.changed(1, 2):
        assert probe.exists("{rows}:1", "{rows}:2", "{rows}:3") == 1


def test_a_filter_that_becomes_full(probe: redis.Redis) -> None:
    Filter(probe, "full").reserve(0.0001, 10, nonscaling=True)
    guard = Guard(probe, "full", patience=0)
    with pytest.raises(redis.ResponseError, match="full"):
        guard.announce(*range(100))
    with pytest.raises(Unconfirmed) as failed:
        guard.confirm(*range(100))
    assert 80 <= len(failed.value.ids) <= 90, "the others were announced"
    Filter(probe, "full").drop()
    guard.announce(*range(100))


class OldClient(redis.Redis):
    """A client of a server whose module has no batches."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] in ("BF.MFETCH", "BF.MCHANGED"):
            raise redis.ResponseError(f"unknown command '{args[0]}', with args beginning with: ")
        return super().execute_command(*args, **options)


@pytest.mark.parametrize("has_permission", [True, False])
def test_a_server_without_batches(probe: redis.Redis, port: int, rows: Rows, has_permission: bool) -> None:
    if has_permission:
        client: redis.Redis = OldClient(port=port)
    else:
        probe.execute_command("ACL", "SETUSER", "old", "on", "nopass", "~*", "+@all", "-bf.mfetch", "-bf.mchanged")
        client = redis.Redis(port=port, username="old", password="any")
    guard = Guard(client, "rows")
    with guard.changed(1, 2):
        pass
    guard._steps.has_batches = True
    assert guard.get_many([1, 2, 5000], rows.load_many) == {1: b"1", 2: b"2", 5000: None}
    assert guard.counts["filled"] == 2 and guard.counts["errors"] == 0 and not guard._steps.has_batches
    if not has_permission:
        probe.execute_command("ACL", "DELUSER", "old")


async def test_a_cluster(cluster_ports: list[int], cluster: object, rows: Rows) -> None:
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster_ports[0]) as client:
        await bloomgate.asyncio.fill_filter(client, "rows", range(100), 1e-6, 100)
        guard = bloomgate.asyncio.Guard(client, "rows")
        async with guard.changed(1, 2):
            pass
        assert await asyncio.gather(*(guard.get(id, rows.aload) for id in range(5))) == [b"%d" % id for id in range(5)]
        assert await guard.get_many([1, 2, 1000], rows.aload_many) == {1: b"1", 2: b"2", 1000: None}
        assert guard.counts["errors"] == 0 and rows.queries == 5
        with pytest.raises(ValueError, match="replicas"):
            bloomgate.asyncio.Guard(client, "rows", replicas=1)
        with pytest.raises(ValueError, match="replicas"):
            await bloomgate.asyncio.fill_filter(client, "other", [1], 0.01, 100, aof=True)
