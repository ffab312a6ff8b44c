"""Servers and clients for the tests. `scripts/test --only python` selects the servers, and `server.py` starts them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

ROOT = Path(__file__).parents[3]
# server.py of the clients' tests starts the servers.
sys.path += [str(ROOT / "tests" / "clients" / "python"), str(ROOT / "clients" / "python" / "examples")]

from cluster import Start, cluster_of_three  # noqa: E402
from kinds import kind  # noqa: E402
from rows import Rows  # noqa: E402
from server import PATIENCE, Server  # noqa: E402

from bloomgate import Filter  # noqa: E402


@contextmanager
def servers_of_a_test() -> Iterator[Start]:
    """Starts servers, with lines of configuration, and ends them all at the end."""
    servers: list[Server] = []

    def start(*lines: str) -> Server:
        server = Server(*lines)
        servers.append(server)
        return server.start()

    try:
        yield start
    finally:
        for server in servers:
            server.end()


@pytest.fixture
def start() -> Iterator[Start]:
    """Servers that only this test uses, and may stop and kill."""
    with servers_of_a_test() as start:
        yield start


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """One server for all tests that do not stop or reconfigure it."""
    with servers_of_a_test() as start:
        yield start()


@pytest.fixture
def port(shared_server: Server) -> int:
    """The port of an empty server with its default configuration."""
    client = redis.Redis(port=shared_server.port)
    client.flushall()
    client.config_set("maxmemory", 0)
    client.config_set("bf.auto-create", "yes")
    client.close()
    return shared_server.port


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request: pytest.FixtureRequest) -> int:
    """Each protocol in turn."""
    return int(request.param)


@pytest.fixture
def client(port: int, protocol: int) -> Iterator[redis.Redis]:
    """A client in each protocol."""
    with redis.Redis(port=port, protocol=protocol, socket_timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def probe(port: int) -> redis.Redis:
    """A client of another process, and a filter of 1000 ids."""
    client = redis.Redis(port=port, socket_timeout=PATIENCE)
    Filter(client, "rows").insert(range(1000), capacity=1000, rate=1e-9)
    return client


@pytest.fixture(params=["threads", "tasks"])
def bloom(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The package for threads, and the package for asyncio behind the same calls."""
    with kind(request.param) as bloom:
        yield bloom


@pytest.fixture
async def aclient(port: int) -> AsyncIterator[redis.asyncio.Redis]:
    """A client of redis.asyncio."""
    async with redis.asyncio.Redis(port=port, socket_timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def rows() -> Rows:
    """An empty table."""
    return Rows()


@pytest.fixture(scope="session")
def cluster_ports() -> Iterator[list[int]]:
    """A cluster of three nodes with a third of the slots each."""
    with servers_of_a_test() as start:
        yield cluster_of_three(start)


@pytest.fixture
def cluster(cluster_ports: list[int]) -> Iterator[redis.RedisCluster]:
    """The cluster's client, the cluster empty."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster_ports[0], socket_timeout=PATIENCE) as client:
        client.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
        yield client
