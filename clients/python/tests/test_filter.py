"""A filter: every word and every command, in each protocol."""

from __future__ import annotations

import io
from typing import Any

import pytest
import redis

import bloomgate
from bloomgate import BadDump, Filter, FilterExists, FilterFull, FilterLoading, FilterMissing


@pytest.fixture
def filter(client: redis.Redis) -> Filter:
    filter = Filter(client, "seen")
    filter.reserve(0.001, 10_000)
    return filter


def test_items_of_each_form(filter: Filter) -> None:
    assert filter.add("a") is True
    assert filter.add(b"a") is False, "text is UTF-8"
    assert filter.add(17) is True
    assert "17" in filter, "a number is its digits"
    assert filter.add(b"\x00\xff\r\n") and b"\x00\xff\r\n" in filter
    assert filter.add(bytearray(b"array")) and memoryview(b"array") in filter
    assert filter.add("") and "" in filter
    assert "x" not in filter
    assert filter.card() == 5


@pytest.mark.parametrize("item", [None, 1.5, True, ["a"], object()])
def test_anything_else_is_no_item(filter: Filter, item: Any) -> None:
    with pytest.raises(TypeError):
        filter.add(item)
    with pytest.raises(TypeError):
        filter.add_many(["first", item])
    assert filter.card() == 0


def test_one_item_is_no_batch(filter: Filter) -> None:
    for method in (filter.add_many, filter.exists_many, filter.add_each, filter.delete_many):
        with pytest.raises(TypeError):
            method("https://example.org/")


def test_batches_of_any_size(filter: Filter) -> None:
    assert filter.add_many([]) == []
    assert filter.add_many(["a", "b", "a"]) == [True, True, False]
    count = 30_001
    new = filter.add_many(range(count))
    assert len(new) == count and sum(new) > count * 0.99
    assert all(filter.exists_many(range(count)))
    assert sum(filter.exists_many(range(count, 2 * count))) < count * 0.02


def test_items_that_are_large(filter: Filter) -> None:
    items = [bytes([number]) * 3_000_000 for number in range(5)]
    assert filter.add_many(items) == [True] * 5
    assert filter.exists_many(items) == [True] * 5


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


def test_the_answers_of_a_batch_that_did_not_fit(client: redis.Redis) -> None:
    filter = Filter(client, "small")
    filter.reserve(1e-9, 3, nonscaling=True)
    with pytest.raises(FilterFull) as failed:
        filter.add_many(["a", "b", "a", "c", "d", "e"])
    assert failed.value.answers == [True, True, False, True, None, None]
    with pytest.raises(FilterFull):
        filter.add("f")
    assert filter.exists_many(list("abcdef")) == [True] * 3 + [False] * 3
    assert filter.add("a") is False
    with pytest.raises(FilterFull) as failed:
        filter.add_many([*["a"] * 20_000, "x"])
    assert len(failed.value.answers) == 20_001 and failed.value.answers[-1] is None


def test_a_missing_filter(client: redis.Redis) -> None:
    filter = Filter(client, "missing", create=False)
    with pytest.raises(FilterMissing):
        filter.add("a")
    with pytest.raises(FilterMissing):
        filter.add_many(["a"])
    for method in (filter.info, filter.stats, filter.clear, filter.debug):
        with pytest.raises(FilterMissing):
            method()
    assert filter.exists("a") is False and filter.card() == 0
    assert filter.drop() is False
    assert Filter(client, "missing").add("a") is True, "the server's configuration makes one"
    client.delete("missing")
    client.config_set("bf.auto-create", "no")
    with pytest.raises(FilterMissing):
        Filter(client, "missing").add("a")


def test_a_key_of_another_type(client: redis.Redis) -> None:
    client.set("string", "x")
    filter = Filter(client, "string")
    for method in (lambda: filter.add("a"), lambda: "a" in filter, lambda: filter.reserve(0.01, 10, exist_ok=True)):
        with pytest.raises(redis.ResponseError):
            method()


def test_reserving(client: redis.Redis) -> None:
    filter = Filter(client, "new")
    assert filter.reserve(0.01, 1000) is True
    with pytest.raises(FilterExists):
        filter.reserve(0.01, 1000)
    assert filter.reserve(0.5, 7, exist_ok=True) is False
    assert filter.info().capacity == 1000
    with pytest.raises(TypeError, match="colour"):
        filter.reserve(0.01, 1000, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        filter.reserve(0.01, 1000, nonscaling=1)  # type: ignore[typeddict-item]
    with pytest.raises(TypeError):
        filter.reserve(0.01, 1000, window=True)
    with pytest.raises(redis.ResponseError, match="COUNTING and WINDOW"):
        Filter(client, "other").reserve(0.01, 1000, counting=True, window=60)


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
        ("counting", {"counting": True, "px": 1_000_000}),
    ],
)
def test_every_kind(client: redis.Redis, kind: str, words: Any) -> None:
    filter = Filter(client, "kind")
    filter.reserve(0.01, 1000, **words)
    assert filter.add_many(["a", "b"]) == [True, True]
    stats = filter.stats()
    assert (stats.kind, stats.items, stats.error_rate) == (kind, 2, 0.01)
    assert stats.layout == words.get("layout", "native")
    assert stats.hash == words.get("hash", "murmur3") or stats.layout == "redisbloom"
    assert stats.window_s == words.get("window") and stats.sliding == words.get("sliding", False)
    assert stats.layers[0].size_bytes > 0 and stats.layers[0].fill is not None
    assert bool(stats.buckets) == (kind in ("window", "rolling"))
    assert 0 <= stats.error_rate_now < 0.01
    info = filter.info()
    assert (info.items, info.layers, info.size_bytes) == (2, 1, stats.size_bytes)
    assert (client.pttl("kind") > 0) == ("px" in words)
    plan = bloomgate.plan(client, 0.01, 1000, items=2, **{name: words[name] for name in words if name not in ("px",)})
    assert plan.kind == kind and plan.bits_per_item > 8
    if kind not in ("window", "rolling"):
        assert plan.size_bytes == info.size_bytes
    if kind == "scaling":
        assert info.expansion == words.get("expansion", 2)
    if kind == "nonscaling":
        assert info.expansion is None
    filter.clear()
    assert filter.card() == 0


def test_deletes(client: redis.Redis) -> None:
    filter = Filter(client, "rows")
    filter.reserve(0.01, 1000, hash="siphash")
    filter.add_many(range(10))
    assert filter.delete(3) is True and filter.delete("never") is False
    assert filter.delete_many([4, 5, 4]) == [True, True, False]
    assert filter.exists_many(range(3, 7)) == [False, False, False, True]
    assert filter.stats().items_deleted == 3
    with pytest.raises(redis.ResponseError, match="cannot delete"):
        Filter(client, "other").insert([1])
        Filter(client, "other").delete(1)


def test_counters(client: redis.Redis) -> None:
    filter = Filter(client, "online")
    filter.reserve(0.01, 100, counting=True)
    assert filter.add_many(["ann", "bob", "ann"]) == [True, True, False]
    assert filter.count("ann") == 2 and filter.count("eve") == 0
    assert filter.delete("ann") and filter.count("ann") == 1


def test_rotating(client: redis.Redis) -> None:
    filter = Filter(client, "week")
    filter.reserve(0.01, 1000, window=604800, buckets=3)
    filter.add_many(["a", "b"])
    assert [filter.rotate() for _ in range(3)] == [0, 0, 2]
    assert filter.card() == 0


def test_merging(client: redis.Redis) -> None:
    for name, items in [("monday", "abc"), ("tuesday", "cd")]:
        filter = Filter(client, name)
        filter.reserve(0.01, 1000, seed=700)
        filter.add_many(list(items))
    week = Filter(client, "week")
    week.merge("monday", "tuesday")
    assert week.exists_many(list("abcdx")) == [True, True, True, True, False]
    with pytest.raises(FilterMissing):
        week.merge("missing")
    with pytest.raises(ValueError, match="source"):
        week.merge()


def test_inserting(client: redis.Redis) -> None:
    filter = Filter(client, "inserted")
    with pytest.raises(FilterMissing):
        filter.insert(["a"], nocreate=True)
    assert filter.insert(["a", "a"], capacity=5000, rate=0.001, sync=True, hash="siphash") == [True, False]
    assert filter.info().capacity == 5000
    assert filter.insert(range(9000), nocreate=True).count(True) > 8900
    valkey = Filter(client, "valkey")
    assert valkey.insert(tightening=0.5, validate_scale_to=10_000, capacity=100, seed32=bytes(32)) == []
    assert client.type("valkey") in (b"bloomfltr", "bloomfltr")
    with pytest.raises(ValueError, match="32 bytes"):
        valkey.insert(seed32=b"short")


@pytest.mark.parametrize("items", [0, 10, 300_000])
def test_a_dump_in_a_file(filter: Filter, items: int) -> None:
    filter.add_many(range(items))
    file = io.BytesIO()
    assert 0 < filter.dump(file) < len(file.getvalue())
    copy = Filter(filter.client, b"copy\xff")
    file.seek(0)
    copy.load(file)
    assert copy.info() == filter.info()
    assert all(copy.exists_many(range(items)))
    file.seek(0)
    with pytest.raises(FilterExists):
        copy.load(file)
    file.seek(0)
    copy.load(file, replace=True)
    assert copy.card() == filter.card()


def test_a_dump_that_is_damaged_leaves_nothing(filter: Filter) -> None:
    filter.add_many(range(20_000))
    whole = io.BytesIO()
    filter.dump(whole)
    data = whole.getvalue()
    copy = Filter(filter.client, "copy")
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for broken in (b"", b"no dump at all", data[:8], data[:-1], data[: len(data) // 2], bytes(flipped), data[:8] + bytes(20)):
        with pytest.raises(BadDump):
            copy.load(io.BytesIO(broken))
        assert not filter.client.exists("copy")


def test_a_filter_that_is_still_being_loaded(filter: Filter, client: redis.Redis) -> None:
    filter.add_many(range(20_000))
    iterator, data = client.execute_command("BF.SCANDUMP", "seen", 0, NEVER_DECODE=True)
    client.execute_command("BF.LOADCHUNK", "half", iterator, data)
    half = Filter(client, "half")
    for method in (lambda: half.exists("a"), lambda: half.add_many(["a"]), half.info):
        with pytest.raises(FilterLoading):
            method()


def test_a_client_that_decodes_and_one_with_the_methods_of_redis_py(port: int, protocol: int) -> None:
    with redis.Redis(port=port, protocol=protocol, decode_responses=True) as client:
        client.bf().create("seen", 0.01, 1000)  # sets callbacks of redis-py's for BF.*
        filter = Filter(client, "seen")
        assert filter.add_many([b"\xff", "a"]) == [True, True]
        assert (filter.info().items, filter.info().capacity, filter.stats().kind) == (2, 1000, "scaling")
        file = io.BytesIO()
        filter.dump(file)
        file.seek(0)
        Filter(client, "copy").load(file)
        assert b"\xff" in Filter(client, "copy")
        assert filter.debug()[0] == "size:2"


def test_a_foreign_client_is_refused() -> None:
    with pytest.raises(TypeError, match="redis-py"):
        Filter(object(), "k")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key"):
        Filter(redis.Redis(), 17)  # type: ignore[arg-type]
