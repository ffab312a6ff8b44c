"""The filter under asyncio, where it differs: iterators of either kind, and many tasks. The other methods are the same for
threads, and clients/specification tests both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from server import PATIENCE

from bloomgate.asyncio import Filter, connect


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


async def test_many_tasks_at_once(port: int) -> None:
    async with connect(f"redis://localhost:{port}", timeout=PATIENCE) as client:
        filter = Filter(client, "seen")
        await filter.reserve(1e-6, 100_000)
        answers = await asyncio.gather(*(filter.add_many(range(1000)) for _ in range(20)))
        assert [sum(column) for column in zip(*answers, strict=True)] == [1] * 1000, "each item is new to one"
