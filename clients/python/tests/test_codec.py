"""What the codecs convert, and that every caller of a row gets the same."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from rows import Rows
from server import free_port

import bloomgate.asyncio
from bloomgate import Filter, Guard, Json

ROW = {"at": datetime.date(2026, 11, 27), "tags": ("a", "b"), 7: "seven"}
AS_CACHED = {"at": "2026-11-27", "tags": ["a", "b"], "7": "seven"}


@pytest.fixture
def filled(client: redis.Redis) -> redis.Redis:
    Filter(client, "rows").insert(range(10), capacity=100)
    return client


def test_json_converts_what_it_is_told_to() -> None:
    json = Json(default=str)
    assert json.decode(json.encode(ROW)) == AS_CACHED
    assert json.encode({"ä": [1, None]}) == '{"ä":[1,null]}'.encode()
    with pytest.raises(TypeError, match="date"):
        Json().encode(ROW)
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json.encode([number])


def by_get(guard: Guard[Any]) -> Any:
    return guard.get(1, lambda _: dict(ROW))


def by_get_many(guard: Guard[Any]) -> Any:
    return guard.get_many([1, 2], lambda ids: {id: dict(ROW) for id in ids})[1]


@pytest.mark.parametrize("read", [by_get, by_get_many])
def test_every_caller_gets_what_is_cached(filled: redis.Redis, read: Callable[[Guard[Any]], Any]) -> None:
    """The one that loads the row, and those that find no server, get no other form of it than the others."""
    guard: Guard[Any] = Guard(filled, "rows", codec=Json(default=str))
    assert [read(guard) for _ in range(3)] == [AS_CACHED] * 3 and guard.counts["load"] in (1, 2)
    alone: Guard[Any] = Guard(bloomgate.connect(f"redis://localhost:{free_port()}"), "rows", codec=Json(default=str))
    assert read(alone) == AS_CACHED and alone.counts["unguarded"]
    strict: Guard[Any] = Guard(bloomgate.connect(f"redis://localhost:{free_port()}"), "rows", codec=Json())
    with pytest.raises(TypeError, match="date"):
        read(strict)


async def test_tasks_get_what_is_cached(filled: redis.Redis, aclient: redis.asyncio.Redis) -> None:
    guard: bloomgate.asyncio.Guard[Any] = bloomgate.asyncio.Guard(aclient, "rows", codec=Json(default=str))

    async def load(_: Any) -> Any:
        return dict(ROW)

    async def load_many(ids: list[int]) -> Any:
        return {id: dict(ROW) for id in ids}

    assert [await guard.get(1, load) for _ in range(2)] == [AS_CACHED] * 2
    assert await guard.get_many([1, 2], load_many) == {1: AS_CACHED, 2: AS_CACHED}


async def test_one_text_is_not_several_ids(filled: redis.Redis, aclient: redis.asyncio.Redis) -> None:
    for text in ("abc", b"abc"):
        with pytest.raises(TypeError, match="should be an iterable"):
            Guard(filled, "rows").get_many(text, lambda ids: {})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="should be an iterable"):
            await bloomgate.asyncio.Guard(aclient, "rows").get_many(text, Rows().aload_many)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="should be an iterable"):
            Guard(filled, "rows", announce_to=text)  # type: ignore[arg-type]
