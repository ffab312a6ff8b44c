"""The guard in front of a table, in threads and tasks: every state of its protocol, and servers that fail."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from cluster import Start
from redis.backoff import NoBackoff
from redis.retry import Retry
from rows import Rows
from server import PATIENCE, eventually, free_port

import bloomgate.asyncio
from bloomgate import Filter, Guard, NearCache, Unconfirmed, fill_filter


@pytest.fixture
def guard(bloom: Any, client: redis.Redis, protocol: int) -> Iterator[Guard[bytes]]:
    Filter(client, "rows").reserve(0.0001, 1000, hash="siphash")
    url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
    with bloom.connect(url, timeout=PATIENCE, protocol=protocol) as own:
        yield bloom.Guard(own, "rows")


def write(guard: Guard[bytes], rows: Rows, id: Any, body: bytes) -> None:
    with guard.changed(id):
        rows.save(id, body)


def test_a_row_is_read_once_and_a_missing_one_not_at_all(guard: Guard[bytes], rows: Rows) -> None:
    write(guard, rows, 1, b"one")
    for _ in range(3):
        assert guard.get(1, rows.load) == b"one"
        assert guard.get(2, rows.load) is None
    assert rows.queries == 1
    assert guard.counts == {"absent": 3, "load": 1, "filled": 1, "hit": 2}
    write(guard, rows, 1, b"two")
    assert guard.get_many([1, 2], rows.load_many) == {1: b"two", 2: None}
    with guard.changed(1):
        rows.delete(1)
    guard.forget(1)
    assert guard.get(1, rows.load) is None and rows.queries == 2


def test_a_transaction_fills_nothing(guard: Guard[bytes], tmp_path: Path) -> None:
    """It reads its own change, and a snapshot from before another transaction's commit."""
    own, other = (sqlite3.connect(tmp_path / "rows", isolation_level=None, check_same_thread=False) for _ in range(2))

    def load(id: int, connection: sqlite3.Connection = own) -> bytes | None:
        row = connection.execute("SELECT body FROM rows WHERE id = ?", [id]).fetchone()
        return row and row[0]

    def read_anew(id: int) -> bytes | None:
        return load(id, other)

    own.execute("PRAGMA journal_mode = WAL")
    own.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
    with guard.changed(1):
        own.execute("INSERT INTO rows VALUES (1, x'01')")
    own.execute("BEGIN")
    assert guard.get_in_transaction(1, load) == b"\x01"
    with guard.changed(1):
        other.execute("UPDATE rows SET body = x'02'")
    assert guard.get_in_transaction(1, load) == b"\x01"
    assert guard.get(1, read_anew) == b"\x02", "the snapshot is not cached, and no lease is left"
    assert guard.get_in_transaction(1, load) == b"\x02", "a cached row is returned"
    own.execute("ROLLBACK")
    with guard.changed(1, 2):
        own.execute("BEGIN")
        own.execute("DELETE FROM rows")
        own.execute("INSERT INTO rows VALUES (2, x'03')")
        assert guard.get_in_transaction(1, load) is None
        assert guard.get_in_transaction(2, load) == b"\x03"
        own.execute("ROLLBACK")
    assert guard.get_many([1, 2], lambda ids: {id: row for id in ids if (row := read_anew(id))}) == {1: b"\x02", 2: None}
    guard.forget(2)
    assert guard.get_in_transaction(2, lambda _: b"new") == b"new", "the filter does not know of an uncommitted row"
    assert guard.get(2, read_anew) is None
    assert (guard.counts["unguarded"], guard.counts["wait"]) == (5, 0)


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
    guard = Guard(client, "rows", load=lambda id: repr(id).encode(), load_many=lambda ids: {id: b"many" for id in ids})
    assert guard.get(1) == b"1" and guard.get("2") == b"'2'" and guard.get(3, lambda id: b"%d of the call" % id) == b"3 of the call"
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


def test_a_lease_that_is_not_ended(client: redis.Redis, rows: Rows) -> None:
    Filter(client, "rows").reserve(0.01, 1000)
    guard = Guard(client, "rows", lease=60)
    other = Guard(client, "rows", wait=0.001, attempts=2)
    write(guard, rows, 1, b"one")

    def load_while_others_ask(_: Any) -> bytes | None:
        assert other.get(1, rows.load) == b"one"
        assert other.get_many([1], rows.load_many) == {1: b"one"}
        return rows.load(1)

    assert guard.get(1, load_while_others_ask) == b"one" and guard.counts["filled"] == 1
    assert other.counts["wait"] >= 3 and other.counts["unguarded"] == 2


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


def test_many_rows(guard: Guard[bytes], rows: Rows) -> None:
    with guard.changed(*range(2000)):
        for id in range(2000):
            rows.save(id, b"%d" % id)
    asked = [*range(1000, 2100), 5]
    wanted = {id: b"%d" % id if id < 2000 else None for id in asked}
    for _ in range(2):
        assert guard.get_many(asked, rows.load_many) == wanted
    assert rows.batches == 1
    mixed = [10, b"10", 10, "10", "x"]
    assert guard.get_many(mixed, rows.load_many) == {10: b"10", b"10": b"10", "10": b"10", "x": None}
    assert rows.batches == 2


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


def test_a_time_to_live_of_many_rows(client: redis.Redis, probe: redis.Redis, rows: Rows) -> None:
    rows.save(1, b"one")
    assert Guard(client, "rows", ttl=1000).get_many([1], rows.load_many, ttl=10_000) == {1: b"one"}
    assert client.pttl("{rows}:1") > 1_000_000


def test_an_invalid_time_to_live_of_one_row(guard: Guard[bytes], rows: Rows) -> None:
    for ttl in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="ttl is from 0.001 to"):
            guard.get(1, rows.load, ttl=ttl)
        with pytest.raises(ValueError, match="ttl is from 0.001 to"):
            guard.get_many([1], rows.load_many, ttl=ttl)
    assert rows.queries == 0


def test_without_a_server_rows_are_read_and_none_is_written(bloom: Any, rows: Rows) -> None:
    rows.save(1, b"one")
    guard = bloom.Guard(bloom.connect(f"redis://localhost:{free_port()}"), "rows", patience=0.3)
    assert guard.get(1, rows.load) == b"one"
    assert guard.get_many([1, 2], rows.load_many) == {1: b"one", 2: None}
    with pytest.raises(redis.ConnectionError), guard.changed(1):
        rows.save(1, b"another")
    assert rows.load(1) == b"one", "a row that could not be announced was not written"
    with pytest.raises(Unconfirmed) as failed:
        guard.confirm(1, "two")
    assert failed.value.ids == (b"1", b"two")


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
