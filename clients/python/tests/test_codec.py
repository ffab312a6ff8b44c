"""The conversions of the codecs; every caller of a row gets the same value."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import redis
from server import PATIENCE, free_port

from bloomgate import Json

ROW = {"at": datetime.date(2026, 11, 27), "tags": ("a", "b"), 7: "seven"}
AS_CACHED = {"at": "2026-11-27", "tags": ["a", "b"], "7": "seven"}


def test_json_converts_only_supported_types() -> None:
    json = Json(default=str)
    assert json.decode(json.encode(ROW)) == AS_CACHED
    assert json.encode({"ä": [1, None]}) == '{"ä":[1,null]}'.encode()
    with pytest.raises(TypeError, match="date"):
        Json().encode(ROW)
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json.encode([number])


def by_get(guard: Any) -> Any:
    return guard.get(1, load_one)


def by_get_many(guard: Any) -> Any:
    return guard.get_many([1, 2], load_many)[1]


def load_one(_: Any) -> Any:
    return dict(ROW)


def load_many(ids: list[int]) -> Any:
    return {id: dict(ROW) for id in ids}


@pytest.mark.parametrize("read", [by_get, by_get_many])
def test_every_caller_gets_what_is_cached(bloom: Any, probe: redis.Redis, port: int, read: Callable[[Any], Any]) -> None:
    """The caller that loads the row, and callers without a server, get the same form of it as the others."""
    there, away = f"redis://localhost:{port}", f"redis://localhost:{free_port()}"
    with bloom.connect(there, timeout=PATIENCE) as client, bloom.connect(away) as lost:
        guard = bloom.Guard(client, "rows", codec=Json(default=str))
        assert [read(guard) for _ in range(3)] == [AS_CACHED] * 3 and guard.counts["load"] in (1, 2)
        alone = bloom.Guard(lost, "rows", codec=Json(default=str))
        assert read(alone) == AS_CACHED and alone.counts["unguarded"]
        with pytest.raises(TypeError, match="date"):
            read(bloom.Guard(lost, "rows", codec=Json()))
