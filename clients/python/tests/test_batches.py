"""Many rows in one command: the rows that tasks request in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio
from rows import Rows, waiting_for
from server import PATIENCE

import bloomgate.asyncio
from bloomgate import Filter, Guard

LEASE = 3600.0
"""Longer than any test waits, so that a lease that is not given up makes a test fail."""


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
    """Counts the guard's commands that the server has executed since the creation of this object."""

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
    assert await guard.get_many(range(5000, 6200), rows.aload_many) == dict.fromkeys(range(5000, 6200))
    assert commands.executed() == {"BF.MFETCH": 6}


async def test_a_crowd_for_one_row(guard: bloomgate.asyncio.Guard[bytes], probe: redis.Redis) -> None:
    """Waiting callers share one answer. If each fetched, the process would do little else for seconds."""
    crowd = 10_000

    async def load(_: Any) -> bytes:
        while waiting_for(guard) < crowd - 1:
            await asyncio.sleep(0)
        return b"row"

    commands = Commands(probe)
    assert await asyncio.gather(*(guard.get(7, load) for _ in range(crowd))) == [b"row"] * crowd
    assert commands.executed() == {"BF.FETCH": 2, "BF.FILL": 1} and guard.counts["shared"] == crowd - 2


async def test_a_client_that_fails_by_itself(guard: bloomgate.asyncio.Guard[bytes], rows: Rows) -> None:
    """An exception of the client that is not an error of the server reaches the callers."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    guard.client.connection_pool.get_connection = fail
    found = await asyncio.gather(*(guard.get(id, rows.aload) for id in (1, 2)), return_exceptions=True)
    assert [str(one) for one in found] == ["a bug"] * 2


async def test_a_burst_of_many_rows(port: int, probe: redis.Redis) -> None:
    """Batches do not time out while they wait for connections, and every row is filled."""
    burst = 10_000
    Filter(probe, "many").insert(range(burst), capacity=burst, rate=1e-9)

    async def load(id: int) -> bytes:
        await asyncio.sleep(0.01)
        return b"%d" % id

    # The event loop starts all tasks before it looks at its connections: more than a second on a busy machine.
    async with bloomgate.asyncio.connect(f"redis://127.0.0.1:{port}", max_connections=8, socket_connect_timeout=30) as client:
        guard = bloomgate.asyncio.Guard(client, "many")
        found = await asyncio.gather(*(guard.get(id, load) for id in range(burst)))
        assert found == [b"%d" % id for id in range(burst)]
        assert guard.counts["filled"] == burst and guard.counts["errors"] == 0


@pytest.mark.parametrize("size", [1 << 10, 1 << 18])
def test_fills_of_large_rows(probe: redis.Redis, size: int) -> None:
    """No more than a mebibyte is sent together, and each row is filled."""
    sent: list[int] = []
    guard = Guard(probe, "rows")
    next_fills = guard._steps.next_fills

    def counted(ids: Any, encoded: Any) -> Any:
        part = next_fills(ids, encoded)
        sent.append(sum(len(encoded[id]) for id in part))
        return part

    guard._steps.next_fills = counted  # type: ignore[method-assign]
    guard.get_many(range(20), lambda ids: dict.fromkeys(ids, b"x" * size))
    assert sum(sent) == 20 * size and max(sent) <= 1 << 20 and guard.counts["filled"] == 20
    assert len(sent) == (1 if size < 1 << 18 else 5)
