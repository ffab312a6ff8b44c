"""The guard during failovers: a refill and writers that lose nothing, and a replaced primary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from cluster import Start, cluster_of_three
from link import Link
from rows import Rows
from server import PATIENCE, Server, eventually, version

import bloomgate
import bloomgate.asyncio
from bloomgate import Filter, Guard, fill_filter

WINDOW = 8000
"""Ids that are sent together."""

IDS = 3 * WINDOW


class Pair:
    """A primary and its replica. Clients reach the current primary under `url`."""

    def __init__(self, start: Start) -> None:
        self.primary, self.replica = start(), start()
        self.entrance = Link(self.primary.port)
        self.url = f"redis://127.0.0.1:{self.entrance.port}"
        self.link = Link(self.primary.port)
        self.replicate()

    def replicate(self) -> None:
        """Makes the other server a replica."""
        if self.replica.process.poll() is not None:
            self.replica.start()
        self.link.target = self.primary.port
        client = self.replica.client()
        client.execute_command("REPLICAOF", "127.0.0.1", self.link.port)
        eventually("the replica", lambda: client.info("replication")["master_link_status"] == "up")

    def fail_over(self) -> None:
        """Kills the primary, and promotes the replica with its current data."""
        self.primary.process.kill()
        self.primary.process.wait()
        self.link.cut()
        self.primary, self.replica = self.replica, self.primary
        self.primary.client().execute_command("REPLICAOF", "NO", "ONE")
        self.entrance.target = self.primary.port
        self.entrance.cut()

    def close(self) -> None:
        self.entrance.close()
        self.link.close()
        if self.replica.process.poll() is not None:
            self.replica.start()


@pytest.fixture
def pair(start: Start) -> Iterator[Pair]:
    pair = Pair(start)
    yield pair
    pair.close()


def fill(pair: Pair, kind: str, ids: Iterator[int], **options: Any) -> int:
    """Fills the filter from this thread or under asyncio."""
    if kind == "threads":
        with bloomgate.connect(pair.url, timeout=10) as client:
            return fill_filter(client, "rows", ids, 1e-6, 2 * IDS, hash="siphash", **options)

    async def main() -> int:
        async with bloomgate.asyncio.connect(pair.url, timeout=10) as client:
            return await bloomgate.asyncio.fill_filter(client, "rows", ids, 1e-6, 2 * IDS, hash="siphash", **options)

    return asyncio.run(main())


def denied(server: Server, ids: list[int]) -> int:
    """Returns how many of the rows the server reports absent."""
    count = 0
    for start in range(0, len(ids), 1000):
        pipe = server.client().pipeline(transaction=False)
        for id in ids[start : start + 1000]:
            pipe.execute_command("BF.FETCH", "rows", id, f"{{rows}}:{id}", "LEASE", 1)
        count += sum(reply[0] == b"absent" for reply in pipe.execute())
    return count


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
@pytest.mark.parametrize("stalls", [True, False], ids=["stalls", "killed-at-once"])
@pytest.mark.parametrize("at", [0, WINDOW, 2 * WINDOW, IDS])
def test_a_refill_loses_no_row(pair: Pair, kind: str, stalls: bool, at: int) -> None:
    """Before a batch or before the rename, the primary is killed, or the link to the replica stalls: in this case the primary
    continues to answer, and is killed later. Announced rows and rows of the table are never reported absent."""
    rows, old = Rows(), pair.primary
    with bloomgate.connect(pair.url, timeout=10) as client:
        guard = Guard(client, "rows", announce_to=["{rows}~filling"], replicas=1, replicas_timeout=0.2, patience=0, wait=0.1)

        def insert(id: int) -> None:
            guard.announce(id)
            rows.save(id, b"new")

        def ids() -> Iterator[int]:
            for id in range(IDS + 1):
                if id == at:
                    insert(IDS + 1)
                    if stalls:
                        pair.link.hold()
                    else:
                        pair.fail_over()
                if id < IDS:
                    yield id

        with pytest.raises((TimeoutError, redis.ConnectionError)):
            fill(pair, kind, ids(), replicas=1, replicas_timeout=0.2)
        with pytest.raises((TimeoutError, redis.ConnectionError)):
            insert(IDS + 2)
        if pair.primary is old:
            pair.fail_over()
        existing = [*range(IDS), *rows.ids()]
        assert denied(pair.primary, existing) == 0
        pair.replicate()
        client.delete("{rows}~filling")
        assert fill(pair, kind, iter(existing), replicas=1, replicas_timeout=9) == len(existing)
    pair.fail_over()
    assert denied(pair.primary, existing) == 0, "the new name had arrived"
    assert denied(pair.primary, [IDS + 3]) == 1


def test_a_refill_that_does_not_wait_loses_rows(pair: Pair) -> None:
    """The reason for the option to wait: a batch in transit to the replica is missing from the new filter."""

    def ids() -> Iterator[int]:
        for id in range(IDS):
            if id == WINDOW:
                eventually("the first batch", lambda: Filter(replica, "{rows}~filling").card() == WINDOW)
                pair.link.hold()
            elif id == 2 * WINDOW:
                pair.fail_over()
            yield id

    replica = pair.replica.client()
    fill(pair, "threads", ids())
    assert denied(pair.primary, list(range(IDS))) == WINDOW


def test_items_of_other_clients_must_be_replicated_too(pair: Pair) -> None:
    """A batch that adds nothing new is confirmed only when the replica has another client's adds."""
    with bloomgate.connect(pair.url, timeout=10) as client:

        def ids() -> Iterator[int]:
            pair.link.hold()
            Filter(pair.primary.client(), "{rows}~filling").add(1)
            yield 1

        with pytest.raises(TimeoutError, match="0 of 1 replica"):
            fill_filter(client, "rows", ids(), 0.01, 100, replicas=1, replicas_timeout=0.2)


def test_an_announcement_that_does_not_arrive_is_an_error(pair: Pair) -> None:
    with bloomgate.connect(pair.url, timeout=10) as client:
        Filter(client, "rows").reserve(0.01, 1000)
        with Guard(client, "rows", replicas=1, replicas_timeout=9).changed(0):
            pass
        pair.link.hold()
        guard = Guard(client, "rows", replicas=1, replicas_timeout=0.05, patience=0)
        with pytest.raises(TimeoutError, match="0 of 1 replica"):
            guard.announce(1, 2)
        with pytest.raises(bloomgate.Unconfirmed) as failed:
            guard.confirm(1, 2)
        assert failed.value.ids == (b"1", b"2")
        assert guard.get(3, Rows().load) is None and guard.counts["absent"] == 1, "late replicas begin no pause"


def test_a_restart_that_loses_nothing(start: Start) -> None:
    server = start("appendonly yes", "appendfsync everysec")
    client = server.client()
    number, is_valkey = version(client)
    if number < (7, 2) and not is_valkey:
        with pytest.raises(redis.ResponseError, match="unknown command 'WAITAOF'"):
            fill_filter(client, "rows", range(10), 0.01, 100, aof=True)
        return
    assert fill_filter(client, "rows", range(IDS), 1e-6, 2 * IDS, aof=True) == IDS
    guard, rows = Guard(client, "rows", aof=True, replicas_timeout=5), Rows()
    with guard.changed(IDS + 1):
        rows.save(IDS + 1, b"new")
    server.restart()
    assert denied(server, [*range(IDS), IDS + 1]) == 0


def test_an_old_primary_stops_answering(start: Start) -> None:
    """With min-replicas-to-write, a primary without a replica refuses BF.FETCH, and rows are read from the database."""
    pair = Pair(start)
    old = pair.primary.client()
    rows, guard = Rows(), Guard(old, "rows", wait=0)
    Filter(old, "rows").reserve(0.01, 1000)
    with guard.changed(1):
        rows.save(1, b"one")
    assert [guard.get(1, rows.load) for _ in range(2)] == [b"one"] * 2 and rows.queries == 1
    # Set only now, because on a busy machine the replica's reports may be late by a second.
    old.config_set("min-replicas-max-lag", 1)
    old.config_set("min-replicas-to-write", 1)
    pair.link.hold()
    rows.save(1, b"written at the new primary")

    def is_refused() -> bool:
        before = guard.counts["errors"]
        found = guard.get(1, rows.load)
        return guard.counts["errors"] > before and found == b"written at the new primary"

    eventually("the old primary to refuse", is_refused)
    assert guard.get(2, rows.load) is None and guard.counts["absent"] == 0
    pair.close()


def test_connections_to_a_demoted_primary_are_closed(pair: Pair, bloom: Any) -> None:
    """It stays reachable as a replica on the clients' open connections. The first refusal closes such a connection."""
    client = bloom.connect(pair.url, timeout=10)
    bloom.Filter(client, "rows").reserve(0.01, 1000)
    guard = bloom.Guard(client, "rows")
    guard.announce(1)
    old, new = pair.primary.client(), pair.replica.client()
    eventually("the filter", lambda: new.exists("rows"))
    new.execute_command("REPLICAOF", "NO", "ONE")
    pair.entrance.target = pair.replica.port
    old.execute_command("REPLICAOF", "127.0.0.1", pair.replica.port)
    with pytest.raises(redis.ReadOnlyError):
        guard.announce(2)
    guard.announce(2)
    assert Filter(new, "rows").exists(2)
    pair.primary, pair.replica = pair.replica, pair.primary


async def test_a_cluster_loses_its_nodes(start: Start, rows: Rows) -> None:
    """The node that has the rows answers without the others. Once it has also failed, rows are read from the table."""
    servers: dict[int, Server] = {}

    def start_node(*lines: str) -> Server:
        server = start(*lines)
        return servers.setdefault(server.port, server)

    def kill(server: Server) -> None:
        server.process.kill()
        server.process.wait()

    port = cluster_of_three(start_node)[0]
    rows.save(1, b"one")
    rows.save(2, b"two")
    options: Any = {"host": "127.0.0.1", "port": port, "socket_timeout": PATIENCE}
    with redis.RedisCluster(**options) as client:
        Filter(client, "users").insert(range(10), capacity=10)
        home = servers.pop(client.get_node_from_key("users").port)
        assert client.get_default_node().port in servers
    loaders: Any = {"load": rows.load, "load_many": rows.load_many}
    guards = [Guard(kind(**options), "users", **loaders) for kind in (redis.RedisCluster, valkey.ValkeyCluster)]
    aclients = [kind(**options) for kind in (redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster)]
    loaders = {"load": rows.aload, "load_many": rows.aload_many}
    aguards = [bloomgate.asyncio.Guard(client, "users", **loaders) for client in aclients]

    async def read_all() -> None:
        both = {1: b"one", 2: b"two"}
        for guard in guards:
            assert guard.get(1) == b"one" and guard.get_many([1, 2]) == both
        for aguard in aguards:
            assert await aguard.get(1) == b"one" and await aguard.get_many([1, 2]) == both

    try:
        await read_all()
        queries = rows.queries
        for server in servers.values():
            kill(server)
        await read_all()
        assert rows.queries == queries
        kill(home)
        for _ in range(2):
            await read_all()
        assert rows.queries == queries + 2 * 3 * 4
        assert all(guard._steps.is_unresponsive for guard in guards), "no caller asks one node after the other for a while"
    finally:
        for aclient in aclients:
            await aclient.aclose()
        for server in [home, *servers.values()]:
            if server.process.poll() is not None:
                server.start()
