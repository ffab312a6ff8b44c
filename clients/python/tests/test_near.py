"""The near cache: the values that it keeps, and every way in which a value is dropped."""

from __future__ import annotations

import asyncio
import collections
import gc
import os
import random
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from cluster import Start
from kinds import until
from rows import Rows
from server import PATIENCE, eventually

import bloomgate.asyncio
from bloomgate import Filter, Guard, Json, NearCache
from bloomgate.near import Tracking

KEY = "{rows}:1"
HOUR = 3600.0


@pytest.fixture
def filled(client: redis.Redis) -> redis.Redis:
    """A server with ten rows in its filter and in its cache."""
    Filter(client, "rows").insert(range(10), capacity=100)
    fill(client, b"one")
    return client


def fill(client: redis.Redis, value: bytes) -> None:
    client.mset({f"{{rows}}:{id}": value for id in range(10)})


def fails(*_: Any) -> Any:
    raise AssertionError("the database is not asked")


def untracked(client: redis.Redis, near: NearCache, **options: Any) -> Guard[Any]:
    """A guard whose near cache assumes that changes are reported, although they are not."""
    guard: Guard[Any] = Guard(client, "rows", near=near, **options)
    guard._tracking = None
    guard._steps.has_reports = lambda: True
    return guard


def test_values_are_served_from_memory(filled: redis.Redis) -> None:
    guard = untracked(filled, NearCache(100, HOUR))
    for _ in range(3):
        assert guard.get(1, fails) == b"one" and guard.get(100, fails) is None
        assert guard.get_many([1, 2, 3], fails) == {1: b"one", 2: b"one", 3: b"one"}
    assert guard.counts == {"hit": 3, "absent": 3, "near_hit": 9}
    filled.set(KEY, b"two")
    assert guard.get(1, fails) == b"one", "it is as old as that"


def test_absences_and_loads_are_not_kept(filled: redis.Redis) -> None:
    """A cached absence would not be dropped when the row is inserted, and the server reports each load as a change."""
    near = NearCache(100, HOUR)
    guard, rows = untracked(filled, near), Rows()
    filled.delete(KEY)
    assert guard.get(1, rows.load) is None and guard.get(100, fails) is None and len(near) == 0
    filled.delete("{rows}:2")
    rows.save(2, b"two")
    assert guard.get(2, rows.load) == b"two" and len(near) == 0
    assert guard.get(2, fails) == b"two" and len(near) == 1


def test_it_is_bounded(filled: redis.Redis) -> None:
    near = NearCache(3, HOUR)
    guard = untracked(filled, near)
    guard.get_many(range(10), fails)
    assert len(near) == 3
    near = NearCache(100, 0.001)
    guard = untracked(filled, near)
    guard.get(1, fails)
    eventually("the value to be too old", lambda: not len(near))
    filled.set(KEY, b"two")
    assert guard.get(1, fails) == b"two"
    for items, seconds in [(0, 1), (1, 0), (1, float("inf")), (1, float("nan"))]:
        with pytest.raises(ValueError, match="a near cache has"):
            NearCache(items, seconds)


def test_values_are_not_shared(filled: redis.Redis) -> None:
    """A caller's change of a value does not affect the next caller."""
    fill(filled, b"[1]")
    guard = untracked(filled, NearCache(100, HOUR), codec=Json())
    guard.get(1, fails).append(2)
    guard.get(1, fails).append(3)
    assert guard.get(1, fails) == [1] and guard.counts["near_hit"] == 2


def test_own_changes_are_dropped_at_once(filled: redis.Redis) -> None:
    guard = untracked(filled, NearCache(100, HOUR))
    assert guard.get(1, fails) == b"one" and guard.get(2, fails) == b"one"
    with guard.changed(1):
        assert guard.get(1, lambda _: b"read before the commit") == b"read before the commit"
        assert guard.get(1, fails) == b"read before the commit"
    assert guard.get(1, lambda _: b"new") == b"new" and guard.get(2, fails) == b"one"
    filled.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(redis.ResponseError, match="replicas"):
            guard.announce(2)
    finally:
        filled.config_set("min-replicas-to-write", 0)
    filled.set("{rows}:2", b"two")
    assert guard.get(2, fails) == b"two", "it was dropped, though the server refused the announcement"


def test_a_fetch_in_flight_is_not_kept(filled: redis.Redis) -> None:
    near = NearCache(100, HOUR)
    marks = near.begin([b"a", b"b"])
    later = near.begin([b"a"])
    near.drop([b"a"])
    newest = near.begin([b"a"])
    near.end(marks, {b"a": b"old", b"b": b"value"})
    near.end(later, {b"a": b"old"})
    assert near.get(b"a") is None and near.get(b"b") == b"value"
    near.end(newest, {b"a": b"new"})
    assert near.get(b"a") == b"new" and not near._marks
    marks = near.begin([b"a"])
    near.clear()
    near.end(marks, {b"a": b"old"})
    assert len(near) == 0


def tracked(client: Any) -> Guard[bytes]:
    guard: Guard[bytes] = Guard(client, "rows", near=NearCache(100, HOUR))
    guard.get(100, fails)
    eventually("the tracking", guard._steps.has_reports)
    return guard


async def atracked(client: Any) -> bloomgate.asyncio.Guard[bytes]:
    guard: bloomgate.asyncio.Guard[bytes] = bloomgate.asyncio.Guard(client, "rows", near=NearCache(100, HOUR))
    assert await guard.get(100, fails) is None
    await until(guard._steps.has_reports)
    return guard


CHANGES: list[Any] = [
    lambda client: Guard(client, "rows").announce(1),
    lambda client: client.delete(KEY),
    lambda client: client.set(KEY, b"two"),
    lambda client: client.pexpire(KEY, 1),
    lambda client: client.flushall(),
]


@pytest.mark.parametrize("change", CHANGES, ids=["changed", "del", "set", "expired", "flushall"])
def test_changes_of_others_are_dropped(filled: redis.Redis, port: int, change: Any) -> None:
    guard = tracked(filled)
    assert guard.get(1, fails) == b"one" and guard.get(1, fails) == b"one" and guard.counts["near_hit"] == 1
    change(redis.Redis(port=port))
    near = guard._steps.near
    assert near is not None
    # An expired key is reported when the server notices it.
    eventually("the change", lambda: near.get(KEY.encode()) is None)


def test_a_change_that_wins(filled: redis.Redis, port: int) -> None:
    """Readers, and a writer in another process: once the last change has arrived, readers get the last value."""
    guard = tracked(filled)
    stops = threading.Event()

    def read() -> None:
        chance = random.Random(7)
        while not stops.is_set():
            guard.get(chance.randrange(10), fails)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    with redis.Redis(port=port) as other:
        for number in range(300):
            fill(other, b"%d" % number)
    eventually("the last change", lambda: set(guard.get_many(range(10), fails).values()) == {b"299"})
    stops.set()
    for reader in readers:
        reader.join(PATIENCE)


async def test_a_server_that_dies_drops_everything(start: Start) -> None:
    """Values stay dropped until the connection is restored, because changes are not reported meanwhile."""
    server = start()
    with redis.Redis(port=server.port, socket_timeout=PATIENCE) as client:
        Filter(client, "rows").insert(range(10), capacity=100)
        fill(client, b"one")
        threads = tracked(client)
        async with redis.asyncio.Redis(port=server.port, socket_timeout=PATIENCE) as aclient:
            tasks = await atracked(aclient)
            values = dict.fromkeys(range(10), b"one")
            assert threads.get_many(range(10), fails) == values == await tasks.get_many(range(10), fails)
            assert len(threads._steps.near) == len(tasks._steps.near) == 10
            server.process.kill()
            await until(lambda: not len(tasks._steps.near) and not len(threads._steps.near))
            server.start()


def test_values_from_before_the_tracking_are_dropped(filled: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    may_connect = threading.Event()
    connection = Tracking._connection

    def later(tracking: Tracking) -> Any:
        assert may_connect.wait(PATIENCE)
        return connection(tracking)

    monkeypatch.setattr(Tracking, "_connection", later)
    guard: Guard[bytes] = Guard(filled, "rows", near=NearCache(100, HOUR))
    near = guard._steps.near
    assert near is not None
    assert guard.get(1, fails) == b"one" and not len(near), "nothing is kept before changes are reported"
    filled.set(KEY, b"two")
    assert guard.get(1, fails) == b"two" and not guard.counts["near_hit"], "nothing is served before changes are reported"
    near.end(near.begin([KEY.encode()]), {KEY.encode(): b"one"})
    may_connect.set()
    eventually("the value of before to be dropped", lambda: guard._steps.has_reports() and not len(near))


@pytest.fixture
def retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bloomgate.near.RETRY_S", 0.01)
    monkeypatch.setattr("bloomgate.near.MOST_RETRY_S", 0.02)


@pytest.mark.usefixtures("retries")
def test_a_user_that_may_not_track(filled: redis.Redis, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is served from memory until the user may track changes."""
    filled.execute_command("ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-client|tracking")
    client = redis.Redis(port=port, username="limited", password="any")
    guard: Guard[bytes] = Guard(client, "rows", near=NearCache(100, HOUR))
    assert guard.get(1, fails) == b"one"
    eventually("the line", lambda: "the near cache serves nothing until" in caplog.text and "NoPermission" in caplog.text)
    assert guard.get(1, fails) == b"one" and guard.get_many([1], fails) == {1: b"one"} and not guard.counts["near_hit"]
    filled.execute_command("ACL", "SETUSER", "limited", "+client|tracking")
    eventually("the reports", guard._steps.has_reports)
    eventually("the value to be kept", lambda: guard.get(1, fails) == b"one" and guard.counts["near_hit"])
    filled.execute_command("ACL", "DELUSER", "limited")


@pytest.mark.usefixtures("retries")
async def test_a_password_that_is_changed(start: Start) -> None:
    """Reports end with the connection, and resume once the password is right again."""
    server = start()
    with redis.Redis(port=server.port, socket_timeout=PATIENCE) as admin:
        Filter(admin, "rows").insert(range(10), capacity=100)
        fill(admin, b"one")
        with redis.Redis(port=server.port, socket_timeout=PATIENCE) as client:
            threads = tracked(client)
            async with redis.asyncio.Redis(port=server.port, socket_timeout=PATIENCE) as aclient:
                tasks = await atracked(aclient)
                for _ in range(3):
                    admin.config_set("requirepass", "secret")
                    admin.client_kill_filter(_type="pubsub", skipme=True)
                    for id in [one["id"] for one in admin.client_list() if "t" in one["flags"] or one["resp"] == "3"]:
                        admin.client_kill_filter(_id=id, skipme=True)
                    await until(lambda: not threads._steps.has_reports() and not tasks._steps.has_reports())
                    admin.config_set("requirepass", "")
                    await until(lambda: threads._steps.has_reports() and tasks._steps.has_reports())
                admin.set(KEY, b"two")
                assert threads.get(1, fails) == b"two" == await tasks.get(1, fails)


@pytest.mark.usefixtures("retries")
async def test_no_read_is_old_while_reports_are_lost(filled: redis.Redis, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections for reports are killed, restored, and killed while tracking is refused. In the last case, nothing is
    kept either."""
    seen: collections.defaultdict[Tracking, set[bytes]] = collections.defaultdict(set)
    changed = Tracking._changed

    def see(tracking: Tracking, message: Any) -> None:
        changed(tracking, message)
        seen[tracking].update(bytes(key) for key in message[1] or ())

    monkeypatch.setattr(Tracking, "_changed", see)
    filled.delete(*(f"{{rows}}:{id}" for id in range(10)))
    user: Any = ("ACL", "SETUSER", "reader")
    filled.execute_command(*user, "on", "nopass", "~*", "&*", "+@all")
    options: Any = {"port": port, "username": "reader", "password": "any", "socket_timeout": PATIENCE}
    rows, writer = Rows(), Guard(filled, "rows")
    for id in range(10):
        rows.save(id, b"0")

    def kill() -> None:
        for one in filled.client_list():
            if one["user"] == "reader" and "t" in one["flags"]:
                filled.client_kill_filter(_id=one["id"])

    with redis.Redis(**options) as client:
        async with redis.asyncio.Redis(**options) as aclient:
            guard: Guard[bytes] = Guard(client, "rows", near=NearCache(100, HOUR), load=rows.load, load_many=rows.load_many)
            aguard: bloomgate.asyncio.Guard[bytes] = bloomgate.asyncio.Guard(
                aclient, "rows", near=NearCache(100, HOUR), load=rows.aload, load_many=rows.aload_many
            )
            trackings: Any = [guard._tracking, aguard._tracking]

            def have_seen(key: bytes) -> bool:
                filled.set(key, b"")
                return all(not tracking.is_active or key in seen[tracking] for tracking in trackings)

            nears: Any = [guard._steps.near, aguard._steps.near]
            for number in range(200):
                phase = number // 25 % 4
                if number % 50 == 0:
                    filled.execute_command(*user, "+client|tracking")
                    guard.counts.clear()
                    aguard.counts.clear()
                    while not (guard.counts["near_hit"] and aguard.counts["near_hit"]):
                        assert guard.get(9) == await aguard.get(9)
                        await asyncio.sleep(0.001)
                elif number % 25 == 0:
                    if phase == 3:
                        filled.execute_command(*user, "-client|tracking")
                    kill()
                    if phase == 3:
                        await until(lambda: not any(tracking.is_active for tracking in trackings))
                id, now = number % 10, b"%d" % number
                with writer.changed(id):
                    rows.save(id, now)
                # Once this key's change has arrived, all earlier reports have been applied.
                await until(lambda: have_seen(b"{rows}:after-%d" % number))  # noqa: B023
                expected = {id: rows.load(id) for id in range(10)}
                for one in (id, (id + 3) % 10, id):
                    assert guard.get(one) == await aguard.get(one) == expected[one]
                assert guard.get_many(range(10)) == await aguard.get_many(range(10)) == expected
                assert phase != 3 or not any(len(near) for near in nears)
    filled.execute_command("ACL", "DELUSER", "reader")


def test_attempts_become_rarer(filled: redis.Redis) -> None:
    reports = Tracking(filled, NearCache(1, HOUR), b"{rows}:")
    assert [reports._lost(OSError()) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    reports._began()
    assert reports._lost(OSError()) == 1


def test_a_deleted_guard_leaves_no_thread(filled: redis.Redis) -> None:
    before = set(threading.enumerate())
    guard = tracked(filled)
    [thread] = set(threading.enumerate()) - before
    del guard
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_forked_process_tracks_by_itself(filled: redis.Redis) -> None:
    guard = tracked(filled)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            follow, Tracking._follow = Tracking._follow, lambda _: None  # type: ignore[method-assign]
            guard.get(100, fails)
            assert not guard._steps.has_reports(), "the reports go to the other process"
            Tracking._follow = follow  # type: ignore[method-assign]
            guard._tracking._follower = None
            guard.get(100, fails)
            deadline = time.monotonic() + PATIENCE
            while "bloomgate tracking" not in [thread.name for thread in threading.enumerate()]:
                assert time.monotonic() < deadline
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("threads", "tasks"), [(redis.Redis, redis.asyncio.Redis), (valkey.Valkey, valkey.asyncio.Valkey)], ids=["redis", "valkey"]
)
async def test_clients_of_each_library(filled: redis.Redis, port: int, threads: Any, tasks: Any) -> None:
    options: Any = {"port": port, "socket_timeout": PATIENCE, "decode_responses": True}
    with threads(**options) as client:
        guard = tracked(client)
        assert guard.get(1, fails) == b"one"
        filled.set(KEY, b"two")
        eventually("the change", lambda: guard.get(1, fails) == b"two")
    async with tasks(**options) as aclient:
        aguard = await atracked(aclient)
        for _ in range(3):
            assert await aguard.get(1, fails) == b"two"
            assert await aguard.get_many([1, 2], fails) == {1: b"two", 2: b"one"}
        assert aguard.counts["near_hit"] == 7 and aguard.counts["hit"] == 2
        filled.set(KEY, b"three")
        near = aguard._steps.near
        await until(lambda: near is not None and near.get(KEY.encode()) is None)
        assert await aguard.get(1, fails) == b"three"
        task = next(task for task in asyncio.all_tasks() if "_afollow" in repr(task))
        del aguard, near
        gc.collect()
        await until(task.done)
