"""The guard client in examples/guard.py, which docs/guard.md shows, in front of a table in SQLite."""

import importlib.util
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from server import free_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "guard.py"


@pytest.fixture
def example():
    """The file as it is shown."""
    spec = importlib.util.spec_from_file_location("guard_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Rows:
    """A table with counted queries."""

    def __init__(self, file):
        self.file = file
        self.queries = 0
        self.run("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)")

    def run(self, *statement):
        with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as database:
            return database.execute(*statement).fetchall()

    def load(self, id):
        self.queries += 1
        found = self.run("SELECT body FROM rows WHERE id = ?", (id,))
        return found[0][0].encode() if found else None

    def save(self, id, body):
        self.run("INSERT OR REPLACE INTO rows VALUES (?, ?)", (id, body))

    def delete(self, id):
        self.run("DELETE FROM rows WHERE id = ?", (id,))


@pytest.fixture
def rows(tmp_path):
    return Rows(tmp_path / "rows.sqlite")


@pytest.fixture
def guard(example, client):
    client.execute_command("BF.RESERVE", "rows", 0.01, 1000, "HASH", "siphash")
    return example.Guard(client, "rows")


def test_a_row_is_read_once_and_a_missing_one_not_at_all(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))
    for _ in range(3):
        assert guard.read(1, lambda: rows.load(1)) == b"one"
        assert guard.read(2, lambda: rows.load(2)) is None
    assert rows.queries == 1


def test_a_false_positive_queries_the_database_once(guard, rows, client):
    client.bf().add("rows", 3)
    for _ in range(3):
        assert guard.read(3, lambda: rows.load(3)) is None
    assert rows.queries == 1
    guard.write(3, lambda: rows.save(3, "three"))
    assert guard.read(3, lambda: rows.load(3)) == b"three"


def test_a_crowd_loads_once(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))
    crowd = 20
    start, found = threading.Barrier(crowd), []

    def ask():
        start.wait()
        found.append(guard.read(1, lambda: rows.load(1)))

    threads = [threading.Thread(target=ask) for _ in range(crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"one"] * crowd
    assert rows.queries == 1


def test_a_caller_asks_the_database_if_another_takes_too_long(example, guard, rows, client):
    guard.write(8, lambda: rows.save(8, "eight"))
    assert client.execute_command("BF.FETCH", "rows", 8, "{rows}:8", "LEASE", 100_000)[0] == b"load"
    example.LEASE_MS = 10
    assert guard.read(8, lambda: rows.load(8)) == b"eight"
    assert not client.exists("{rows}:8")


def test_a_change_voids_earlier_reads(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))

    def load_while_it_is_changed():
        row = rows.load(1)
        guard.write(1, lambda: rows.save(1, "another"))
        return row

    assert guard.read(1, load_while_it_is_changed) == b"one"
    assert guard.read(1, lambda: rows.load(1)) == b"another", "what was read before was not filled"
    guard.write(1, lambda: rows.save(1, "a third"))
    assert guard.read(1, lambda: rows.load(1)) == b"a third"


def test_a_deleted_row_is_absent(guard, rows, client):
    guard.write(1, lambda: rows.save(1, "one"))
    assert guard.read(1, lambda: rows.load(1)) == b"one"
    guard.delete(1, lambda: rows.delete(1))
    assert guard.read(1, lambda: rows.load(1)) is None
    assert rows.queries == 1
    assert not client.bf().exists("rows", 1)


def test_a_caller_that_cannot_load_gives_up(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))
    with pytest.raises(sqlite3.OperationalError):
        guard.read(1, lambda: rows.run("SELECT nothing FROM nowhere"))
    assert guard.read(1, lambda: rows.load(1)) == b"one", "and the next one may, at once"


def test_a_full_server_blocks_no_caller(guard, rows, client):
    guard.write(1, lambda: rows.save(1, "one"))
    client.config_set("maxmemory", 1)
    for _ in range(3):
        # Without GIVEUP the second caller would wait until the first one's lease expires.
        assert guard.read(1, lambda: rows.load(1)) == b"one"
    assert rows.queries == 3
    waited = client.info("bf")["bf_bloom_fetches_wait"]
    client.config_set("maxmemory", 0)
    assert guard.read(1, lambda: rows.load(1)) == b"one"
    assert (waited, rows.queries) == (0, 4)


def test_a_failed_transaction_is_reported(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))
    with pytest.raises(sqlite3.OperationalError):
        guard.write(1, lambda: rows.run("UPDATE nothing"))
    assert guard.read(1, lambda: rows.load(1)) == b"one"


def test_without_the_server_rows_can_be_read_but_not_written(guard, rows):
    guard.write(1, lambda: rows.save(1, "one"))
    guard.client = redis.Redis(port=free_port(), retry=Retry(NoBackoff(), 0))
    assert guard.read(1, lambda: rows.load(1)) == b"one"
    with pytest.raises(redis.ConnectionError):
        guard.write(1, lambda: rows.save(1, "another"))
    assert rows.load(1) == b"one"
