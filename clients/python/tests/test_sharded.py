"""Sharded filters in a cluster of three and on a plain server, by the contract that all clients of the project keep."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from server import PATIENCE

import bloomgate.asyncio
from bloomgate import BloomgateError, FilterExists, FilterFull, FilterMissing, ShardedFilter, ShardMissing, ShardsChanged
from bloomgate.sharded import shard_capacity, shard_key, shard_of


@pytest.fixture
def plain(port: int) -> Iterator[redis.Redis]:
    with redis.Redis(port=port, socket_timeout=PATIENCE) as client:
        yield client


@pytest.fixture(params=["plain", "cluster"])
def any_client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_the_vector() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert shard_of(b"123456789", 1) == 0
    assert shard_of(b"123456789", 1000) == 0xCBF43926 % 1000
    assert shard_of(b"123456789", 16384) == 0x3926 & 16383
    assert shard_key("seen", 17) == b"seen:{17}"
    assert shard_capacity(1_000_000, 3) == math.ceil(1e6 / 3 + 4 * math.sqrt(1e6 / 3))
    assert shard_capacity(10, 16384) == 1


def test_what_lies_where(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.01, 10_000, 5, seed=700)
    assert any_client.get("seen:shards") == b"5"
    assert filter.keys == [b"seen:{%d}" % i for i in range(5)]
    assert all(any_client.execute_command("BF.INFO", key, "CAPACITY") for key in filter.keys)
    assert filter.infos()[4].capacity == math.ceil(2000 + 4 * math.sqrt(2000))
    assert filter.add("123456789") is True
    shard = 0xCBF43926 % 5
    cards = [any_client.execute_command("BF.CARD", key) for key in filter.keys]
    assert cards == [int(i == shard) for i in range(5)]
    if isinstance(any_client, redis.RedisCluster):
        assert any_client.keyslot(filter.keys[3]) == any_client.keyslot("3")


def test_items_and_batches(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.001, 40_000, 7)
    assert filter.add("a") and not filter.add(b"a") and "a" in filter and not filter.exists(b"\xff\x00")
    assert filter.add_many([]) == [] and filter.exists_many([]) == []
    assert filter.add_many(["b", "a", "b", 17, b"\xff\x00"]) == [True, False, False, True, True]
    new = filter.add_many(range(20_000, 50_000))
    assert len(new) == 30_000 and sum(new) > 29_700
    asked = list(range(19_000, 51_000))
    found = filter.exists_many(asked)
    assert all(found[1000:31_000]) and sum(found[:1000] + found[31_000:]) < 40
    assert list(filter.exists_each(asked)) == found
    assert filter.card() == sum(new) + 4
    assert filter.info().items == filter.card() and len(filter.infos()) == 7
    assert ShardedFilter(any_client, b"seen").exists_many(asked) == found
    filter.clear()
    assert filter.card() == 0
    filter.drop()
    assert not any_client.exists("seen:shards")
    with pytest.raises(TypeError):
        filter.add_many("one")
    with pytest.raises(TypeError):
        filter.add(None)  # type: ignore[arg-type]


def test_deletes(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "rows", 0.01, 1000, 3, hash="siphash")
    filter.add_many(range(10))
    assert filter.delete_many([1, 2, "never"]) == [True, True, False]
    assert filter.exists_many([1, 2, 3]) == [False, False, True]


def test_opening(any_client: Any) -> None:
    with pytest.raises(FilterMissing):
        ShardedFilter.open(any_client, "seen")
    filter = ShardedFilter.create(any_client, "seen", 0.01, 1000, 3)
    with pytest.raises(FilterExists):
        ShardedFilter.create(any_client, "seen", 0.01, 1000, 3)
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
    item = next(number for number in range(100) if shard_of(b"%d" % number, 3) == 1)
    other = next(number for number in range(100) if shard_of(b"%d" % number, 3) == 2)
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


def test_doubling(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "seen", 0.001, 20_000, 2)
    old = ShardedFilter.open(any_client, "seen")
    filter.add_many(range(5000))
    any_client.execute_command("BF.ADD", "seen:{3}", "left by an attempt that died")
    filter.double()
    assert filter.shards == 4 and any_client.get("seen:shards") == b"4"
    assert all(filter.exists_many(range(5000))) and all(ShardedFilter(any_client, "seen").exists_many(range(5000)))
    for method in (lambda: old.add("a"), lambda: old.exists_many(["a"])):
        with pytest.raises(ShardsChanged):
            method()
    old.reopen()
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


def test_a_full_shard(any_client: Any) -> None:
    filter = ShardedFilter.create(any_client, "small", 1e-9, 4, 2, nonscaling=True)
    with pytest.raises(FilterFull):
        filter.add_many(range(1000))


@pytest.mark.parametrize("kind", ["plain", "cluster"])
async def test_asyncio(kind: str, request: pytest.FixtureRequest) -> None:
    client: Any
    if kind == "plain":
        client = redis.asyncio.Redis(port=request.getfixturevalue("port"), socket_timeout=PATIENCE)
    else:
        request.getfixturevalue("cluster")
        port = request.getfixturevalue("cluster_ports")[0]
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=port, socket_timeout=PATIENCE)
    async with client:
        sharded = bloomgate.asyncio.ShardedFilter
        filter = await sharded.create(client, "seen", 0.001, 40_000, 7, hash="siphash")
        assert await filter.add("a") and await filter.exists("a")
        assert await filter.add_many(["b", "a", "b", b"\xff"]) == [True, False, False, True]
        assert sum(await filter.add_many(range(20_000))) > 19_900
        assert all([answer async for answer in filter.exists_each(range(20_000))])
        assert await filter.delete_many([1, "never"]) == [True, False]
        assert (await filter.info()).items == await filter.card()
        await filter.double()
        assert (await sharded.open(client, "seen")).shards == 14
        assert all(await filter.exists_many(range(2, 20_000)))
        await client.delete(filter.keys[3])
        with pytest.raises(ShardMissing):
            await filter.exists_many(range(100))
        await filter.drop()
        with pytest.raises(FilterMissing):
            await sharded.open(client, "seen")
        plan = await bloomgate.asyncio.plan(client, 0.01, 1000)
        assert plan.capacity == 1000


def test_a_plan_of_a_cluster(cluster: redis.RedisCluster) -> None:
    assert bloomgate.plan(cluster, 0.01, 1000).kind == "scaling"


def test_constructors_ask_nothing(client: redis.Redis) -> None:
    """The first call opens the filter."""
    filter = ShardedFilter(client, "later")
    assert filter.shards == 0
    for call in (filter.card, filter.clear, filter.drop, filter.infos, filter.verify):
        with pytest.raises(FilterMissing):
            call()
    ShardedFilter.create(client, "later", 0.01, 1000, 4).add("a")
    assert "a" in filter and filter.shards == 4
    ShardedFilter(client, "later").clear()
    assert filter.card() == 0
    ShardedFilter(client, "later").drop()
    assert not client.keys("later*")


async def test_constructors_of_asyncio_ask_nothing(client: redis.Redis, aclient: redis.asyncio.Redis) -> None:
    filter = bloomgate.asyncio.ShardedFilter(aclient, "later")
    for call in (filter.card, filter.clear, filter.drop, filter.infos, filter.verify):
        with pytest.raises(FilterMissing):
            await call()
    ShardedFilter.create(client, "later", 0.01, 1000, 4).add("a")
    assert await filter.exists("a") and filter.shards == 4
    await bloomgate.asyncio.ShardedFilter(aclient, "later").drop()
    assert not client.keys("later*")
