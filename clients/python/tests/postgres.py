"""PostgreSQL and `bloomgate follow` for a test. PostgreSQL's programs are on the PATH, and `BLOOMGATE_TOOL` names the tool;
`scripts/test --only python` sets both."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from server import eventually, from_environment


def launch(command: list[Any], death_signal: str = "KILL", **options: Any) -> subprocess.Popen[bytes]:
    """Starts a program that gets this signal if the tests are killed, where setpriv exists (Linux)."""
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", death_signal, *command]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)


class Postgres:
    """A cluster in a separate folder, with a Unix socket and a log for logical replication."""

    def __init__(self) -> None:
        initdb = shutil.which("initdb")
        assert initdb is not None, "PostgreSQL's initdb is not on the PATH: run scripts/test --only python"
        programs = Path(initdb).parent
        self.folder = Path(tempfile.mkdtemp(prefix="bloomgate-pg-"))
        self.options: dict[str, Any] = {"cwd": self.folder, "env": {**os.environ, "LC_ALL": "C"}}
        if os.getuid() == 0:
            # PostgreSQL refuses to run as root.
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        words = ["-D", "data", "-U", "guard", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run([initdb, *words], check=True, stdout=subprocess.DEVNULL, **self.options)
        settings = ["wal_level=logical", "fsync=off", "listen_addresses=", f"unix_socket_directories={self.folder}"]
        command = [programs / "postgres", "-D", "data", *(word for setting in settings for word in ("-c", setting))]
        self.log = (self.folder / "postgres.log").open("wb")
        self.process = launch(command, stdout=self.log, stderr=self.log, **self.options)
        eventually("PostgreSQL", self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "postgres.log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self) -> psycopg.Connection[Any]:
        """Opens a session that commits each statement."""
        return psycopg.connect(host=str(self.folder), user="guard", dbname="postgres", autocommit=True)

    @property
    def url(self) -> str:
        return f"postgres://guard@{quote(str(self.folder), safe='')}/postgres"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


class Follow:
    """A running `bloomgate follow`."""

    def __init__(self, folder: Path, database: Postgres, port: int, mode: str, tables: str) -> None:
        program = from_environment("BLOOMGATE_TOOL", "the command-line tool")
        config, self.log = folder / "follow.toml", folder / "follow.log"
        head = [("database", database.url), ("server", f"redis://127.0.0.1:{port}"), ("slot", "bloomgate")]
        lines = [f'{name} = "{value}"\n' for name, value in [*head, ("mode", mode)]]
        config.write_text("".join(lines) + tables)
        with self.log.open("ab") as log:
            self.process = launch([program, "follow", config], stdout=log, stderr=log)

    def check(self) -> None:
        assert self.process.poll() is None, self.log.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
