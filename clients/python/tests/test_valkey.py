"""Clients of valkey-py behave like the clients of redis-py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import valkey
import valkey.asyncio
from rows import Rows
from server import PATIENCE, free_port
from valkey.backoff import NoBackoff
from valkey.retry import Retry

import bloomgate.asyncio
from bloomgate import Filter, FilterMissing, Guard, ShardedFilter


@pytest.fixture
def vclient(port: int, protocol: int) -> Iterator[valkey.Valkey]:
    client = valkey.Valkey(port=port, protocol=protocol, socket_timeout=PATIENCE)
    yield client
    client.close()


def test_a_filter(vclient: valkey.Valkey) -> None:
    filter = Filter(vclient, "seen")
    with pytest.raises(FilterMissing):
        filter.info()
    filter.reserve(0.001, 20_000)
    assert sum(filter.add_many(range(10_000))) > 9_900
    assert (filter.info().items, filter.stats().kind) == (filter.card(), "scaling")
    assert all(filter.exists_many(range(10_000)))
    assert bloomgate.plan(vclient, 0.01, 1000).capacity == 1000


def test_a_sharded_filter_and_the_guard(vclient: valkey.Valkey) -> None:
    sharded = ShardedFilter.create(vclient, "many", 0.001, 10_000, 4)
    assert sharded.add_many(["a", "b", "a"]) == [True, True, False]
    rows = Rows()
    Filter(vclient, "rows").reserve(0.01, 100)
    guard = Guard(vclient, "rows")
    with guard.changed(1):
        rows.save(1, b"one")
    assert [guard.get(1, rows.load) for _ in range(2)] == [b"one"] * 2
    gone = Guard(valkey.Valkey(port=free_port(), retry=Retry(NoBackoff(), 0)), "rows")
    assert gone.get(1, rows.load) == b"one"


def test_a_cluster(cluster_ports: list[int], cluster: object) -> None:
    client = valkey.ValkeyCluster(host="127.0.0.1", port=cluster_ports[0], socket_timeout=PATIENCE)
    sharded = ShardedFilter.create(client, "many", 0.001, 10_000, 7)
    assert sum(sharded.add_many(range(5000))) > 4950 and all(sharded.exists_many(range(5000)))
    assert bloomgate.plan(client, 0.01, 1000).capacity == 1000
    client.close()


async def test_asyncio(port: int) -> None:
    client = valkey.asyncio.Valkey(port=port, socket_timeout=PATIENCE)
    filter = bloomgate.asyncio.Filter(client, "seen")
    await filter.reserve(0.01, 1000)
    assert await filter.add_many(["a", "a"]) == [True, False]
    sharded = await bloomgate.asyncio.ShardedFilter.create(client, "many", 0.001, 10_000, 4)
    assert await sharded.add_many(["a", "b", "a"]) == [True, True, False]
    await client.aclose()
