"""Databases that fail or are slow: old values, back-offs, and loads that continue in the background."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from typing import Any

import pytest
import redis
import redis.asyncio
from kinds import until
from rows import waiting_for
from server import PATIENCE, eventually

import bloomgate
import bloomgate.asyncio
from bloomgate import Filter, Guard
from bloomgate.guard_reads import Reading

KEY = "{rows}:1"
OPTIONS: Any = {"ttl": 0.001, "fail_safe": 3600, "beta": 0}
"""Values are due for a refresh at once, and stay cached for an hour."""


class Database:
    """Rows whose loads a test can make fail or wait."""

    def __init__(self) -> None:
        self.is_down = False
        self.loads = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.row = b"one"

    def load(self, _: Any = None) -> bytes:
        self.loads += 1
        assert self.goes_on.wait(PATIENCE)
        if self.is_down:
            raise OSError("the database is down")
        return self.row

    def load_many(self, ids: list[int]) -> dict[int, bytes]:
        return dict.fromkeys(ids, self.load())


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def filled(client: redis.Redis) -> redis.Redis:
    """A server whose filter contains the rows 1 to 9, with old values of 1 and 2."""
    Filter(client, "rows").insert(range(1, 10), capacity=100)
    for id in (1, 2):
        client.set(f"{{rows}}:{id}", b"old", ex=3000)
    return client


def test_a_value_that_is_renewed_early(filled: redis.Redis, database: Database) -> None:
    """Even without `fail_safe`, a value that has not expired is served in place of an error."""
    guard = Guard(filled, "rows", beta=1000)

    def slow(_: Any) -> bytes:
        time.sleep(0.2)
        return b"slow"

    assert guard.get(3, slow) == b"slow"
    database.is_down = True
    # The time before the end is random; its mean is 200 s.
    eventually("the renewal", lambda: guard.get(3, database.load) == b"slow" and guard.counts["stale"])
    assert guard.counts["stale"] == 1 and guard.counts["stale_served"] == 1


def test_a_load_that_fails_in_the_background(filled: redis.Redis, database: Database) -> None:
    guard = Guard(filled, "rows", **OPTIONS, soft_timeout=0.01, lease=PATIENCE)
    database.is_down = True
    database.goes_on.clear()
    assert guard.get(1, database.load) == b"old"
    database.goes_on.set()
    eventually("the lease to be given up", lambda: not filled.info("bf")["bf_bloom_leases"])
    assert guard.counts["load_failed"] == 1 and filled.get(KEY) == b"old"


def test_a_fast_load_within_the_soft_timeout(filled: redis.Redis, database: Database) -> None:
    guard = Guard(filled, "rows", **OPTIONS, soft_timeout=PATIENCE)
    assert guard.get(1, database.load) == b"one" and guard.get_many([2], database.load_many) == {2: b"one"}
    assert guard.counts["soft_timeout"] == 0 and guard.counts["filled"] == 2


def test_a_slow_load_without_an_old_value(filled: redis.Redis, database: Database) -> None:
    """Callers wait for the load, because there is nothing else to serve."""
    guard = Guard(filled, "rows", **OPTIONS, soft_timeout=0)
    database.goes_on.clear()
    threading.Timer(0.05, database.goes_on.set).start()
    assert guard.get_many([1, 3], database.load_many) == {1: b"one", 3: b"one"}


def test_a_change_during_a_slow_load(filled: redis.Redis, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change deletes the old value, so callers wait for the load. Its result is not cached, because it was read before the
    change."""
    guard = Guard(filled, "rows", **OPTIONS, soft_timeout=0)
    old_values = Reading.old_values

    def after_a_change(reading: Any, flights: Any) -> Any:
        with Guard(filled, "rows").changed(*(flight.id for flight in flights)):
            database.goes_on.set()
        return old_values(reading, flights)

    monkeypatch.setattr(Reading, "old_values", after_a_change)
    database.goes_on.clear()
    assert guard.get(1, database.load) == b"one"
    assert guard.counts["soft_timeout"] == 0 and guard.counts["lease_lost"] == 1


def test_too_many_loads_in_the_background(filled: redis.Redis, database: Database) -> None:
    guard = Guard(filled, "rows", **OPTIONS, soft_timeout=0.01, lease=PATIENCE)
    while guard._steps.background.acquire():
        pass
    assert guard.get(1, database.load) == b"old" and database.loads == 0


async def test_a_task_that_is_cancelled_within_the_soft_timeout(filled: redis.Redis, aclient: redis.asyncio.Redis) -> None:
    guard = bloomgate.asyncio.Guard(aclient, "rows", **OPTIONS, soft_timeout=PATIENCE, lease=PATIENCE)
    loading = asyncio.Event()

    async def load(_: Any) -> bytes:
        loading.set()
        await asyncio.sleep(3600)
        return b"never"

    task = asyncio.create_task(guard.get(1, load))
    await loading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not filled.info("bf")["bf_bloom_leases"])


CROWD = 200


@pytest.mark.parametrize("options", [{}, {"fail_safe": 3600}], ids=repr)
def test_a_crowd_shares_the_error_of_one_load(bloom: Any, port: int, options: Any) -> None:
    with bloom.connect(f"redis://127.0.0.1:{port}", socket_timeout=PATIENCE, timeout=PATIENCE) as client:
        bloom.Filter(client, "rows").insert(range(10), capacity=100)
        guard = bloom.Guard(client, "rows", lease=PATIENCE, wait=PATIENCE / 2, **options)
        failures: list[BaseException] = []
        loads = 0

        def load(_: Any) -> bytes:
            nonlocal loads
            loads += 1
            eventually("all others to wait", lambda: waiting_for(guard) == CROWD - 1)
            raise OSError("the database is down")

        def read() -> None:
            try:
                guard.get(3, load)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=read) for _ in range(CROWD)]
        threads[0].start()
        # A caller that fetches before this process has begun the load waits in the server.
        eventually("the load", lambda: loads)
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert loads == 1 and [str(one) for one in failures] == ["the database is down"] * CROWD
        assert all(isinstance(one, OSError) for one in failures)
        if bloom is bloomgate:
            assert len(traceback.extract_tb(failures[0].__traceback__)) < 100, "the callers' frames do not add up"
        if not options:
            assert guard.get(3, lambda _: b"row") == b"row", "the next call loads again"
