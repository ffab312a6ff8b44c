"""Servers that do not answer: the time limit of a command, which is not that of its wait, and the pause after it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from cluster import Start
from rows import Rows
from server import PATIENCE, Server, eventually

import bloomgate.asyncio
from bloomgate import Filter, Guard, guard_steps

SHORT_S = 0.2


@contextmanager
def hung(server: Server) -> Iterator[None]:
    """Stops the server's process, whose connections stay open."""
    process: Any = server.process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.fixture
def server(start: Start) -> Server:
    server = start()
    with redis.Redis(port=server.port) as client:
        Filter(client, "rows").insert(range(100), capacity=100)
    return server


@pytest.fixture
def rows() -> Rows:
    rows = Rows()
    for id in range(100):
        rows.save(id, b"%d" % id)
    return rows


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_steps, "PAUSE_S", PATIENCE)


def url(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}"


@pytest.mark.usefixtures("long_pause")
def test_one_caller_waits_for_a_hung_server(server: Server, rows: Rows) -> None:
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows")
        assert guard.get(1, rows.load) == b"1"
        with hung(server):
            for _ in range(20):
                assert guard.get(1, rows.load) == b"1"
                assert guard.get_many([1, 2], rows.load_many) == {1: b"1", 2: b"2"}
            assert guard.counts["errors"] == 1 and guard.counts["unguarded"] == 60
        guard._steps.paused_until = 0.0  # the pause has ended
        eventually("the answer", lambda: guard.get(1, rows.load) and guard.counts["hit"])
        before = rows.queries
        assert guard.get(1, rows.load) == b"1" and rows.queries == before


@pytest.mark.usefixtures("long_pause")
async def test_one_turn_waits_for_a_hung_server(server: Server, rows: Rows) -> None:
    async with bloomgate.asyncio.connect(url(server), timeout=SHORT_S) as client:
        guard = bloomgate.asyncio.Guard(client, "rows")
        assert await guard.get(1, rows.aload) == b"1"
        with hung(server):
            for _ in range(20):
                assert await asyncio.gather(*(guard.get(1, rows.aload) for _ in range(5))) == [b"1"] * 5
                assert await guard.get_many([1, 2], rows.aload_many) == {1: b"1", 2: b"2"}
            assert guard.counts["errors"] == 1


def test_after_a_pause_one_caller_tries(server: Server, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows")
        with hung(server):
            guard.get(1, rows.load)
            guard._steps.paused_until = 0.0
            assert not guard._steps.is_paused() and guard._steps.is_paused(), "the pause goes on for the others"


def test_a_fill_that_is_not_answered_is_not_given_up_as_well(server: Server) -> None:
    """That would take as long again."""
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows")
        commands: list[str] = []
        execute = client.execute_command

        def record(*words: Any, **options: Any) -> Any:
            commands.append(" ".join(str(word) for word in words[:1]))
            return execute(*words, **options)

        client.execute_command = record  # type: ignore[method-assign]
        process: Any = server.process

        def load(_: Any) -> bytes:
            os.kill(process.pid, signal.SIGSTOP)
            return b"1"

        try:
            assert guard.get(1, load) == b"1"
            assert [name for name in commands if name.startswith("BF.")] == ["BF.FETCH", "BF.FILL"]
        finally:
            os.kill(process.pid, signal.SIGCONT)


def leased(server: Server) -> tuple[redis.Redis, bytes]:
    other = redis.Redis(port=server.port)
    word, token = other.execute_command("BF.FETCH", "rows", 1, "{rows}:1", "LEASE", 1000 * PATIENCE)
    assert word == b"load"
    return other, bytes(token)


def fill_later(server: Server) -> threading.Timer:
    """Fills the row of another process after several times the time limit."""
    other, token = leased(server)
    timer = threading.Timer(5 * SHORT_S, other.execute_command, ("BF.FILL", "rows", 1, "{rows}:1", token, "VALUE", b"one"))
    timer.start()
    return timer


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("library", ["bloomgate", "redis", "valkey"])
def test_a_wait_may_take_longer(server: Server, rows: Rows, library: str, protocol: int) -> None:
    options: Any = {"port": server.port, "socket_timeout": SHORT_S, "protocol": protocol}
    client: Any = {
        "bloomgate": lambda: bloomgate.connect(url(server), timeout=SHORT_S, protocol=protocol),
        "redis": lambda: redis.Redis(**options),
        "valkey": lambda: valkey.Valkey(**options),
    }[library]()
    with client:
        guard: Guard[bytes] = Guard(client, "rows", wait=PATIENCE)
        timer = fill_later(server)
        assert guard.get(1, rows.load) == b"one" and rows.queries == 0 and guard.counts["errors"] == 0
        timer.join()


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("library", ["bloomgate", "redis", "valkey"])
async def test_a_task_may_wait_longer(server: Server, rows: Rows, library: str, protocol: int) -> None:
    options: Any = {"port": server.port, "socket_timeout": SHORT_S, "protocol": protocol}
    client: Any = {
        "bloomgate": lambda: bloomgate.asyncio.connect(url(server), timeout=SHORT_S, protocol=protocol),
        "redis": lambda: redis.asyncio.Redis(**options),
        "valkey": lambda: valkey.asyncio.Valkey(**options),
    }[library]()
    async with client:
        guard = bloomgate.asyncio.Guard(client, "rows", wait=PATIENCE)
        timer = fill_later(server)
        assert await guard.get(1, rows.aload) == b"one" and rows.queries == 0 and guard.counts["errors"] == 0
        timer.join()


def test_a_wait_for_replicas_may_take_longer(server: Server, start: Start) -> None:
    replica = start()
    with bloomgate.connect(url(server), timeout=SHORT_S) as client, redis.Redis(port=replica.port) as other:
        guard: Guard[bytes] = Guard(client, "rows", replicas=1, replicas_timeout=PATIENCE)
        timer = threading.Timer(5 * SHORT_S, other.replicaof, ("127.0.0.1", server.port))
        timer.start()
        with guard.changed(1):
            pass
        timer.join()


def test_a_server_that_hangs_during_a_wait(server: Server, rows: Rows) -> None:
    """The wait ends, its connection is not used again, and its slot is free again."""
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows", wait=0.01)
        leased(server)
        free = guard._steps.slots._free
        with hung(server):
            guard._steps.record([])
            [found] = bloomgate.steps.drive(client, guard._error, guard._steps.fetch([b"1"], wait_ms=10))
            assert type(found).__name__ == "TimeoutError"
        assert guard._steps.slots._free == free
        guard._steps.paused_until = 0.0
        eventually("the server", lambda: client.ping())
        assert guard.get(2, rows.load) == b"2"


def test_a_pause_that_begins_before_a_wait_gives_its_slot_back(server: Server, rows: Rows) -> None:
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows", wait=PATIENCE)
        free = guard._steps.slots._free
        leased(server)
        take = guard._steps.slots.take

        def take_and_pause() -> bool:
            guard._steps.failed(TimeoutError("another caller's"))
            return take()

        guard._steps.slots.take = take_and_pause  # type: ignore[method-assign]
        assert guard.get(1, rows.load) == b"1" and rows.queries == 1
        assert guard._steps.slots._free == free


def test_the_time_limit_of_connect() -> None:
    for connect in (bloomgate.connect, bloomgate.asyncio.connect):
        pool: Any = connect("redis://localhost", timeout=0.3).connection_pool
        kwargs = pool.connection_kwargs
        assert (kwargs["socket_timeout"], kwargs["socket_connect_timeout"], pool.timeout) == (0.3, 0.3, 0.3)


def test_the_time_limit_of_a_clusters_client(cluster: redis.RedisCluster) -> None:
    """It has none for waits."""
    with pytest.raises(ValueError, match="socket_timeout of a cluster's client"):
        Guard(cluster, "rows", wait=PATIENCE)
    with pytest.raises(ValueError, match="socket_timeout of a cluster's client"):
        bloomgate.asyncio.Guard(redis.asyncio.RedisCluster("127.0.0.1", 1, socket_timeout=PATIENCE), "rows", wait=PATIENCE)
    Guard(cluster, "rows", wait=PATIENCE - 0.001)
