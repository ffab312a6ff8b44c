"""Renewal before expiry, and times to live that differ."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest
import redis
from rows import Rows
from server import eventually

from bloomgate import Filter, Guard


@pytest.fixture
def rows(client: redis.Redis) -> Rows:
    Filter(client, "rows").insert(range(100), capacity=100, rate=1e-12)
    rows = Rows()
    for id in range(100):
        rows.save(id, b"%d" % id)
    return rows


def test_one_caller_renews(bloom: Any, client: redis.Redis, rows: Rows, port: int) -> None:
    """The server averages the load times of all guards; one guard renews a value long before it expires."""
    with bloom.connect(f"redis://127.0.0.1:{port}") as other_client:
        guard, other = Guard(client, "rows", beta=1000), bloom.Guard(other_client, "rows", beta=1000)
        rows.delay = 0.2
        assert other.get(1, rows.load) == b"1"

        def load_while_others_read(_: Any) -> bytes:
            assert other.get(1, rows.load) == b"1"
            return b"new"

        # The time before the end is random; its mean is 200 s.
        eventually("the renewal", lambda: guard.get(1, load_while_others_read) == b"new")
        assert other.counts["hit"] == 1 and guard.counts["stale"] == 1 and rows.queries == 1


def test_a_guard_that_renews_nothing(client: redis.Redis, rows: Rows) -> None:
    rows.delay = 0.01
    never = Guard(client, "rows", beta=0, ttl=5)
    assert [never.get(2, rows.load) for _ in range(50)] == [b"2"] * 50 and never.counts["hit"] == 49


def test_rows_of_a_batch_are_renewed_apart(client: redis.Redis, rows: Rows) -> None:
    """The server draws a random number for each row; otherwise a batch would renew all of its rows at once, or none."""
    guard = Guard(client, "rows", ttl=3600, beta=100)
    wanted = {id: b"%d" % id for id in range(100)}

    def slow(ids: list[int]) -> dict[int, bytes]:
        time.sleep(0.1)
        return rows.load_many(ids)

    assert guard.get_many(range(100), slow) == wanted
    for id in range(100):
        client.pexpire(f"{{rows}}:{id}", 7000)
    assert guard.get_many(range(100), rows.load_many) == wanted
    assert 0 < guard.counts["stale"] < 100, "the mean of the time before the end is 10 s"


def test_rows_that_are_filled_together_expire_apart(client: redis.Redis, rows: Rows) -> None:
    guard = Guard(client, "rows", ttl=1_000_000, absent_ttl=1_000_000)
    guard.get_many(range(100), rows.load_many)
    left = [client.pttl(f"{{rows}}:{id}") / 1e9 for id in range(100)]
    assert 0.89 < min(left) < 0.92 and 0.98 < max(left) <= 1
    assert statistics.stdev(left) > 0.02
