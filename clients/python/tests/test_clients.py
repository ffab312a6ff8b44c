"""The clients that the classes accept: clients for threads and for asyncio are not confused. Type checkers check this, and the
types of methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mypy.api
import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomgate
import bloomgate.asyncio

ADDRESS: Any = {"port": 1, "retry": Retry(NoBackoff(), 0)}
"""No server listens here, so a class that accepts the wrong client fails at once."""

THREADS: list[Any] = [redis.Redis(**ADDRESS), valkey.Valkey(port=1), bloomgate.connect("redis://localhost:1")]
TASKS: list[Any] = [
    redis.asyncio.Redis(port=1),
    valkey.asyncio.Valkey(port=1),
    bloomgate.asyncio.connect("redis://localhost:1"),
]

FOR_THREADS: list[Callable[[Any], Any]] = [
    lambda client: bloomgate.Filter(client, "seen"),
    lambda client: bloomgate.Guard(client, "users"),
    lambda client: bloomgate.ShardedFilter(client, "links"),
    lambda client: bloomgate.ShardedFilter.create(client, "links", 0.01, 100, 4),
    lambda client: bloomgate.fill_filter(client, "users", [1], 0.01, 100),
    lambda client: bloomgate.plan(client, 0.01, 100),
]

FOR_TASKS: list[Callable[[Any], Any]] = [
    lambda client: bloomgate.asyncio.Filter(client, "seen"),
    lambda client: bloomgate.asyncio.Guard(client, "users"),
    lambda client: bloomgate.asyncio.ShardedFilter.open(client, "links"),
    lambda client: bloomgate.asyncio.ShardedFilter.create(client, "links", 0.01, 100, 4),
    lambda client: bloomgate.asyncio.fill_filter(client, "users", [1], 0.01, 100),
    lambda client: bloomgate.asyncio.plan(client, 0.01, 100),
]


@pytest.mark.parametrize("make", FOR_THREADS)
@pytest.mark.parametrize("client", [*TASKS, redis.Redis().pipeline()], ids=repr)
def test_threads_refuse_clients_of_asyncio(client: Any, make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="for threads"):
        make(client)


@pytest.mark.parametrize("make", FOR_TASKS)
@pytest.mark.parametrize("client", [*THREADS, redis.asyncio.Redis().pipeline()], ids=repr)
async def test_tasks_refuse_clients_for_threads(client: Any, make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="needs a client of redis.asyncio"):
        await make(client)


LINES = """
import redis, redis.asyncio
import bloomgate, bloomgate.asyncio
threads, tasks = redis.Redis(), redis.asyncio.Redis()
cluster, tasks_cluster = redis.RedisCluster(), redis.asyncio.RedisCluster()
bloomgate.Guard(threads, "users"); bloomgate.Guard(cluster, "users")
bloomgate.asyncio.Guard(tasks, "users"); bloomgate.asyncio.Guard(tasks_cluster, "users")
bloomgate.Filter(bloomgate.connect(""), "seen"); bloomgate.asyncio.Filter(bloomgate.asyncio.connect(""), "seen")
bloomgate.Guard(tasks, "users")  # refused
bloomgate.Guard(tasks_cluster, "users")  # refused
bloomgate.Filter(tasks, "seen")  # refused
bloomgate.ShardedFilter(tasks, "links")  # refused
bloomgate.asyncio.Guard(threads, "users")  # refused
bloomgate.asyncio.Guard(cluster, "users")  # refused
bloomgate.asyncio.Filter(threads, "seen")  # refused
found: bool = bloomgate.Filter(threads, "seen").add("a")
found = bloomgate.Filter(threads, "seen").add(1.5)  # refused
found = bloomgate.Filter(threads, "seen").reserve(0.01, 100, colour="red")  # refused
items: str = bloomgate.Filter(threads, "seen").card()  # refused
async def main() -> None:
    found: bool = await bloomgate.asyncio.Filter(tasks, "seen").add("a")
    items: str = await bloomgate.asyncio.ShardedFilter(tasks, "links").card()  # refused
    found = bloomgate.asyncio.Filter(tasks, "seen").add("a")  # refused
"""


def test_type_checkers_refuse_the_other_kind(tmp_path: Path) -> None:
    file = tmp_path / "service.py"
    file.write_text(LINES)
    report, errors, _ = mypy.api.run(["--cache-dir", str(tmp_path), "--hide-error-context", str(file)])
    found = {int(line.split(":")[1]) for line in report.splitlines() if ": error:" in line}
    assert found == {n for n, line in enumerate(LINES.splitlines(), 1) if "refused" in line}, report + errors
