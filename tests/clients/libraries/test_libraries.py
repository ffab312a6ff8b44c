"""The programs of README.md: each prints what the page says, and runs again. `scripts/test --only libraries` installs the libraries into
the folder `BLOOMGATE_CLIENTS`. Programs in a language that is missing are skipped."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server import PATIENCE, Server

INSTALLED = Path(os.environ["BLOOMGATE_CLIENTS"])
SECTIONS = (Path(__file__).parent / "README.md").read_text().split("\n## ")[1:]
PROGRAM = re.compile(r"```(\w+)\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PROGRAMS = {section.partition("\n")[0]: found.groups() for section in SECTIONS if (found := PROGRAM.search(section))}
# Libraries that do not run here: other tests send their commands.
WITHOUT_OUTPUT = {"phpredis", "StackExchange.Redis"}
# Some libraries give up on a reply after two seconds, or then send a command again, which a busy machine can make them do.
ATTEMPTS = 5


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=5 * PATIENCE)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def command(language, code, folder):
    """Writes a program to the folder. Returns the words that run it."""
    if language == "python":
        (folder / "program.py").write_text(code)
        return [sys.executable, "program.py"]
    if language == "js":
        major = int(run(["node", "--print", "process.versions.node.split('.')[0]"], folder))
        (folder / "node_modules").symlink_to(INSTALLED / "node" / "node_modules")
        (folder / "program.mjs").write_text(code.replace('from "redis"', f'from "redis-{6 if major >= 20 else 5}"'))
        return ["node", "program.mjs"]
    if not (INSTALLED / language / "installed").exists():
        pytest.skip(f"the libraries for {language} are not installed")
    if language == "go":
        for name in "go.mod", "go.sum":
            shutil.copy(INSTALLED / "go" / name, folder)
        (folder / "main.go").write_text(code)
        run(["go", "build", "-o", "program", "."], folder)
        return ["./program"]
    assert language == "java"
    name = re.search(r"class (\w+)", code)[1]
    (folder / f"{name}.java").write_text(code)
    run(["javac", "-Xlint:deprecation", "-Werror", "-cp", f"{INSTALLED}/java/lib/*", "-d", ".", f"{name}.java"], folder)
    return ["java", "-cp", f"{INSTALLED}/java/lib/*:.", name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_prints_the_shown_output_and_runs_again(name, tmp_path):
    language, code, said = PROGRAMS[name]
    assert code.count("6379") == 1
    server = Server()
    try:
        server.start()
        words = command(language, code.replace("6379", str(server.port)), tmp_path)
        for attempt in range(ATTEMPTS):
            server.client().flushall()
            try:
                assert run(words, tmp_path) == said
                # The items are no longer new.
                again = run(words, tmp_path)
                assert again != said and again.count("\n") == said.count("\n")
                break
            except AssertionError:
                if attempt == ATTEMPTS - 1:
                    raise
        assert server.client().bf().card("seen") == 3
    finally:
        server.end()


def test_the_page_has_a_program_for_every_library():
    assert {section.partition("\n")[0] for section in SECTIONS} == PROGRAMS.keys() | WITHOUT_OUTPUT
