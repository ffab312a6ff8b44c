"""The filter under asyncio: what differs from threads is how it is called."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from server import PATIENCE

import bloomgate
from bloomgate import BadDump, FilterExists, FilterFull, FilterMissing
from bloomgate.asyncio import Filter, connect, plan


async def test_every_method(aclient: redis.asyncio.Redis) -> None:
    filter = Filter(aclient, "seen")
    assert await filter.reserve(0.001, 10_000, hash="siphash") is True
    assert await filter.reserve(0.001, 10_000, exist_ok=True) is False
    with pytest.raises(FilterExists):
        await filter.reserve(0.001, 10_000)
    assert await filter.add("a") is True and await filter.exists(b"a") is True
    assert await filter.add_many(["a", "b"]) == [False, True]
    assert await filter.exists_many(["b", "x"]) == [True, False]
    assert await filter.delete("a") is True
    assert await filter.delete_many(["b", "x"]) == [True, False]
    assert await filter.insert(["c"], nocreate=True) == [True]
    assert await filter.card() == 1
    info, stats = await filter.info(), await filter.stats()
    assert (info.items, stats.hash, stats.items_deleted) == (1, "siphash", 2)
    assert (await filter.debug())[0] == "size:1"
    file = io.BytesIO()
    await filter.dump(file)
    file.seek(0)
    copy = Filter(aclient, "copy")
    await copy.load(file)
    assert await copy.exists("c")
    with pytest.raises(BadDump):
        await copy.load(io.BytesIO(file.getvalue()[:-1]), replace=True)
    assert not await aclient.exists("copy")
    await filter.clear()
    assert await filter.card() == 0 and await filter.drop() is True
    with pytest.raises(FilterMissing):
        await filter.info()
    assert await plan(aclient, 0.01, 1000, items=2500) == bloomgate.plan(
        bloomgate.connect(f"redis://localhost:{aclient.connection_pool.connection_kwargs['port']}"), 0.01, 1000, items=2500
    )


async def test_other_kinds(aclient: redis.asyncio.Redis) -> None:
    counting, week, union = (Filter(aclient, name) for name in ("counting", "week", "union"))
    await counting.reserve(0.01, 100, counting=True)
    await counting.add_many(["a", "a"])
    assert await counting.count("a") == 2
    await week.reserve(0.01, 100, window=60)
    assert await week.rotate() == 0
    for name in ("one", "two"):
        await Filter(aclient, name).reserve(0.01, 100, seed=700)
        await Filter(aclient, name).add(name)
    await union.merge("one", "two")
    assert await union.exists_many(["one", "two", "three"]) == [True, True, False]


async def test_iterators_of_either_kind(aclient: redis.asyncio.Redis) -> None:
    filter = Filter(aclient, "seen")
    await filter.reserve(0.001, 100_000)

    async def numbers() -> AsyncIterator[int]:
        for number in range(20_000):
            yield number

    assert sum([answer async for answer in filter.add_each(numbers())]) > 19_900
    assert all([answer async for answer in filter.exists_each(range(20_000))])
    assert all(await filter.exists_many(numbers()))
    with pytest.raises(TypeError):
        filter.add_each("one item")
    with pytest.raises(TypeError):
        await filter.add_many("one item")


async def test_a_full_filter(aclient: redis.asyncio.Redis) -> None:
    filter = Filter(aclient, "small")
    await filter.reserve(1e-9, 2, nonscaling=True)
    with pytest.raises(FilterFull) as failed:
        await filter.add_many(["a", "b", "c"])
    assert failed.value.answers == [True, True, None]


async def test_many_tasks_at_once(port: int) -> None:
    async with connect(f"redis://localhost:{port}", timeout=PATIENCE) as client:
        filter = Filter(client, "seen")
        await filter.reserve(1e-6, 100_000)
        answers = await asyncio.gather(*(filter.add_many(range(1000)) for _ in range(20)))
        assert [sum(column) for column in zip(*answers, strict=True)] == [1] * 1000, "each item is new to one"
