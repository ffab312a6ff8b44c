"""Servers that do not answer: the time limit of a command, which excludes its wait, and the pause after it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from cluster import Start
from rows import Rows, blocked, lease
from server import PATIENCE, Server, eventually

import bloomgate.asyncio
from bloomgate import Filter, Guard

SHORT_S = 1.0


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


def url(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}"


@contextmanager
def fill_later(server: Server) -> Iterator[None]:
    """Fills the row as another process, after more than the time limit."""
    other = redis.Redis(port=server.port)
    token = lease(other, 1)
    words = ("BF.FILL", "rows", 1, "{rows}:1", token, "VALUE", b"one")
    timer = threading.Timer(2 * SHORT_S, other.execute_command, words)
    timer.start()
    yield
    timer.join()
    other.delete("{rows}:1")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    ("threads", "tasks"), [(redis.Redis, redis.asyncio.Redis), (valkey.Valkey, valkey.asyncio.Valkey)], ids=["redis", "valkey"]
)
async def test_a_wait_may_take_longer(server: Server, rows: Rows, threads: Any, tasks: Any, protocol: int) -> None:
    """Also with a client that was not created by `bloomgate.connect`."""
    options: Any = {"port": server.port, "socket_timeout": SHORT_S, "socket_connect_timeout": PATIENCE, "protocol": protocol}
    with threads(**options) as client, fill_later(server):
        guard: Guard[bytes] = Guard(client, "rows", wait=PATIENCE)
        assert guard.get(1, rows.load) == b"one" and guard.counts["errors"] == 0
    async with tasks(**options) as aclient:
        with fill_later(server):
            aguard = bloomgate.asyncio.Guard(aclient, "rows", wait=PATIENCE)
            assert await aguard.get(1, rows.aload) == b"one" and aguard.counts["errors"] == 0
    assert rows.queries == 0


@pytest.mark.parametrize("kind", [redis.asyncio.Redis, valkey.asyncio.Valkey], ids=["redis", "valkey"])
async def test_an_event_loop_that_is_busy_during_a_wait(server: Server, rows: Rows, kind: Any) -> None:
    """By the loop's clock, the reply arrives after the limit. However this call ends, no other call reads the reply."""
    holder = redis.Redis(port=server.port)
    async with kind(port=server.port, socket_timeout=0.05, socket_connect_timeout=PATIENCE, protocol=3) as client:
        guard = bloomgate.asyncio.Guard(client, "rows", wait=0.05, attempts=1)
        await guard.get(99, rows.aload)
        for id in range(1, 4):
            lease(holder, id)
            waiting = asyncio.create_task(guard.get(id, rows.aload))
            await asyncio.to_thread(eventually, "a waiting caller", lambda task=waiting: blocked(holder) or task.done())
            time.sleep(0.3)
            assert await waiting == b"%d" % id
            guard._steps.paused_until = 0.0
            for other in range(10, 30):
                assert await guard.get(other, rows.aload) == b"%d" % other


@pytest.mark.parametrize("kind", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster], ids=["redis", "valkey"])
async def test_an_event_loop_that_is_busy_when_a_cluster_answers(
    cluster_ports: list[int], cluster: redis.RedisCluster, rows: Rows, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two BF.FILL are sent together, and by the loop's clock their replies arrive after the limit. Neither is read as the
    other."""
    Filter(cluster, "rows").insert(range(100), capacity=100)
    process = cluster.info(target_nodes=cluster.get_node_from_key("rows"))["process_id"]

    async def load_many(ids: list[int]) -> dict[int, bytes]:
        # The second fill is refused.
        Guard(cluster, "rows").announce(2)
        return await rows.aload_many(ids)

    async with kind(host="127.0.0.1", port=cluster_ports[0], socket_timeout=PATIENCE, protocol=3) as client:
        guard = bloomgate.asyncio.Guard(client, "rows", load_many=load_many)
        assert await guard.get(50, rows.aload) == b"50"
        connections = client.get_default_node().connection_class
        send = connections.send_packed_command

        async def send_and_be_busy(connection: Any, command: Any, *rest: Any, **options: Any) -> None:
            if b"".join(command).count(b"BF.FILL") != 2:
                return await send(connection, command, *rest, **options)
            connection.socket_timeout = 0.2
            os.kill(process, signal.SIGSTOP)
            try:
                await send(connection, command, *rest, **options)
            finally:
                asyncio.get_running_loop().call_soon(be_busy)

        def be_busy() -> None:
            os.kill(process, signal.SIGCONT)
            time.sleep(0.4)

        monkeypatch.setattr(connections, "send_packed_command", send_and_be_busy)
        assert await guard.get_many([1, 2]) == {1: b"1", 2: b"2"}
        assert guard.counts["errors"] == 2 and guard.counts["filled"] == 1 and guard.counts["lease_lost"] == 0


def test_a_server_that_hangs_during_a_wait(server: Server, rows: Rows) -> None:
    """The wait ends, its connection is not used again, and its slot is free again."""
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows", wait=0.01)
        lease(redis.Redis(port=server.port), 1)
        free = guard._steps.wait_permits._free
        assert guard._steps.wait_permits.acquire()
        with hung(server):
            guard._steps.record([])
            waiting = guard._steps.fetch([b"1"], "WAIT", 10, wait_s=0.01, finished=guard._steps.wait_permits.release)
            [found] = bloomgate.steps.drive(client, guard._error, waiting)
            assert type(found).__name__ == "TimeoutError"
        assert guard._steps.wait_permits._free == free
        guard._steps.paused_until = 0.0
        eventually("the server", lambda: client.ping())
        assert guard.get(2, rows.load) == b"2"


def test_a_pause_that_begins_before_a_wait_releases_its_slot(server: Server, rows: Rows) -> None:
    with bloomgate.connect(url(server), timeout=SHORT_S) as client:
        guard: Guard[bytes] = Guard(client, "rows", wait=PATIENCE)
        free = guard._steps.wait_permits._free
        lease(redis.Redis(port=server.port), 1)
        take = guard._steps.wait_permits.acquire

        def take_and_pause() -> bool:
            guard._steps.failed(redis.TimeoutError("another caller's"))
            return take()

        guard._steps.wait_permits.acquire = take_and_pause  # type: ignore[method-assign]
        assert guard.get(1, rows.load) == b"1" and rows.queries == 1
        assert guard._steps.wait_permits._free == free


def test_the_time_limit_of_connect() -> None:
    for connect in (bloomgate.connect, bloomgate.asyncio.connect):
        pool: Any = connect("redis://localhost", timeout=0.3).connection_pool
        kwargs = pool.connection_kwargs
        assert (kwargs["socket_timeout"], kwargs["socket_connect_timeout"], pool.timeout) == (0.3, 0.3, 0.3)
