"""The guard under asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
from rows import Rows
from server import free_port

from bloomgate import Json, Unconfirmed
from bloomgate.asyncio import Filter, Guard, connect, fill_filter


@pytest.fixture
async def guard(aclient: redis.asyncio.Redis) -> Guard[bytes]:
    await Filter(aclient, "rows").reserve(0.0001, 1000, hash="siphash")
    return Guard(aclient, "rows")


@pytest.fixture
def rows() -> Rows:
    return Rows()


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


async def test_many_tasks_load_a_row_once(guard: Guard[bytes], rows: Rows) -> None:
    await write(guard, rows, 1, b"one")

    async def load(_: Any) -> bytes | None:
        await asyncio.sleep(0.2)
        return rows.load(1)

    assert await asyncio.gather(*(guard.get(1, load) for _ in range(20))) == [b"one"] * 20
    assert rows.queries == 1


async def test_a_load_that_is_cancelled_gives_up(guard: Guard[bytes], rows: Rows) -> None:
    await write(guard, rows, 1, b"one")
    loading = asyncio.Event()

    async def load(_: Any) -> bytes | None:
        loading.set()
        await asyncio.sleep(3600)
        return None

    task = asyncio.create_task(guard.get(1, load))
    await loading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await guard.get(1, rows.aload) == b"one"
    assert guard.counts["load"] == 2 and guard.counts["wait"] == 0


async def test_a_load_that_fails(guard: Guard[bytes], rows: Rows) -> None:
    await write(guard, rows, 1, b"one")

    async def fails(*_: Any) -> Any:
        raise OSError("down")

    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            await guard.get(1, fails)
        with pytest.raises(OSError, match="down"):
            await guard.get_many([1], fails)
    assert await guard.get(1, rows.aload) == b"one"
    assert guard.counts["wait"] == 0


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


async def test_a_codec_and_a_filter_that_is_filled(aclient: redis.asyncio.Redis) -> None:
    assert await fill_filter(aclient, "rows", range(2000), 1e-12, 2000) == 2000
    guard: Guard[Any] = Guard(aclient, "rows", codec=Json())

    async def load(_: Any) -> Any:
        return {"id": 7}

    assert [await guard.get(7, load) for _ in range(2)] == [{"id": 7}] * 2
    assert guard.counts["hit"] == 1
