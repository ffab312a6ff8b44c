"""The guard under asyncio."""

from __future__ import annotations

from typing import Any

import pytest
import redis.asyncio
from rows import Rows
from server import free_port

from bloomgate import Unconfirmed
from bloomgate.asyncio import Filter, Guard, connect, fill_filter


@pytest.fixture
async def guard(aclient: redis.asyncio.Redis) -> Guard[bytes]:
    await Filter(aclient, "rows").reserve(0.0001, 1000, hash="siphash")
    return Guard(aclient, "rows")


async def write(guard: Guard[bytes], rows: Rows, id: Any, body: bytes) -> None:
    async with guard.changed(id):
        rows.save(id, body)


async def test_reading_and_writing(guard: Guard[bytes], rows: Rows) -> None:
    await write(guard, rows, 1, b"one")
    for _ in range(3):
        assert await guard.get(1, rows.aload) == b"one"
        assert await guard.get(2, rows.aload) is None
    assert rows.queries == 1
    await write(guard, rows, 1, b"two")
    assert await guard.get_many([1, 2], rows.aload_many) == {1: b"two", 2: None}
    async with guard.changed(1):
        rows.delete(1)
    await guard.forget(1)
    assert await guard.get(1, rows.aload) is None
    assert rows.queries == 2


async def test_a_loader_of_the_call_or_of_the_guard(aclient: redis.asyncio.Redis, rows: Rows) -> None:
    guard = Guard(aclient, "rows", load=rows.aload, load_many=rows.aload_many)
    rows.save(1, b"one")
    assert await guard.get(1) == b"one" and await guard.get_many([1, 2]) == {1: b"one", 2: None}

    @guard.cached
    async def find(id: int) -> bytes | None:
        return b"found %d" % id

    await fill_filter(aclient, "rows", range(5), 1e-6, 100)
    assert await find(3) == b"found 3" and await guard.get(3) == b"found 3" and await find(100) is None
    with pytest.raises(TypeError, match="there is no loader"):
        await Guard(aclient, "rows").get(1)


async def test_without_a_server(rows: Rows) -> None:
    rows.save(1, b"one")
    async with connect(f"redis://localhost:{free_port()}") as client:
        guard = Guard(client, "rows", patience=0.2)
        assert await guard.get(1, rows.aload) == b"one"
        assert await guard.get_many([1, 2], rows.aload_many) == {1: b"one", 2: None}
        with pytest.raises(redis.ConnectionError):
            await write(guard, rows, 1, b"another")
        with pytest.raises(Unconfirmed):
            await guard.confirm(1)
    assert rows.load(1) == b"one"


async def test_a_cluster(cluster_ports: list[int], cluster: object, rows: Rows) -> None:
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster_ports[0]) as client:
        assert await fill_filter(client, "rows", range(100), 1e-12, 100) == 100
        guard = Guard(client, "rows")
        await write(guard, rows, 1, b"one")
        assert [await guard.get(1, rows.aload) for _ in range(2)] == [b"one"] * 2 and rows.queries == 1
        assert await guard.get_many([1, 1000], rows.aload_many) == {1: b"one", 1000: None}
        assert guard.counts["errors"] == 0
        with pytest.raises(ValueError, match="replicas"):
            Guard(client, "rows", replicas=1)
        with pytest.raises(ValueError, match="replicas"):
            await fill_filter(client, "other", [1], 0.01, 100, aof=True)
