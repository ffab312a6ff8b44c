"""`Guard(..., feed=True)`: readers of a table that is followed by `bloomgate follow`. These tests make the follower's calls
themselves; test_follow.py runs the follower."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from rows import Rows
from server import PATIENCE, eventually

from bloomgate import Filter, Guard, NearCache

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


@pytest.fixture
def follower(port: int) -> Iterator[Follower]:
    """A follower whose filter contains the rows 1 to 9, and whose heartbeat exists."""
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


def make_due(client: redis.Redis) -> None:
    """Makes a value due for a refresh: its remaining time to live is less than `fail_safe`."""
    assert client.expire(KEY, 3000)


def test_an_old_value_is_not_served_during_a_write(client: redis.Redis, follower: Follower) -> None:
    """It is served neither if the load fails nor if it takes long."""
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


def test_the_follower_invalidates_the_near_cache(client: redis.Redis, follower: Follower, rows: Rows) -> None:
    near, both = NearCache(100, 3600), {1: b"one", 2: b"two"}
    # Another guard fills before the tracking begins, because the server would also report these fills, at an unknown time.
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
