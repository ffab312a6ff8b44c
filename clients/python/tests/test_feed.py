"""`Guard(..., feed=True)`: readers of a table that `bloomgate follow` follows. Here a test makes the follower's calls by hand;
test_follow.py runs the follower."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from rows import Rows
from server import PATIENCE, eventually, free_port

import bloomgate.asyncio
from bloomgate import Filter, Guard, Json, NearCache

KEY, HEARTBEAT, IN_FLIGHT = "{rows}:1", "{rows}:feed", "{rows}:feed:open"


class Follower:
    """The calls of a follower in synchronous mode."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def beats(self) -> None:
        self.client.set(HEARTBEAT, "alive")

    def announces(self, *ids: Any) -> None:
        """The first half: the transaction is not visible yet."""
        self.client.hset(IN_FLIGHT, mapping={f"{{rows}}:{id}": "position" for id in ids})

    def releases(self, *ids: Any) -> None:
        """The second half: the transaction is visible."""
        with self.client.pipeline() as transaction:
            transaction.hdel(IN_FLIGHT, *[f"{{rows}}:{id}" for id in ids])
            pairs = [word for id in ids for word in (id, f"{{rows}}:{id}")]
            transaction.execute_command("BF.MCHANGED", "rows", "ITEMS", *pairs)
            transaction.execute()

    def waiting(self, count: int) -> bool:
        return bool(self.client.info("bf")["bf_bloom_waiting"] == count)


@pytest.fixture
def follower(port: int) -> Iterator[Follower]:
    """A follower whose filter has the rows 1 to 9, and whose heartbeat exists."""
    with redis.Redis(port=port, socket_timeout=PATIENCE) as client:
        Filter(client, "rows").insert(range(1, 10), capacity=1000, hash="siphash")
        follower = Follower(client)
        follower.beats()
        yield follower


@pytest.fixture
def rows() -> Rows:
    rows = Rows()
    rows.save(1, b"one")
    rows.save(2, b"two")
    return rows


@contextmanager
def commands(port: int) -> Iterator[list[str]]:
    """Records the server's commands while the `with` block runs."""
    seen: list[str] = []
    with redis.Redis(port=port, socket_timeout=PATIENCE) as client, client.monitor() as monitor:
        yield seen
        client.echo("the end")
        while "the end" not in (line := str(monitor.next_command()["command"])):
            seen.append(line)


def fetches(seen: list[str]) -> list[str]:
    return [line for line in seen if line.startswith(("BF.FETCH", "BF.MFETCH"))]


def make_due(client: redis.Redis) -> None:
    """Makes a value due for a refresh: it has less to live than `fail_safe`."""
    assert client.expire(KEY, 3000)


NAMES = [
    ("{users}", "{users}:feed"),
    ("users", "{users}:feed"),
    ("{shop}:users", "{shop}:users:feed"),
    ("a{b", "{a{b}:feed"),
]


@pytest.mark.parametrize(("filter", "heartbeat"), NAMES)
def test_the_keys_beside_a_filter(client: redis.Redis, rows: Rows, filter: str, heartbeat: str) -> None:
    Filter(client, filter).insert([1], capacity=100)
    guard = Guard(client, filter, feed=True, wait=0.001, attempts=1)
    prefix = heartbeat.removesuffix("feed")
    assert guard.get(50, rows.load) is None and rows.queries == 1, "without a heartbeat nothing is absent"
    client.set(heartbeat, "alive")
    assert guard.get(51, rows.load) is None and rows.queries == 1
    assert guard.get_many([52, 53], rows.load_many) == {52: None, 53: None} and rows.queries == 1
    client.hset(heartbeat + ":open", prefix + "1", "position")
    assert guard.get(1, rows.load) == b"one" and client.get(prefix + "1") is None, "nothing is filled meanwhile"
    assert guard.counts["wait"] >= 1 and guard.counts["unguarded"] == 1


def test_every_fetch_has_the_conditions(client: redis.Redis, follower: Follower, port: int, rows: Rows) -> None:
    def fails(_: Any) -> bytes:
        raise OSError

    with commands(port) as seen:
        guard: Guard[Any] = Guard(client, "rows", feed=True, codec=Json(), fail_safe=3600, near=NearCache(10, 3600))
        assert guard.get(1, lambda _: [1]) == [1]
        make_due(client)
        assert guard.get(1, fails) == [1], "an old value is fetched again"
        assert guard.get_many([2, 3], lambda ids: {id: [2] for id in ids}) == {2: [2], 3: [2]}
        client.set(KEY, b"no JSON")
        assert guard.get(1, lambda _: [1]) == [1]
        client.set("{rows}:2", b"no JSON")
        assert guard.get_many([2, 3], lambda ids: {id: [2] for id in ids}) == {2: [2], 3: [2]}
        make_due(client)
        Guard(client, "rows", feed=True, soft_timeout=0, fail_safe=3600).get(1, lambda _: b"[1]")
        follower.announces(4)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(guard.get, 4, lambda _: [4])
            eventually("a waiting reader", lambda: follower.waiting(1))
            follower.releases(4)
            assert waiting.result() == [4]
    found = fetches(seen)
    assert {"BF.FETCH", "BF.MFETCH"} == {line.split()[0] for line in found}
    assert any("WAIT" in line for line in found)
    for line in found:
        assert f"WHILE {HEARTBEAT} UNLESS {IN_FLIGHT}" in line


def test_a_write_in_flight_is_waited_for(client: redis.Redis, follower: Follower, rows: Rows) -> None:
    guard = Guard(client, "rows", feed=True, wait=PATIENCE - 1)
    readers: list[Callable[[], Any]] = [
        lambda: {1: guard.get(1, rows.load)},
        lambda: guard.get_many([1], rows.load_many),
        lambda: guard.get_many([1, 2], rows.load_many),
    ]
    for read in readers:
        rows.save(1, b"one")
        client.set(KEY, b"one")
        follower.announces(1)
        with ThreadPoolExecutor() as pool:
            found = [pool.submit(read) for _ in range(3)]
            eventually("a waiting reader", lambda: follower.waiting(1))
            rows.save(1, b"new")
            assert not any(one.done() for one in found)
            # A later transaction keeps the row in flight: the change of the first one does not answer the readers.
            client.execute_command("BF.MCHANGED", "rows", "ITEMS", 1, KEY)
            assert follower.waiting(1) and not any(one.done() for one in found)
            follower.releases(1)
            assert [one.result()[1] for one in found] == [b"new"] * 3
        assert client.get(KEY) == b"new"
    assert guard.counts["unguarded"] == 0


async def test_a_write_in_flight_is_waited_for_under_asyncio(
    aclient: redis.asyncio.Redis, follower: Follower, rows: Rows
) -> None:
    guard = bloomgate.asyncio.Guard(aclient, "rows", feed=True, wait=PATIENCE - 1)
    follower.client.set(KEY, b"one")
    follower.announces(1)
    readers = [asyncio.create_task(guard.get(1, rows.aload)) for _ in range(5)]
    both = asyncio.create_task(guard.get_many([1, 2], rows.aload_many))
    while not await asyncio.to_thread(follower.waiting, 1):
        await asyncio.sleep(0.001)
    rows.save(1, b"new")
    assert not any(reader.done() for reader in [*readers, both])
    await asyncio.to_thread(follower.releases, 1)
    assert await asyncio.gather(*readers) == [b"new"] * 5 and (await both) == {1: b"new", 2: b"two"}
    assert await guard.get(50, rows.aload) is None
    assert follower.client.get(KEY) == b"new" and rows.queries == 2, "each row was loaded once"


def test_a_write_that_stays_in_flight(client: redis.Redis, follower: Follower, rows: Rows) -> None:
    """The follower is away. Readers wait for as long as they may, ask the database, and fill nothing."""
    guard = Guard(client, "rows", feed=True, wait=0.02, attempts=2)
    client.set(KEY, b"an old value")
    follower.client.hset(IN_FLIGHT, "*", "a TRUNCATE")
    assert guard.get(1, rows.load) == b"one"
    assert guard.get_many([1, 2, 50], rows.load_many) == {1: b"one", 2: b"two", 50: None}
    assert guard.counts["unguarded"] == 4 and guard.counts["filled"] == 0


def test_an_old_value_is_not_served_during_a_write(client: redis.Redis, follower: Follower) -> None:
    """Neither if the load fails, nor if it takes long."""
    options: Any = {"feed": True, "fail_safe": 3600, "beta": 0}
    guard = Guard(client, "rows", **options)
    assert guard.get(1, lambda _: b"old") == b"old"
    make_due(client)

    def fails(_: Any) -> bytes:
        follower.announces(1)
        raise OSError("the database is down")

    with pytest.raises(OSError, match="down"):
        guard.get(1, fails)
    follower.releases(1)
    guard = Guard(client, "rows", soft_timeout=0.001, **options)
    assert guard.get(1, lambda _: b"old") == b"old"
    make_due(client)
    goes_on = threading.Event()

    def load(_: Any) -> bytes:
        follower.announces(1)
        assert goes_on.wait(PATIENCE)
        return b"new"

    with ThreadPoolExecutor() as pool:
        reader = pool.submit(guard.get, 1, load)
        eventually("the second fetch", lambda: guard.counts["wait"] == 1)
        goes_on.set()
        assert reader.result() == b"new" and guard.counts["soft_timeout"] == 0


def test_writers_send_nothing(bloom: Any) -> None:
    """The follower makes their calls: a server that is away stops no writer."""
    with bloom.connect(f"redis://127.0.0.1:{free_port()}") as client:
        guard = bloom.Guard(client, "rows", feed=True)
        with guard.changed(1, 2):
            pass
        guard.announce(1)
        guard.confirm(1)
        guard.forget(1)
        assert not guard.counts


def test_the_follower_invalidates_the_near_cache(client: redis.Redis, follower: Follower, rows: Rows) -> None:
    near, both = NearCache(100, 3600), {1: b"one", 2: b"two"}
    # Another guard fills, before the tracking begins: the server would report these fills too, at any time.
    assert Guard(client, "rows", feed=True).get_many([1, 2], rows.load_many) == both
    guard = Guard(client, "rows", feed=True, near=near)
    assert guard.get_many([1, 2], rows.load_many) == both
    eventually("the tracking", lambda: guard._tracking is not None and guard._tracking.is_active)
    assert guard.get_many([1, 2], rows.load_many) == both and len(near) == 2
    follower.announces(1)
    rows.save(1, b"new")
    follower.releases(1)
    eventually("the change", lambda: near.get(KEY.encode()) is None)
    assert guard.get(1, rows.load) == b"new" and guard.get(2, rows.load) == b"two"
    assert rows.queries == 3 and guard.counts["near_hit"] >= 1
    follower.beats()
    assert near.get(b"{rows}:2") == b"two", "a heartbeat drops no value"


@pytest.mark.parametrize("id", ["feed", "feed:open", "feed:position", "feed:epoch", "feed:alive", "filling"])
async def test_ids_that_would_name_the_followers_keys(
    client: redis.Redis, aclient: redis.asyncio.Redis, follower: Follower, rows: Rows, id: str
) -> None:
    key = f"{{rows}}:{id}"
    rows.save(id, b"row")
    Filter(client, "rows").add(id)
    if id == "feed:open":
        follower.announces(2)
    else:
        client.set(key, "the follower's")
    before = client.dump(key)
    guard = Guard(client, "rows", feed=True)
    assert guard.get(id, rows.load) == b"row"
    assert guard.get_many([id, 1, "none"], rows.load_many) == {id: b"row", 1: b"one", "none": None}
    assert guard.get_many([id], rows.load_many) == {id: b"row"}
    tasks = bloomgate.asyncio.Guard(aclient, "rows", feed=True)
    assert await asyncio.gather(*(tasks.get(one, rows.aload) for one in (id, 1))) == [b"row", b"one"]
    assert client.dump(key) == before
    client.delete(key)
    assert guard.get(id, rows.load) == b"row" and not client.exists(key), "nothing is filled there"


@pytest.mark.parametrize("options", [{"announce_to": ["more"]}, {"replicas": 1}, {"aof": True}])
def test_options_that_the_follower_would_need(client: redis.Redis, options: Any) -> None:
    with pytest.raises(ValueError, match="the follower announces"):
        Guard(client, "rows", feed=True, **options)


def test_a_filter_that_shares_its_slot_with_no_other_key(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="slot"):
        Guard(client, "a}b", feed=True, prefix="a}b:")


def test_a_cluster(cluster: redis.RedisCluster, rows: Rows) -> None:
    Filter(cluster, "rows").insert([1, 2], capacity=100)
    guard = Guard(cluster, "rows", feed=True, wait=0.02, attempts=1)
    assert guard.get(50, rows.load) is None and rows.queries == 1
    cluster.set(HEARTBEAT, "alive")
    assert guard.get(51, rows.load) is None and rows.queries == 1
    assert guard.get_many([1, 2, 52], rows.load_many) == {1: b"one", 2: b"two", 52: None}
    cluster.hset(IN_FLIGHT, KEY, "position")
    assert guard.get(1, lambda _: b"new") == b"new" and guard.get_many([1, 2], lambda ids: {}) == {1: None, 2: b"two"}
