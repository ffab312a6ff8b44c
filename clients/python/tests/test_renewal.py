"""Renewal before expiry, and times to live that differ."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import pytest
import redis
from rows import Rows

from bloomgate import Filter, Guard


@pytest.fixture
def rows(client: redis.Redis) -> Rows:
    Filter(client, "rows").insert(range(100), capacity=100, rate=1e-12)
    rows = Rows()
    for id in range(100):
        rows.save(id, b"%d" % id)
    return rows


def test_loads_are_timed(client: redis.Redis, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(client, "rows")
    assert guard._steps.stale_ms() == 0, "nothing is known of loads yet"
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def take(seconds: float) -> bytes:
        now[0] += seconds
        return b"row"

    guard.get(1, lambda _: take(2))
    assert guard._steps.load_s == 2
    guard.get(2, lambda _: take(1))
    assert guard._steps.load_s == pytest.approx(1.8)
    guard.get_many([3, 4], lambda ids: {id: take(0.4) for id in ids})
    assert guard._steps.load_s == pytest.approx(1.6)


def test_when_a_value_is_renewed(client: redis.Redis) -> None:
    """The time before expiry is exponentially distributed. Its mean is beta times the duration of a load."""
    random.seed(7)
    steps = Guard(client, "rows", beta=2, fail_safe=100)._steps
    steps.load_s = 0.5
    drawn = [steps.stale_ms() - 100_000 for _ in range(20_000)]
    assert min(drawn) >= 0 and statistics.mean(drawn) == pytest.approx(1000, rel=0.05)
    assert statistics.median(drawn) == pytest.approx(693, rel=0.05)


def test_rows_of_a_batch_are_renewed_apart(client: redis.Redis) -> None:
    """Were one number drawn for a whole batch, it would renew all of its rows at once, or none."""
    random.seed(7)
    steps = Guard(client, "rows", fail_safe=100)._steps
    ids = [b"%d" % id for id in range(500)]
    assert [group for _, group in steps.stale_groups(ids)] == [ids]
    steps.load_s = 0.5
    groups = steps.stale_groups(ids)
    assert sorted(id for _, group in groups for id in group) == sorted(ids) and 5 <= len(groups) <= 13
    drawn = [stale_ms - 100_000 for stale_ms, group in groups for _ in group]
    assert statistics.mean(drawn) == pytest.approx(500, rel=0.15), "as for single rows"
    assert sum(drawn_ms > 2000 for drawn_ms in drawn) < 25


def test_batches_of_slow_loads(client: redis.Redis, rows: Rows) -> None:
    guard = Guard(client, "rows", ttl=3600)
    wanted = {id: b"%d" % id for id in range(100)}
    assert guard.get_many(range(100), rows.load_many) == wanted
    guard._steps.load_s = 0.5
    assert guard.get_many([*range(100), 5000], rows.load_many) == {**wanted, 5000: None}
    assert rows.queries == 100 and guard.counts["hit"] == 100


def test_one_caller_renews(client: redis.Redis, rows: Rows) -> None:
    guard = Guard(client, "rows", beta=1e9)
    rows.delay = 0.001
    guard.get(1, rows.load)
    other = Guard(client, "rows", beta=1e9)
    other._steps.load_s = guard._steps.load_s

    def load_while_others_read(_: Any) -> bytes | None:
        assert other.get(1, rows.load) == b"1"
        return b"new"

    assert guard.get(1, load_while_others_read) == b"new"
    assert other.counts["hit"] == 1 and guard.counts["stale"] == 1 and rows.queries == 1
    never = Guard(client, "rows", beta=0)
    never.get(2, rows.load)
    assert [never.get(2, rows.load) for _ in range(50)] == [b"2"] * 50 and never.counts["hit"] == 50


def test_rows_that_are_filled_together_expire_apart(client: redis.Redis, rows: Rows) -> None:
    guard = Guard(client, "rows", ttl=1_000_000, absent_ttl=1_000_000)
    guard.get_many(range(100), rows.load_many)
    left = [client.pttl(f"{{rows}}:{id}") / 1e9 for id in range(100)]
    assert 0.89 < min(left) < 0.92 and 0.98 < max(left) <= 1
    assert statistics.stdev(left) > 0.02
