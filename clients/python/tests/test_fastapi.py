"""examples/fastapi, in front of PostgreSQL. The tool fills its filter, as the README of the examples says."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import Start
from postgres import Postgres, launch
from server import PATIENCE, Server, eventually, free_port, from_environment

EXAMPLES = Path(__file__).parents[3] / "examples"


class Service:
    """The service of the example; `queries` returns the ids of the rows that it has read."""

    def __init__(self, folder: Path, database: Postgres, server: Server) -> None:
        self.port, self.log = free_port(), folder / "service.log"
        url = f"postgresql://guard@/postgres?host={database.folder}"
        environment = {**os.environ, "DATABASE_URL": url, "REDIS_URL": f"redis://127.0.0.1:{server.port}"}
        command = [sys.executable, "-m", "uvicorn", "--app-dir", EXAMPLES / "fastapi", "service:app", "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = launch(command, stdout=log, stderr=log, env=environment)
        eventually("the service", self._is_up)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "Uvicorn running" in self.log.read_text()

    def ask(self, method: str, id: int | str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Content-Type": "application/json"}
        connection.request(method, f"/users/{id}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        return json.loads(found) if answer.status == 200 else answer.status

    @property
    def queries(self) -> list[int]:
        return [int(id) for id in re.findall(r"^SELECT (\d+)$", self.log.read_text(), re.M)]


@contextmanager
def running(*arguments: Any) -> Iterator[Service]:
    service = Service(*arguments)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


@pytest.fixture
def database() -> Iterator[Postgres]:
    database = Postgres()
    try:
        with database.connect() as session:
            session.execute("CREATE TABLE users (id bigint PRIMARY KEY, name text)")
            session.execute("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 1000) n")
        yield database
    finally:
        database.end()


def test_the_service_queries_the_database_once_for_each_version_of_a_row(tmp_path: Path, database: Postgres, start: Start) -> None:
    server = start()
    found = re.search(r"^\$ bloomgate (load --postgres .*)$", (EXAMPLES / "README.md").read_text(), re.M)
    assert found is not None
    words = [database.url if word.startswith("postgres:") else word for word in shlex.split(found[1])]
    words[1:1] = ["-p", str(server.port)]
    subprocess.run([from_environment("BLOOMGATE_TOOL", "the command-line tool"), *words], check=True)
    with running(tmp_path, database, server) as service:
        assert service.ask("GET", 17) == {"id": 17, "name": "user 17"} == service.ask("GET", 17)
        assert service.ask("GET", 5000) == 404
        assert service.queries == [17]
        assert service.ask("PUT", 17, {"name": "Ada"}) == 204 == service.ask("PUT", 5000, {"name": "Grace"})
        assert service.ask("GET", 17) == {"id": 17, "name": "Ada"}
        assert service.ask("GET", 5000) == {"id": 5000, "name": "Grace"}
        assert service.queries == [17, 17, 5000]
        assert [service.ask("GET", "x"), service.ask("GET", 2**63), service.ask("PUT", 1, {})] == [422] * 3
        with database.connect() as session:
            session.execute("ALTER TABLE users ADD CHECK (name <> 'no')")
            assert service.ask("PUT", 17, {"name": "no"}) == 500, "a statement that fails"
            session.execute("CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$")
            session.execute("CREATE TRIGGER hang BEFORE UPDATE ON users FOR EACH ROW WHEN (NEW.name = 'hang') EXECUTE FUNCTION hang()")
            with ThreadPoolExecutor() as executor:
                hanging = executor.submit(service.ask, "PUT", 17, {"name": "hang"})
                sleeping = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                found = eventually("the write", lambda: session.execute(sleeping).fetchone())
                os.kill(found[0], signal.SIGKILL)  # PostgreSQL restarts
                assert hanging.result() == 500
        # Until PostgreSQL has restarted, and on connections that it closed, queries fail.
        eventually("PostgreSQL to answer", lambda: service.ask("GET", 17) != 500)
        assert service.ask("GET", 17) == {"id": 17, "name": "Ada"}
        assert service.ask("PUT", 17, {"name": "Eve"}) == 204
        assert service.ask("GET", 17) == {"id": 17, "name": "Eve"}
