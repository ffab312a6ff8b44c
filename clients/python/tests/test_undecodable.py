"""Cached values that the codec cannot decode, as after a deployment that changes it: one caller replaces each, under a lease,
while the others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from rows import blocked, lease
from server import PATIENCE, eventually

import bloomgate
from bloomgate import Filter, Guard

KEY = "{rows}:1"
OLD = b"v1:old"
NEW = b"v2:new"


class Versioned:
    """A codec that decodes only values of its own version."""

    def __init__(self, version: str) -> None:
        self.mark = version.encode() + b":"

    def encode(self, value: str, /) -> bytes:
        return self.mark + value.encode()

    def decode(self, data: bytes, /) -> str:
        if not data.startswith(self.mark):
            raise ValueError("another version has written this")
        return data.removeprefix(self.mark).decode()


@pytest.fixture(params=["with-ttl", "without-ttl"])
def cached(client: redis.Redis, request: pytest.FixtureRequest) -> redis.Redis:
    """A server with a cached row that version 1 has encoded."""
    Filter(client, "rows").insert(range(1, 10), capacity=100)
    for id in range(1, 4):
        client.set(f"{{rows}}:{id}", OLD, ex=3600 if request.param == "with-ttl" else None)
    return client


def guards_of(client: redis.Redis, count: int, version: str = "v2", **options: Any) -> list[Guard[str]]:
    """Guards of several processes."""
    port = client.connection_pool.connection_kwargs["port"]
    clients = [redis.Redis(port=port, socket_timeout=PATIENCE) for _ in range(count)]
    options = {"wait": PATIENCE / 4, "lease": PATIENCE, "codec": Versioned(version), **options}
    return [Guard(one, "rows", **options) for one in clients]


def run_all(calls: list[Callable[[], Any]]) -> tuple[list[threading.Thread], list[Any]]:
    """Starts each call in a thread, and collects their results and exceptions."""
    found: list[Any] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    return threads, found


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_many_processes_load_it_once(cached: redis.Redis) -> None:
    guards = guards_of(cached, 4)
    loads: list[str] = []
    everybody_has_asked = threading.Event()

    def load(_: Any) -> str:
        loads.append("new")
        everybody_has_asked.wait(PATIENCE)
        return "new"

    threads, found = run_all([lambda guard=guard: guard.get(1, load) for guard in guards for _ in range(5)])
    eventually("everybody to see the old value", lambda: sum(guard.counts["hit"] for guard in guards) == len(threads))
    assert cached.get(KEY) == OLD, "processes of the old version can use it meanwhile"
    everybody_has_asked.set()
    join(threads)
    assert found == ["new"] * 20 and len(loads) == 1
    assert sum(guard.counts["unguarded"] for guard in guards) == 0


def test_many_rows_at_once(cached: redis.Redis) -> None:
    guards = guards_of(cached, 3)
    asked: list[int] = []
    lock = threading.Lock()

    def load_many(ids: list[int]) -> dict[int, str]:
        with lock:
            asked.extend(ids)
        return {id: f"row {id}" for id in ids if id != 3}

    threads, found = run_all([lambda guard=guard: guard.get_many([1, 2, 3, 4], load_many) for guard in guards])
    join(threads)
    assert found == [{1: "row 1", 2: "row 2", 3: None, 4: "row 4"}] * 3
    assert sorted(asked) == [1, 2, 3, 4] and sum(guard.counts["unguarded"] for guard in guards) == 0


def test_a_caller_that_waited_for_the_value(client: redis.Redis, port: int) -> None:
    """Another process fills a value that this process cannot decode. The caller that waited for it in the server replaces it,
    and only one other caller then waits in the server."""
    Filter(client, "rows").insert(range(1, 10), capacity=100)

    two = bloomgate.connect(f"redis://127.0.0.1:{port}", max_connections=2, socket_timeout=PATIENCE)
    guard: Guard[str] = Guard(two, "rows", codec=Versioned("v2"), wait=1 * PATIENCE // 2)
    tokens = {id: lease(client, id) for id in (1, 2, 3)}
    threads, found = run_all([lambda: guard.get(1, lambda _: "new")])
    eventually("the first to wait", lambda: blocked(client) == 1)
    client.execute_command("BF.FILL", "rows", 1, KEY, tokens[1], "VALUE", OLD, "EX", 60)
    join(threads)
    assert found == ["new"] and client.get(KEY) == NEW
    others, found = run_all([lambda id=id: guard.get(id, lambda _: "not asked") for id in (2, 3)])
    before = guard.counts["wait"]
    eventually("the others to ask again", lambda: guard.counts["wait"] > before + 4)
    assert blocked(client) == 1
    for id in (2, 3):
        client.execute_command("BF.FILL", "rows", id, f"{{rows}}:{id}", tokens[id], "VALUE", b"v2:filled", "EX", 60)
    join(others)
    assert found == ["filled"] * 2 and guard.counts["unguarded"] == 0
    two.close()


def test_two_versions_at_once_load_one_at_a_time(cached: redis.Redis) -> None:
    """While processes of both versions run, each replaces the values of the other. Still, at most one query for the row runs
    at a time."""
    cached.set(KEY, b"v0:row", keepttl=True)
    guards = guards_of(cached, 2, "v1") + guards_of(cached, 2, "v2")
    lock = threading.Lock()
    loading = 0
    most = 0

    def load(_: Any) -> str:
        nonlocal loading, most
        with lock:
            loading += 1
            most = max(most, loading)
        time.sleep(0.02)  # the query
        with lock:
            loading -= 1
        return "row"

    threads, found = run_all([lambda guard=guard: [guard.get(1, load) for _ in range(10)] for guard in guards * 2])
    join(threads)
    assert found == [["row"] * 10] * 8 and most == 1
    assert sum(guard.counts["unguarded"] for guard in guards) == 0


def test_a_client_with_the_permissions_of_a_reader(client: redis.Redis, port: int) -> None:
    """Replacing a value needs only the guard's commands, even if the value never expires."""
    Filter(client, "rows").insert([1, 2], capacity=100)
    client.set(KEY, OLD)
    client.set("{rows}:2", OLD, ex=3600)
    client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+bf.fetch", "+bf.fill", "+@connection")
    limited = redis.Redis(port=port, username="reader", password="any", socket_timeout=PATIENCE)
    guard: Guard[str] = Guard(limited, "rows", codec=Versioned("v2"), wait=0.01)
    assert [guard.get(id, lambda _: "new") for id in (1, 2)] == ["new"] * 2 and guard.counts["unguarded"] == 0
    assert client.mget(KEY, "{rows}:2") == [NEW, NEW]
    client.execute_command("ACL", "DELUSER", "reader")
