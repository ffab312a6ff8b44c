"""The guard in front of a table, in threads and tasks: every state of its protocol, and servers that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
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
from bloomgate import Filter, Guard, Json, Unconfirmed, fill_filter


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


def test_a_false_positive_is_looked_up_once(guard: Guard[bytes], rows: Rows, client: redis.Redis) -> None:
    Filter(client, "rows").add(3)
    for _ in range(3):
        assert guard.get(3, rows.load) is None
    assert rows.queries == 1
    write(guard, rows, 3, b"three")
    assert guard.get(3, rows.load) == b"three"


@pytest.mark.parametrize("id", [b"\x00\xff}{\r\n", "ünï", 17, b""])
def test_ids_and_values_of_any_bytes(guard: Guard[bytes], rows: Rows, id: Any) -> None:
    write(guard, rows, id, b"\xff\x00")
    assert [guard.get(id, rows.load) for _ in range(2)] == [b"\xff\x00"] * 2
    write(guard, rows, id, b"")
    assert [guard.get(id, rows.load) for _ in range(2)] == [b""] * 2
    assert rows.queries == 2


@pytest.mark.parametrize("bloom", ["threads"], indirect=True)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StopIteration])
def test_a_failed_load_gives_the_lease_up(guard: Guard[bytes], rows: Rows, error: type[BaseException]) -> None:
    write(guard, rows, 1, b"one")

    def fails(_: Any) -> bytes:
        raise error

    with pytest.raises(RuntimeError if error is StopIteration else error):
        guard.get(1, fails)
    begun = time.monotonic()
    assert guard.get(1, rows.load) == b"one"
    assert guard.counts["wait"] == 0 and guard.counts["load"] == 2, "the next caller may load at once"
    assert time.monotonic() - begun < PATIENCE


def test_a_loader_of_the_call_or_of_the_guard(client: redis.Redis) -> None:
    """It gets the id as it was passed."""
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

    @guard.cached
    async def find(id: int) -> bytes | None:
        return b"found %d" % id

    await bloomgate.asyncio.fill_filter(aclient, "rows", range(5), 1e-6, 100)
    assert await find(3) == b"found 3" and await guard.get(3) == b"found 3" and await find(100) is None
    with pytest.raises(TypeError, match="there is no loader"):
        await bloomgate.asyncio.Guard(aclient, "rows").get(1)


def test_a_value_that_is_not_bytes(guard: Guard[bytes], rows: Rows) -> None:
    write(guard, rows, 1, b"one")
    with pytest.raises(TypeError, match="codec"):
        guard.get(1, lambda _: "one")  # type: ignore[arg-type, return-value]
    assert guard.get(1, rows.load) == b"one"
    with pytest.raises(TypeError):
        guard.get(None, rows.load)  # type: ignore[type-var]


def test_a_codec(client: redis.Redis) -> None:
    Filter(client, "rows").reserve(0.01, 1000)
    guard: Guard[Any] = Guard(client, "rows", codec=Json())
    with guard.changed(1, 2):
        pass
    assert guard.get(1, lambda _: {"name": "Änn"}) == {"name": "Änn"}
    assert guard.get(1, lambda _: None) == {"name": "Änn"}
    client.set("{rows}:2", b"no JSON")
    assert guard.get(2, lambda _: [2]) == [2] and client.get("{rows}:2") == b"[2]", "test_undecodable.py has more"
    assert guard.get_many([2, 1], lambda ids: {id: [id] for id in ids}) == {2: [2], 1: {"name": "Änn"}}


def test_a_time_to_live_of_one_row(client: redis.Redis, rows: Rows) -> None:
    Filter(client, "rows").reserve(0.01, 1000)
    guard = Guard(client, "rows", ttl=1000)
    write(guard, rows, 1, b"one")
    assert guard.get(1, rows.load, ttl=10_000) == b"one"
    assert client.pttl("{rows}:1") > 1_000_000


def test_a_lease_that_is_not_ended(client: redis.Redis, rows: Rows) -> None:
    Filter(client, "rows").reserve(0.01, 1000)
    guard = Guard(client, "rows", wait=0.001, attempts=2, lease=60)
    write(guard, rows, 1, b"one")

    def load_while_others_ask(_: Any) -> bytes | None:
        assert guard.get(1, rows.load) == b"one"
        assert guard.get_many([1], rows.load_many) == {1: b"one"}
        return rows.load(1)

    assert guard.get(1, load_while_others_ask) == b"one"
    assert guard.counts["wait"] >= 3 and guard.counts["unguarded"] == 2 and guard.counts["filled"] == 1
    assert Guard(client, "rows", wait=0).get(1, rows.load) == b"one"


def test_many_rows(guard: Guard[bytes], rows: Rows, client: redis.Redis) -> None:
    with guard.changed(*range(2000)):
        for id in range(2000):
            rows.save(id, b"%d" % id)
    Filter(client, "rows").add_many([2500, 2501])
    asked = [*range(1000, 2100), 2500, 5]
    wanted = {id: b"%d" % id if id < 2000 else None for id in asked}
    for _ in range(2):
        assert guard.get_many(asked, rows.load_many) == wanted
    assert rows.batches == 1
    assert guard.get_many([7, 7, 5], rows.load_many) == {7: b"7", 5: b"5"}
    assert guard.get_many([7, "7", b"7", "x"], rows.load_many) == {7: b"7", "7": b"7", b"7": b"7", "x": None}
    assert guard.get_many([], rows.load_many) == {}
    assert rows.batches == 2

    def fails(ids: list[int]) -> dict[int, bytes]:
        raise OSError(len(ids))

    with pytest.raises(OSError, match="2"):
        guard.get_many([8, 9, 7], fails)
    assert guard.get_many([8, 9], rows.load_many) == {8: b"8", 9: b"9"}, "its leases were given up"
    mixed = [b"10", 10, "10"]
    assert guard.get_many(mixed, lambda ids: dict.fromkeys(ids, b"ten")) == dict.fromkeys(mixed, b"ten")


def test_many_rows_that_others_load(guard: Guard[bytes], rows: Rows) -> None:
    with guard.changed(*range(10)):
        for id in range(10):
            rows.save(id, b"%d" % id)
    rows.delay = 0.3
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(guard.get_many(list(range(10)), rows.load_many))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{id: b"%d" % id for id in range(10)}] * 8
    assert rows.queries == 10, "each row was loaded by one caller"


def test_a_deleted_row(guard: Guard[bytes], rows: Rows, client: redis.Redis) -> None:
    write(guard, rows, 1, b"one")
    assert guard.get(1, rows.load) == b"one"
    with guard.changed(1):
        rows.delete(1)
    guard.forget(1)
    assert guard.get(1, rows.load) is None and rows.queries == 1
    Filter(client, "plain").insert([1])
    with pytest.raises(redis.ResponseError, match="cannot delete"):
        Guard(client, "plain").forget(1)


def test_a_missing_filter(guard: Guard[bytes], rows: Rows, client: redis.Redis) -> None:
    client.delete("rows")
    rows.save(1, b"one")
    for _ in range(2):
        assert guard.get(1, rows.load) == b"one", "nothing is absent"
        assert guard.get(2, rows.load) is None
    assert rows.queries == 3
    with guard.changed(1):
        rows.save(1, b"two")
    assert guard.get(1, rows.load) == b"two"
    assert not client.exists("rows"), "an announcement does not create a filter"


def test_a_filter_is_filled(client: redis.Redis, rows: Rows) -> None:
    assert fill_filter(client, "rows", range(5000), 1e-12, 5000, hash="siphash") == 5000
    assert Filter(client, "rows").info().items == 5000 and not client.exists("{rows}~filling")
    Filter(client, "{rows}~filling").reserve(1e-6, 100)
    guard = Guard(client, "rows", announce_to=["{rows}~filling"])
    write(guard, rows, 7000, b"new")
    assert 7000 in Filter(client, "rows") and 7000 in Filter(client, "{rows}~filling")
    with pytest.raises(bloomgate.FilterExists):
        fill_filter(client, "rows", [1], 0.01, 100)


def test_names_of_cache_keys(client: redis.Redis, rows: Rows) -> None:
    for name, key in [("{users}:filter", "{users}:filter:1"), ("a{b", "{a{b}:1"), ("{}x", None), ("a}b", None)]:
        Filter(client, name).reserve(0.01, 100)
        if key is None:
            with pytest.raises(ValueError, match="slot"):
                Guard(client, name)
            continue
        write(Guard(client, name), rows, 1, b"one")
        Guard(client, name).get(1, rows.load)
        assert client.get(key) == b"one"
    guard = Guard(client, "a}b", prefix="rows/")
    write(guard, rows, 1, b"one")
    guard.get(1, rows.load)
    assert client.get("rows/1") == b"one"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 0}, "ttl is more than 0"),
        ({"ttl": float("inf")}, "ttl is more than 0 and at most 10000000000 seconds, not inf"),
        ({"ttl": float("nan")}, "not nan"),
        ({"absent_ttl": -1}, "absent_ttl is more than 0"),
        ({"absent_ttl": float("inf")}, "absent_ttl is more than 0 and at most"),
        ({"lease": 0}, "lease is more than 0"),
        ({"replicas_timeout": 0}, "replicas_timeout is more than 0"),
        ({"fail_safe": -1}, "fail_safe is from 0"),
        ({"fail_safe": float("inf")}, "fail_safe is from 0"),
        ({"soft_timeout": float("nan")}, "soft_timeout is from 0"),
        ({"beta": -0.1}, "beta is from 0"),
        ({"wait": -1}, "wait is from 0"),
        ({"attempts": 0}, "attempts is a whole number from 1"),
        ({"patience": float("nan")}, "patience is from 0"),
    ],
)
def test_invalid_options(client: redis.Redis, rows: Rows, options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Guard(client, "rows", **options)
    with pytest.raises(TypeError):
        Guard(client, "rows", colour="red")  # type: ignore[call-overload]


def test_an_invalid_time_to_live_of_one_row(guard: Guard[bytes], rows: Rows) -> None:
    for ttl in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="ttl is more than 0 and at most"):
            guard.get(1, rows.load, ttl=ttl)
        with pytest.raises(ValueError, match="ttl is more than 0 and at most"):
            guard.get_many([1], rows.load_many, ttl=ttl)
    assert rows.queries == 0


def test_a_full_server_delays_nobody(guard: Guard[bytes], rows: Rows, client: redis.Redis) -> None:
    write(guard, rows, 1, b"one")
    client.config_set("maxmemory", 1)
    for _ in range(3):
        assert guard.get(1, rows.load) == b"one"
        assert guard.get_many([1], rows.load_many) == {1: b"one"}
    assert rows.queries == 6 and guard.counts["wait"] == 0 and guard.counts["errors"] == 6


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


def test_a_server_that_dies_while_a_row_is_loaded(start: Start, rows: Rows) -> None:
    server = start()
    with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE) as client:
        Filter(client, "rows").insert([1, 2], capacity=100)
        rows.save(1, b"one")
        guard = Guard(client, "rows")

        def kill_and_load(load: Callable[[Any], Any], ids: Any) -> Any:
            server.process.kill()
            server.process.wait()
            return load(ids)

        assert guard.get(1, partial(kill_and_load, rows.load)) == b"one"
        server.start()
        Filter(client, "rows").insert([1], capacity=100)
        assert guard.get_many([1], partial(kill_and_load, rows.load_many)) == {1: b"one"}
        server.start()


def test_replicas(start: Start, rows: Rows) -> None:
    primary = start()
    with redis.Redis(port=primary.port, socket_timeout=PATIENCE) as client:
        Filter(client, "rows").reserve(0.01, 100)
        guard = Guard(client, "rows", replicas=1, replicas_timeout=0.1, patience=0)
        with pytest.raises(TimeoutError, match="0 of 1"), guard.changed(1):
            rows.save(1, b"never")
        assert rows.load(1) is None
        with pytest.raises(Unconfirmed):
            guard.confirm(1)
        assert guard.get(2, rows.load) is None
        assert guard.counts["absent"] == 1, "late replicas are no reason to leave the server alone"
        mirror = start(f"replicaof 127.0.0.1 {primary.port}").client()
        while mirror.info("replication")["master_link_status"] != "up":
            time.sleep(0.01)
        patient = Guard(client, "rows", replicas=1, replicas_timeout=30)
        write(patient, rows, 1, b"one")
        assert mirror.execute_command("BF.EXISTS", "rows", 1) == 1


def test_a_cluster(cluster: redis.RedisCluster, rows: Rows) -> None:
    fill_filter(cluster, "rows", range(100), 1e-6, 100, hash="siphash")
    guard = Guard(cluster, "rows")
    with guard.changed(*range(10)):
        for id in range(10):
            rows.save(id, b"%d" % id)
    assert guard.get(1, rows.load) == b"1" and guard.get(1000, rows.load) is None
    assert guard.get_many(range(5), rows.load_many) == {id: b"%d" % id for id in range(5)}
    guard.forget(9)
    assert guard.get(9, rows.load) is None
    with pytest.raises(ValueError, match="replicas"):
        Guard(cluster, "rows", replicas=1)
