"""A filter: the parts that clients/specification does not cover, which tests batches, errors and replies."""

from __future__ import annotations

from typing import Any

import pytest
import redis

import bloomgate
from bloomgate import Filter, FilterFull, FilterMissing


@pytest.fixture
def filter(client: redis.Redis) -> Filter:
    filter = Filter(client, "seen")
    filter.reserve(0.001, 10_000)
    return filter


def test_types_of_arguments(filter: Filter) -> None:
    assert filter.add(bytearray(b"array")) and memoryview(b"array") in filter and "x" not in filter
    calls: list[Any] = [
        lambda: filter.add_each("https://example.org/"),
        lambda: filter.insert("https://example.org/"),
        lambda: filter.add(object()),  # type: ignore[arg-type]
        lambda: filter.reserve(0.01, 1000, nonscaling=1),  # type: ignore[typeddict-item]
        lambda: filter.reserve(0.01, 1000, window=True),
        lambda: Filter(object(), "k"),  # type: ignore[arg-type]
        lambda: Filter(redis.Redis(), 17),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert filter.card() == 1


def test_an_iterator_reads_one_window_ahead(filter: Filter) -> None:
    read = 0

    def endless() -> Any:
        nonlocal read
        while True:
            read += 1
            yield read

    answers = filter.add_each(endless())
    assert next(answers) is True
    assert read <= 8_000
    assert read - 8 <= filter.card() <= read, "but for a false positive"


def test_the_answers_of_earlier_windows(client: redis.Redis) -> None:
    filter = Filter(client, "small")
    filter.reserve(1e-9, 1, nonscaling=True)
    with pytest.raises(FilterFull) as failed:
        filter.add_many([*["a"] * 20_000, "x"])
    assert failed.value.answers == [True, *[False] * 19_999, None]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("scaling", {"expansion": 4, "seed": 700}),
        ("scaling", {"hash": "siphash", "seed": "00112233445566778899aabbccddeeff"}),
        ("scaling", {"layout": "redisbloom"}),
        ("nonscaling", {"nonscaling": True}),
        ("nonscaling", {"expansion": 0}),
        ("window", {"window": 604800, "buckets": 12, "sliding": True, "hash": "siphash"}),
        ("rolling", {"rolling": True, "buckets": 4}),
        ("cuckoo", {"cuckoo": True, "expansion": 4}),
        ("counting", {"counting": True, "px": 1_000_000}),
    ],
)
def test_every_kind(client: redis.Redis, kind: str, words: Any) -> None:
    filter = Filter(client, "kind")
    filter.reserve(0.01, 1000, **words)
    assert filter.add_many(["a", "b"]) == [True, True]
    stats, info = filter.stats(), filter.info()
    assert (stats.kind, stats.items, stats.error_rate) == (kind, 2, 0.01)
    assert stats.layout == words.get("layout", "native")
    assert stats.hash == words.get("hash", "murmur3") or stats.layout == "redisbloom"
    assert stats.window_s == words.get("window") and stats.sliding == words.get("sliding", False)
    assert bool(stats.buckets) == (kind in ("window", "rolling"))
    assert (info.items, info.layers, info.size_bytes) == (2, 1, stats.size_bytes)
    assert info.expansion == (words.get("expansion", 2) if kind == "scaling" else None) or kind not in ("scaling", "nonscaling")
    assert (client.pttl("kind") > 0) == ("px" in words)
    plan = bloomgate.plan(client, 0.01, 1000, items=2, **{name: words[name] for name in words if name != "px"})
    assert plan.kind == kind and (stats.buckets or plan.size_bytes == info.size_bytes)


def test_rotating(client: redis.Redis) -> None:
    filter = Filter(client, "week")
    filter.reserve(0.01, 1000, window=604800, buckets=3)
    filter.add_many(["a", "b"])
    assert [filter.rotate() for _ in range(3)] == [0, 0, 2]
    assert filter.card() == 0


def test_merging_and_inserting(client: redis.Redis) -> None:
    for name, items in [("monday", "abc"), ("tuesday", "cd")]:
        Filter(client, name).insert(list(items), capacity=5000, rate=0.001, sync=True, seed=700)
    week = Filter(client, "week")
    week.merge("monday", "tuesday")
    assert week.insert(list("abcdx"), nocreate=True) == [False] * 4 + [True] and week.info().capacity == 5000
    for call in (lambda: week.merge("missing"), lambda: Filter(client, "missing").insert(["a"], nocreate=True)):
        with pytest.raises(FilterMissing):
            call()
    with pytest.raises(ValueError, match="source"):
        week.merge()
    valkey = Filter(client, "valkey")
    assert valkey.insert(tightening=0.5, validate_scale_to=10_000, capacity=100, seed32=bytes(32)) == []
    assert client.type("valkey") == b"bloomfltr"
    with pytest.raises(ValueError, match="32 bytes"):
        valkey.insert(seed32=b"short")


def test_a_client_that_decodes_and_one_with_the_methods_of_redis_py(port: int, protocol: int) -> None:
    with redis.Redis(port=port, protocol=protocol, decode_responses=True) as client:
        client.bf().create("seen", 0.01, 1000)  # sets callbacks of redis-py's for BF.*
        filter = Filter(client, "seen")
        assert filter.add_many([b"\xff", "a"]) == [True, True]
        assert (filter.info().items, filter.info().capacity, filter.stats().kind) == (2, 1000, "scaling")
        assert b"\xff" in filter
        assert filter.debug()[0] == "size:2"
