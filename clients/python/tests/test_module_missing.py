"""A server that has not loaded the module: every call reports it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rows import Rows
from server import PATIENCE, eventually, free_port
from site_of_tests import Site
from test_scrapy import ADDON, run

from bloomgate import Guard, ModuleMissing

SAID = "it has not loaded the module bloomgate"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[redis.Redis]:
    port = free_port()
    command = [os.environ["BLOOMGATE_SERVER"], "--port", str(port), "--dir", str(tmp_path), "--save", "", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 0))

    def answers() -> bool:
        try:
            return int(client.info("server")["process_id"]) == process.pid
        except redis.RedisError:
            return False

    try:
        eventually("the server", answers)
        yield client
    finally:
        client.close()
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "call",
    [
        lambda bloom, client: bloom.Filter(client, "f").exists(1),
        lambda bloom, client: bloom.Filter(client, "f").exists_many(range(2000)),
        lambda bloom, client: bloom.plan(client, 0.01, 100),
        lambda bloom, client: bloom.fill_filter(client, "f", [1], 0.01, 100),
        lambda bloom, client: bloom.Guard(client, "f").announce(1),
        lambda bloom, client: bloom.Guard(client, "f").forget(1),
    ],
)
def test_operations(bloom: Any, bare: redis.Redis, call: Callable[[Any, Any], Any]) -> None:
    url = f"redis://127.0.0.1:{bare.connection_pool.connection_kwargs['port']}"
    refused = pytest.raises(ModuleMissing, match=r"the server does not know BF\.\w+: " + SAID)
    with bloom.connect(url, timeout=PATIENCE) as client, refused as failed:
        call(bloom, client)
    assert "unknown command" in str(failed.value.__cause__)


def test_the_guard_queries_the_database(bare: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows()
    rows.save(1, b"one")
    guard = Guard(bare, "rows")
    assert guard.get(1, rows.load) == b"one" and guard.get_many([1, 2], rows.load_many) == {1: b"one", 2: None}
    [line] = [record.getMessage() for record in caplog.records if record.name == "bloomgate"]
    assert SAID in line


def test_a_crawl_does_not_begin(bare: redis.Redis) -> None:
    site = Site()
    url = f"redis://127.0.0.1:{bare.connection_pool.connection_kwargs['port']}"
    _, log = run([site.url + "/"], BLOOMGATE_URL=url, **ADDON)
    site.close()
    assert SAID in log and site.fetched.total() == 0
