"""docs/tutorial.md: its commands, in the order of the page, print what it shows. Its code is in examples/tutorial."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from postgres import launch
from server import PATIENCE, free_port, from_environment

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "examples" / "tutorial"
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = "".join(text for language, text in BLOCK.findall(PAGE) if not language)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
COUNT = re.compile(r"(.{30}) {1,6}([\d,]+)( █+)?")

PREAMBLE = """
set -eo pipefail
clean_up() {
  kill -9 $! || true
  redis-cli -p 6410 SHUTDOWN NOSAVE || true
  pg_ctl -s -D data -m immediate stop || true
}
trap 'clean_up >/dev/null 2>&1' EXIT
trap 'exit 1' TERM
# Waits until the server has started, and until the follower, if there is a heartbeat, has announced the last change.
python() {
  local heartbeat now
  until redis-cli -p 6410 PING 2>/dev/null | grep -q PONG; do sleep 0.1; done
  now=$(redis-cli -p 6410 TIME | paste -sd ' ' - | awk '{ printf "%d", $1 * 1000 + $2 / 1000 }')
  while heartbeat=$(redis-cli -p 6410 GET '{users}:feed' | head -n 1); [ -n "$heartbeat" ] && [ "$heartbeat" -le "$now" ]; do
    sleep 0.1
  done
  command python "$@"
}
"""


def comparable(line: str) -> str:
    """Returns a line without times, sizes in memory, positions in the log, and the false positives of a fill."""
    return re.sub(r"\b[0-9A-F]+/[0-9A-F]+\b|[\d.,]+( s\b| a second| KiB| of them new)", r"#\1", line).rstrip()


def is_shown(line: str, shown: str) -> bool:
    """Whether a line is as shown. The number of false positives depends on the seed of the filter."""
    counted, count = COUNT.fullmatch(line), COUNT.fullmatch(shown)
    if counted and count:
        numbers = [int(found[2].replace(",", "")) for found in (counted, count)]
        return counted[1] == count[1] and abs(numbers[0] - numbers[1]) <= 10
    return comparable(line) == comparable(shown)


class Desk:
    """A folder that PostgreSQL's user can enter, with the parts of a clone that the page uses, and with programs that precede
    others on the PATH."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bloomgate-"))
        self.folder.chmod(0o755)
        self.ports = {"6410": str(free_port()), "5450": str(free_port())}
        for path in ("clone/examples/tutorial", "clone/target/release", "programs"):
            (self.folder / path).mkdir(parents=True)
        clone = self.folder / "clone"
        (clone / "clients").symlink_to(ROOT / "clients")
        (clone / "target/release/libbloomgate.so").symlink_to(from_environment("BLOOMGATE_MODULE", "the module"))
        (clone / "target/release/bloomgate").symlink_to(from_environment("BLOOMGATE_TOOL", "the command-line tool"))
        for file in PROGRAMS.iterdir():
            patient = file.read_text().replace('6410")', f'6410", timeout={PATIENCE})')
            (clone / "examples/tutorial" / file.name).write_text(self.here(patient))
        self.program("redis-server", f"exec {from_environment('BLOOMGATE_SERVER', 'the server')}")
        if os.getuid() == 0:
            # PostgreSQL refuses to run as root.
            for name in ("initdb", "pg_ctl"):
                user = "setpriv --reuid postgres --regid postgres --clear-groups"
                self.program(name, f"chown postgres . && exec {user} {shutil.which(name)}")

    def program(self, name: str, line: str) -> None:
        path = self.folder / "programs" / name
        path.write_text(f'#!/bin/sh\n{line} "$@"\n')
        path.chmod(0o755)

    def here(self, text: str) -> str:
        """Returns a text with the ports of this test."""
        return re.sub("6410|5450", lambda found: self.ports[found[0]], text)

    def run(self, session: str) -> str:
        """Runs the commands of a session. Returns what a terminal would show."""
        commands = COMMAND.findall(session)
        lines = [line for command in commands for line in (f"echo {shlex.quote('$ ' + command)}", command)]
        script = self.folder / "script"
        script.write_text(self.here(PREAMBLE + "\n".join(lines) + "\n"))
        environment = {
            **os.environ,
            "PATH": f"{self.folder}/programs:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(self.folder),
            # The packages are installed already. pip checks them, and builds the metadata of ours.
            "PIP_DRY_RUN": "1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
        }
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        shell = launch(["bash", script], "TERM", cwd=self.folder / "clone", env=environment, **options)
        try:
            printed, _ = shell.communicate(timeout=2 * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            printed, _ = shell.communicate()
        return printed.decode() + f"status {shell.returncode}\n" * (shell.returncode != 0)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    shutil.rmtree(desk.folder)


@pytest.mark.skipif(shutil.which("initdb") is None, reason="PostgreSQL's initdb is not on the PATH")
def test_the_commands_of_the_page_print_what_it_shows(desk: Desk) -> None:
    printed, shown = desk.run(SESSION), desk.here(SESSION).splitlines()
    # psql prints an empty line, and the shell a message about the killed follower.
    lines = [line for line in printed.splitlines() if line.strip() and not re.search(r"line \d+: +\d+ Killed", line)]
    pairs = zip_longest(lines, shown, fillvalue="")
    assert [theirs if is_shown(ours, theirs) else ours for ours, theirs in pairs] == shown, printed


def test_the_code_of_the_page_is_in_the_programs() -> None:
    programs = [file.read_text() for file in PROGRAMS.iterdir()]
    blocks = [text for language, text in BLOCK.findall(PAGE) if language in ("python", "toml")]
    assert blocks
    for block in blocks:
        assert any(block in program for program in programs), block
