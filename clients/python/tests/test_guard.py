"""The guard in front of a table, in threads and tasks: every state of its protocol, and servers that fail."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from cluster import Start
from redis.backoff import NoBackoff
from redis.retry import Retry
from rows import Rows
from server import PATIENCE, eventually

import bloomgate.asyncio
from bloomgate import Filter, Guard, NearCache, fill_filter


@pytest.fixture
def guard(bloom: Any, client: redis.Redis, protocol: int) -> Iterator[Guard[bytes]]:
    Filter(client, "rows").reserve(0.0001, 1000, hash="siphash")
    url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
    with bloom.connect(url, timeout=PATIENCE, protocol=protocol) as own:
        yield bloom.Guard(own, "rows")


def write(guard: Guard[bytes], rows: Rows, id: Any, body: bytes) -> None:
    with guard.changed(id):
        rows.save(id, body)


@pytest.mark.parametrize("id", [b"\x00\xff}{\r\n", "ünï", 17, b""])
def test_ids_and_values_of_any_bytes(guard: Guard[bytes], rows: Rows, id: Any) -> None:
    write(guard, rows, id, b"\xff\x00")
    assert [guard.get(id, rows.load) for _ in range(2)] == [b"\xff\x00"] * 2
    write(guard, rows, id, b"")
    assert [guard.get(id, rows.load) for _ in range(2)] == [b""] * 2
    assert rows.queries == 2


@pytest.mark.parametrize("bloom", ["threads"], indirect=True)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StopIteration])
def test_a_failed_load_gives_up_its_lease(guard: Guard[bytes], rows: Rows, error: type[BaseException]) -> None:
    write(guard, rows, 1, b"one")

    def fails(_: Any) -> bytes:
        raise error

    with pytest.raises(RuntimeError if error is StopIteration else error):
        guard.get(1, fails)
    assert guard.get(1, rows.load) == b"one"
    assert guard.counts["wait"] == 0 and guard.counts["load"] == 2, "the next caller may load at once"


def test_a_loader_of_the_call_or_of_the_guard(client: redis.Redis) -> None:
    """The loader gets the id unchanged."""
    Filter(client, "rows").insert(range(10), capacity=100)
    guard = Guard(client, "rows", load=lambda id: repr(id).encode(), load_many=lambda ids: dict.fromkeys(ids, b"many"))
    assert (
        guard.get(1) == b"1"
        and guard.get("2") == b"'2'"
        and guard.get(3, lambda id: b"%d of the call" % id) == b"3 of the call"
    )
    assert guard.get_many([4, "5"]) == {4: b"many", "5": b"many"}

    @guard.cached
    def find(id: int) -> bytes | None:
        """Finds a row."""
        return b"found %d" % id

    assert find(6) == b"found 6" and guard.get(6) == b"found 6" and find.__doc__ == "Finds a row."
    without = Guard(client, "rows")
    for call in (lambda: without.get(1), lambda: without.get_many([1])):
        with pytest.raises(TypeError, match="there is no loader"):
            call()


async def test_a_loader_of_asyncio(aclient: redis.asyncio.Redis, rows: Rows) -> None:
    guard = bloomgate.asyncio.Guard(aclient, "rows", load=rows.aload, load_many=rows.aload_many)
    rows.save(1, b"one")
    assert await guard.get(1) == b"one" and await guard.get_many([1, 2]) == {1: b"one", 2: None}
    assert await guard.cached(rows.aload)(1) == b"one"
    with pytest.raises(TypeError, match="there is no loader"):
        await bloomgate.asyncio.Guard(aclient, "rows").get(1)


def test_a_load_of_many_rows_that_reads_one_of_them(client: redis.Redis, rows: Rows) -> None:
    Filter(client, "rows").reserve(0.01, 1000)
    guard = Guard(client, "rows")
    for id in (1, 2, 3):
        write(guard, rows, id, b"%d" % id)

    def load_many(ids: list[int]) -> dict[int, bytes]:
        assert guard.get(1, rows.load) == b"1" and guard.get_many([2, 3], rows.load_many) == {2: b"2", 3: b"3"}
        return rows.load_many(ids)

    assert guard.get_many([1, 2], load_many) == {1: b"1", 2: b"2"}
    assert guard.counts["unguarded"] == 2 and guard.counts["filled"] == 3


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": float("inf")}, "ttl is from 0.001 to 1000000000 seconds, not inf"),
        ({"ttl": float("nan")}, "not nan"),
        ({"lease": 3600.1}, "lease is from 0.001 to 3600 seconds, not 3600.1"),
        ({"attempts": 1.5}, "attempts is a whole number from 1 to 1000, not 1.5"),
        ({"attempts": True}, "attempts is a whole number"),
        ({"feed": True, "aof": True}, "the follower announces"),
        ({"announce_to": "rows"}, "iterable"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_options(client: redis.Redis, options: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        Guard(client, "rows", **options)


def test_a_server_that_dies_between_the_two_calls(start: Start, rows: Rows) -> None:
    server = start("appendonly yes", "appendfsync always")
    with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE) as client:
        Filter(client, "rows").reserve(0.01, 100)
        guard = Guard(client, "rows", patience=PATIENCE)
        committed, killed = threading.Event(), threading.Event()

        def write() -> None:
            with guard.changed(1):
                rows.save(1, b"one")
                committed.set()
                killed.wait()

        writer = threading.Thread(target=write)
        writer.start()
        committed.wait()
        server.process.kill()
        server.process.wait()
        killed.set()
        eventually("a confirmation that fails and is repeated", lambda: guard.counts["errors"])
        server.start()
        writer.join()
        assert guard.get(1, rows.load) == b"one" and guard.get(2, rows.load) is None


@pytest.mark.parametrize("aio", [False, True], ids=["threads", "tasks"])
def test_limits_of_a_clusters_client(cluster: redis.RedisCluster, aio: bool) -> None:
    client: Any = redis.asyncio.RedisCluster("127.0.0.1", 1, socket_timeout=PATIENCE) if aio else cluster
    make: Any = bloomgate.asyncio.Guard if aio else Guard
    for options, error in (
        ({"replicas": 1}, "replicas and aof need a plain client"),
        ({"aof": True}, "replicas and aof need a plain client"),
        ({"near": NearCache(100, 3600)}, "near cache needs a plain client"),
        ({"wait": PATIENCE}, "socket_timeout of a cluster's client"),
    ):
        with pytest.raises(ValueError, match=error):
            make(client, "rows", **options)
    make(client, "rows", wait=PATIENCE - 0.001)
    with pytest.raises(ValueError, match="replicas and aof need a plain client"):
        fill_filter(cluster, "rows", [1], 0.01, 100, aof=True)


def test_rows_that_are_filled_together_expire_apart(client: redis.Redis, rows: Rows) -> None:
    Filter(client, "rows").insert(range(100), capacity=100, rate=1e-12)
    for id in range(100):
        rows.save(id, b"row")
    guard = Guard(client, "rows", ttl=1_000_000, absent_ttl=1_000_000)
    guard.get_many(range(100), rows.load_many)
    left = [client.pttl(f"{{rows}}:{id}") / 1e9 for id in range(100)]
    assert 0.89 < min(left) < 0.92 and 0.98 < max(left) <= 1
    assert statistics.stdev(left) > 0.02
