"""`bloomgate follow` between PostgreSQL and the guard: writers without the guard, and readers with `feed=True`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio
from postgres import Follow, Postgres, launch
from server import PATIENCE, Server, eventually

import bloomgate.asyncio
from bloomgate import Guard, Json, NearCache

EXAMPLE = Path(__file__).parents[1] / "examples" / "sqlalchemy_feed.py"

# Each spelling of a filter's key: its tables, and the prefix of its cache keys.
FILTERS = {"users": ("{users}", "{users}:"), "orders": ("orders", "{orders}:"), "items": ("{shop}:items", "{shop}:items:")}

TABLE = """
[[table]]
name = "public.{name}"
filter = "{filter}"
create = "0.000001 10000 HASH siphash"
item = "{{id}}"
cache-key = "{prefix}{{id}}"
max-lag = "10s"
"""


class Readers:
    """Guards of one table, and its rows in PostgreSQL."""

    def __init__(self, database: psycopg.Connection[Any], table: str, guard: Any) -> None:
        self.database, self.table, self.guard = database, table, guard
        self.queries = 0

    def load(self, id: int) -> Any:
        return self.load_many([id]).get(id)

    def load_many(self, ids: list[int]) -> dict[int, Any]:
        self.queries += len(ids)
        return dict(self.database.execute(f"SELECT id, name FROM {self.table} WHERE id = ANY(%s)", (ids,)).fetchall())

    def get(self, id: int) -> Any:
        return self.guard.get(id, self.load)

    def get_many(self, ids: list[int]) -> Any:
        return self.guard.get_many(ids, self.load_many)

    async def aget(self, id: int) -> Any:
        async def load(_: Any) -> Any:
            return self.load(id)

        return await self.guard.get(id, load)


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """Three tables with the rows 1 to 1000."""
    database = Postgres()
    try:
        with database.connect() as session:
            for table in FILTERS:
                session.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text)")
            session.execute(f"CREATE PUBLICATION bloomgate FOR TABLE {', '.join(FILTERS)}")
        yield database
    finally:
        database.end()


@pytest.fixture
def writer(database: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as session:
        session.execute(f"TRUNCATE {', '.join(FILTERS)}")
        for table in FILTERS:
            session.execute(f"INSERT INTO {table} SELECT id, 'row ' || id FROM generate_series(1, 1000) id")
        yield session


@pytest.fixture
def server(start: Any) -> Server:
    return start()


@pytest.fixture
def client(server: Server) -> redis.Redis:
    return server.client()


@pytest.fixture
def follow(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Postgres,
    writer: psycopg.Connection[Any],
    server: Server,
    client: redis.Redis,
) -> Iterator[Follow]:
    """A follower of all tables, once each has a heartbeat at the key that the guard uses. Its parameter is the mode."""
    mode = getattr(request, "param", "eventual")
    tables = [TABLE.format(name=name, filter=filter, prefix=prefix) for name, (filter, prefix) in FILTERS.items()]
    follow = Follow(tmp_path, database, server.port, mode, "".join(tables))
    try:
        if mode == "synchronous":
            eventually("the filters", lambda: follow.check() or "SET synchronous_standby_names" in follow.log.read_text())
            demand(writer, "FIRST 1 (bloomgate)")
        for filter, _ in FILTERS.values():
            heartbeat = Guard(client, filter, feed=True)._steps.feed.heartbeat
            eventually(f"the heartbeat {heartbeat!r}", lambda key=heartbeat: follow.check() or client.exists(key))
        yield follow
    finally:
        demand(writer, "")
        follow.end()
        writer.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        eventually(
            "the end of the slot", lambda: not writer.execute("SELECT FROM pg_replication_slots WHERE active").fetchall()
        )
        writer.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def demand(session: psycopg.Connection[Any], standbys: str) -> None:
    """Sets the standbys that COMMIT waits for."""
    session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
    session.execute("SELECT pg_reload_conf()")
    eventually("the setting", lambda: session.execute("SHOW synchronous_standby_names").fetchall() == [(standbys,)])


@pytest.mark.parametrize("table", FILTERS)
def test_changes_of_unmodified_writers(
    follow: Follow, writer: psycopg.Connection[Any], client: redis.Redis, table: str
) -> None:
    options: Any = {"codec": Json(), "feed": True, "fail_safe": 3600, "soft_timeout": PATIENCE}
    readers = Readers(writer, table, Guard(client, FILTERS[table][0], **options))
    assert readers.get(2000) is None and readers.get_many([2001, 2002]) == {2001: None, 2002: None} and not readers.queries
    assert readers.get_many([1, 2, 3]) == {id: f"row {id}" for id in (1, 2, 3)} and readers.queries == 3
    assert readers.get(1) == "row 1" and readers.queries == 3

    writer.execute(f"INSERT INTO {table} VALUES (2000, 'new')")
    eventually("the insert", lambda: readers.get(2000) == "new")
    writer.execute(f"UPDATE {table} SET name = 'another' WHERE id IN (1, 2)")
    eventually("the update", lambda: readers.get_many([1, 2, 3]) == {1: "another", 2: "another", 3: "row 3"})
    with readers.guard.changed(3):  # harmless, though nobody has to call it
        writer.execute(f"DELETE FROM {table} WHERE id = 3")
    eventually("the delete", lambda: readers.get(3) is None)
    queries = readers.queries
    eventually("the id's removal from the filter", lambda: readers.get(3) is None and readers.guard.counts["absent"] > 3)
    assert readers.get(1) == "another" and readers.queries == queries


async def test_readers_with_a_near_cache_and_tasks(
    follow: Follow, writer: psycopg.Connection[Any], server: Server, client: redis.Redis
) -> None:
    near = NearCache(100, 3600)
    threads = Readers(writer, "users", Guard(client, "{users}", codec=Json(), feed=True, near=near))
    async with redis.asyncio.Redis(port=server.port, socket_timeout=PATIENCE) as aclient:
        guard = bloomgate.asyncio.Guard(aclient, "{users}", codec=Json(), feed=True)
        tasks = Readers(writer, "users", guard)
        found = await asyncio.gather(*(tasks.aget(id) for id in [1, 2, 1, 2000]))
        assert found == ["row 1", "row 2", "row 1", None] and tasks.queries == 2
        tracking = threads.guard._tracking
        eventually("the tracking", lambda: threads.get(2) == "row 2" and tracking.is_active)
        eventually("values in the near cache", lambda: threads.get(1) == "row 1" and len(near))
        assert threads.queries == 0, "the tasks have filled both rows"
        for number in range(20):
            writer.execute("UPDATE users SET name = %s WHERE id = 1", (f"version {number}",))
            eventually("the update in the near cache", lambda wanted=f"version {number}": threads.get(1) == wanted)
            while await tasks.aget(1) != f"version {number}":
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("follow", ["synchronous"], indirect=True)
async def test_no_reader_is_behind_a_commit(
    follow: Follow, database: Postgres, writer: psycopg.Connection[Any], server: Server, client: redis.Redis
) -> None:
    """Once COMMIT has returned, every reader gets the row, while other readers continuously fill the cache."""
    threads = Readers(writer, "users", Guard(client, "{users}", codec=Json(), feed=True, fail_safe=3600))
    stops = threading.Event()

    def read() -> None:
        with database.connect() as session, server.client() as own:
            reader = Readers(session, "users", Guard(own, "{users}", codec=Json(), feed=True))
            while not stops.is_set():
                reader.get(1)
                reader.get_many([1, 2, 2000])

    with ThreadPoolExecutor() as pool:
        crowd = [pool.submit(read) for _ in range(3)]
        try:
            async with redis.asyncio.Redis(port=server.port, socket_timeout=PATIENCE) as aclient:
                tasks = Readers(writer, "users", bloomgate.asyncio.Guard(aclient, "{users}", codec=Json(), feed=True))
                for number in range(200):
                    name = f"version {number}"
                    writer.execute("UPDATE users SET name = %s WHERE id = 1", (name,))
                    assert threads.get(1) == name and await tasks.aget(1) == name
                    writer.execute("DELETE FROM users WHERE id = 2000")
                    assert threads.get(2000) is None and await tasks.aget(2000) is None
                    writer.execute("INSERT INTO users VALUES (2000, %s)", (name,))
                    assert await tasks.aget(2000) == name and threads.get_many([1, 2000]) == {1: name, 2000: name}
        finally:
            stops.set()
        for one in crowd:
            one.result()
    assert threads.guard.counts["hit"] > 0 and tasks.guard.counts["hit"] > 0


def test_a_follower_that_has_ended(follow: Follow, writer: psycopg.Connection[Any], client: redis.Redis) -> None:
    readers = Readers(writer, "users", Guard(client, "{users}", codec=Json(), feed=True))
    assert readers.get(2000) is None and readers.queries == 0
    follow.end()
    eventually("the end of the heartbeat", lambda: not client.exists("{users}:feed"))
    assert readers.get(2001) is None and readers.queries == 1
    writer.execute("INSERT INTO users VALUES (2000, 'new')")
    assert readers.get(2000) == "new" and readers.get_many([2000, 1]) == {2000: "new", 1: "row 1"}


def test_the_example(follow: Follow, database: Postgres, server: Server) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": f"postgresql+psycopg://guard@/postgres?host={database.folder}",
        "REDIS_URL": f"redis://127.0.0.1:{server.port}",
        "PORT": "0",
    }
    with launch([sys.executable, EXAMPLE], stdout=-1, env=environment) as service:
        try:
            assert service.stdout is not None
            line = service.stdout.readline().decode()
            [port] = re.findall(r":(\d+)/", line)

            def ask(method: str, path: str, body: Any = None) -> Any:
                connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
                connection.request(method, path, None if body is None else json.dumps(body))
                answer = connection.getresponse()
                found = answer.read()
                return json.loads(found) if answer.status == 200 else answer.status

            assert ask("GET", "/users/2000") == 404 and ask("GET", "/counts") == {"absent": 1}
            assert ask("GET", "/users/1") == {"id": 1, "name": "row 1"} == ask("GET", "/users/1")
            assert ask("GET", "/counts") == {"absent": 1, "load": 1, "filled": 1, "hit": 1}
            assert ask("PUT", "/users/2000", {"name": "Ada"}) == 204
            eventually("the new row", lambda: ask("GET", "/users/2000") == {"id": 2000, "name": "Ada"})
            assert ask("PUT", "/users/1", {"name": "Grace"}) == 204
            eventually("the change", lambda: ask("GET", "/users/1") == {"id": 1, "name": "Grace"})
            assert ask("DELETE", "/users/1") == 204
            eventually("the delete", lambda: ask("GET", "/users/1") == 404)
            assert [ask("GET", "/users/x"), ask("PUT", "/users/1", {}), ask("PUT", "/users/1", 7)] == [404, 400, 400]
        finally:
            service.kill()
