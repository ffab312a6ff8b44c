"""Sharded filters in a cluster of three and on a plain server: the parts that clients/specification does not cover."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

import bloomgate.asyncio
from bloomgate import BloomgateError, FilterExists, FilterMissing, ShardedFilter, ShardMissing
from bloomgate.sharded import shard_of


@pytest.fixture(params=["probe", "cluster"])
def any_client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_items_and_batches(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.001, 40_000, 7, hash="siphash")
    new = filter.add_many(range(20_000, 50_000))
    assert len(new) == 30_000 and sum(new) > 29_700 and b"20000" in filter and "never" not in filter
    asked = list(range(19_000, 51_000))
    found = filter.exists_many(asked)
    assert all(found[1000:31_000]) and sum(found[:1000] + found[31_000:]) < 40
    assert list(filter.exists_each(asked)) == found
    assert filter.delete_many([20_000, 20_001, "never"]) == [True, True, False]
    assert filter.info().items == filter.card() and len(filter.infos()) == 7 == len(filter.keys)
    filter.clear()
    assert filter.card() == 0
    with pytest.raises(TypeError):
        filter.add(None)  # type: ignore[arg-type]


def test_creating(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.01, 1000, 3)
    any_client.delete(filter.keys[1])
    with pytest.raises(ShardMissing, match=r"\{1\}"):
        ShardedFilter.open(any_client, "seen")
    with pytest.raises(FilterExists):
        ShardedFilter.create(any_client, "seen", 0.01, 1000, 4, resume=True)
    ShardedFilter.create(any_client, "seen", 0.01, 1000, 3, resume=True).verify()
    any_client.set("seen:shards", "many")
    with pytest.raises(BloomgateError, match="number of shards"):
        ShardedFilter.open(any_client, "seen")
    for shards in (0, 16385, -1, True, 2.0):
        with pytest.raises(ValueError, match="1 to 16384"):
            ShardedFilter.create(any_client, "other", 0.01, 1000, shards)  # type: ignore[arg-type]


def test_a_missing_shard_is_never_absent(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.01, 1000, 3, hash="siphash")
    filter.add_many(range(100))
    item, other = (next(id for id in range(100) if shard_of(b"%d" % id, 3) == shard) for shard in (1, 2))
    any_client.delete(filter.keys[1])
    for method in (
        lambda: filter.exists(item),
        lambda: filter.add(item),
        lambda: filter.exists_many(range(100)),
        lambda: filter.add_many(range(100)),
        lambda: filter.delete_many([item]),
        filter.card,
        filter.verify,
    ):
        with pytest.raises(ShardMissing):
            method()
    assert not any_client.exists(filter.keys[1]), "an add does not make an empty one"
    assert filter.exists(other)


def test_doubling_again_and_reopening(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.001, 20_000, 2)
    old = ShardedFilter.open(any_client, "seen")
    filter.add_many(range(5000))
    any_client.execute_command("BF.ADD", "seen:{3}", "left by an attempt that died")
    filter.double()
    old.reopen()
    assert filter.shards == old.shards == 4 and all(filter.exists_many(range(5000)))
    assert old.add_many(["new", 1]) == [True, False]


def test_merging(any_client: Any) -> None:
    for name, items in [("monday", range(100)), ("tuesday", range(50, 150))]:
        ShardedFilter.create(any_client, name, 0.001, 10_000, 3, seed=700).add_many(items)
    for name in ("monday", "tuesday"):
        ShardedFilter(any_client, name).merge_into("week")
    week = ShardedFilter.open(any_client, "week")
    assert all(week.exists_many(range(150))) and "x" not in week
    ShardedFilter.create(any_client, "four", 0.001, 10_000, 4, seed=700)
    with pytest.raises(ValueError, match="4 shards"):
        week.merge_into("four")
    any_client.delete(week.keys[0])
    with pytest.raises(ShardMissing):
        ShardedFilter(any_client, "monday").merge_into("week")


async def test_constructors_send_nothing(client: redis.Redis, aclient: redis.asyncio.Redis) -> None:
    """The first call opens the filter."""
    filter, tasks = ShardedFilter(client, "later"), bloomgate.asyncio.ShardedFilter(aclient, "later")
    for name in ("card", "clear", "drop", "infos", "verify"):
        with pytest.raises(FilterMissing):
            getattr(filter, name)()
        with pytest.raises(FilterMissing):
            await getattr(tasks, name)()
    ShardedFilter.create(client, "later", 0.01, 1000, 4).add("a")
    assert "a" in filter and await tasks.exists("a") and filter.shards == tasks.shards == 4
    assert [answer async for answer in tasks.exists_each(["a", "b"])] == [True, False]
    ShardedFilter(client, "later").drop()
    assert not client.keys("later*")
