"""The steps that scripts/test can run, by the name for `--only`. The words in a description are the step's arguments."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import clients
from fuzzing import fuzz
from machine import (
    ALL_CASES, ROOT, TARGET, TOOL, cases, fail, has, installed_servers, module, output, path_servers, run, servers, skip, status_of,
    use_server,
)
from memory import asan, memcheck, miri
from unavailable import unavailable

WAITING = ("--test-threads", str(2 * (os.cpu_count() or 2)))
# For fewer packages than the workspace, cargo would select fewer features and rebuild many crates.
TEST = ("cargo", "test", "--locked", "--workspace")


def tests(*words: object, **environment: object) -> None:
    run(*TEST, *words, BLOOMGATE_MODULE=module(), **environment)


def scripts() -> None:
    """lints the shell scripts"""
    files = output("git", "ls-files", "scripts", "packaging", "tests", "examples", ".ci").split("\n")
    first = re.compile(r"#!(/usr/bin/env bash|/bin/sh|/bin/bash)\b|# shellcheck shell=")
    run("shellcheck", "--external-sources", *(file for file in files if (ROOT / file).is_file() and first.match((ROOT / file).read_bytes()[:40].decode(errors="replace"))))


def formatting() -> None:
    """checks the format of Rust"""
    run("cargo", "fmt", "--all", "--check")


def house() -> None:
    """scripts/check-house: who imports whom, where `unsafe` is, the version, the options of the clients"""
    run("scripts/check-house")


def links() -> None:
    """scripts/check-links: the links between documents, and the pages in Chinese"""
    run("scripts/check-links")


def pictures() -> None:
    """scripts/pictures --check: the pictures show the figures and the recorded run"""
    run("scripts/pictures", "--check")


def shipped() -> None:
    """builds the module as it is shipped"""
    run("cargo", "build", "--locked", "--release", "-p", "bloomgate")


def build() -> None:
    """builds the programs that tests run, and all tests"""
    examples = [word for name in ("fault_module", "crawler", "guard_database", "judge_driver", "adapter") for word in ("--example", name)]
    run("cargo", "build", "--locked", "--workspace", "--bin", "bloomgate", *examples)
    run(*TEST, "--no-run", "--lib", "--bins", "--tests")


def lints() -> None:
    """clippy"""
    run("cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings")


def document() -> None:
    """builds the documentation of the crates, without warnings"""
    features = "bloomgate-client/tokio,bloomgate-client/json,bloomgate-client/tls"
    run("cargo", "doc", "--locked", "--workspace", "--no-deps", "--features", features, RUSTDOCFLAGS="-D warnings")


def cargo(*words: str) -> None:
    """WORD... cargo test with these words"""
    tests(*words)


def protocol(bounds: str = "small") -> None:
    """[small | full] the models of the guard and of the follower, within these bounds"""
    tests("--test", "protocol", BLOOMGATE_PROOF=bounds)


def tool(*words: str) -> None:
    """[WORD...] the command-line tool with real servers"""
    without = []
    if not has("initdb"):
        print("SKIPPED: the tests of bloomgate follow: PostgreSQL is missing")
        without = ["--skip", "follow::", "--skip", "postgresql"]
    tests("--test", "tool", "--", *WAITING, *without, *words)


def follow(name: str) -> None:
    """postgres-17 | postgres-18 | mysql | mariadb: bloomgate follow on a database that scripts/setup --deep installs"""
    system, _, release = name.partition("-")
    folder = ROOT / "target" / system / (f"{release}/bin" if release else "")
    program = folder / {"postgres": "postgres", "mysql": "mysqld", "mariadb": "mariadbd"}[system]
    if not os.access(program, os.X_OK):
        skip(f"bloomgate follow on {name}: it is missing", "scripts/setup --deep installs it")
    if release and os.getuid() == 0 and status_of("su", "postgres", "-s", "/bin/sh", "-c", f"test -x '{program}'"):
        skip(f"bloomgate follow on {name}: the user postgres cannot read {program}")
    names = ["follow::"] if release else ["follow::mariadb::", "follow::databases::", "follow::page::", "permissions_of_the_page", "answers_on_mariadb"]
    variables = {"BLOOMGATE_MYSQL": program} if system == "mysql" else {"PATH": f"{folder}:{os.environ['PATH']}"}
    tests("--test", "tool", "--", *WAITING, *names, **variables)


def ignored(*words: str) -> None:
    """[WORD...] the ignored tests of the module and the tool that can run here; with words, the server tests of these names, ignored or not"""
    if "BLOOMGATE_SERVERS" not in os.environ and not words:
        os.environ["BLOOMGATE_SERVERS"] = ":".join(path_servers() + installed_servers())
    without = unavailable()
    if words:
        return tests("--no-fail-fast", "--test", "server", "--", "--include-ignored", *without, *words)
    names = ["--test", "server", "--test", "tool", "--", "--ignored"]
    module()
    listed = [len(re.findall(": test$", output(*TEST, *names, "--list", *left_out), re.M)) for left_out in ([], without)]
    print("skipped", listed[0] - listed[1])
    tests("--no-fail-fast", *names, *without)


def specification() -> None:
    """the cases of the specification themselves: a server must answer as they say"""
    module()
    for server in servers():
        os.environ["BLOOMGATE_SERVER"] = server
        if not cases(f"The cases on {server}", ALL_CASES):
            raise SystemExit(1)


def demonstration(*words: str) -> None:
    """[--feed [--mysql]] scripts/run --once with the tool that is built already; without words, README.md's recording must match"""
    if words:
        return run("scripts/run", *words, "--once", BLOOMGATE_TOOL=TOOL)
    recording = TARGET / "test/session"
    recording.parent.mkdir(parents=True, exist_ok=True)
    printed_to(recording, "scripts/run", "--once")
    run("scripts/pictures", "--check", recording)


def spring() -> None:
    """examples/spring/run, whose run docs/from.md shows in its first block of text"""
    module()
    printed = printed_to(TARGET / "test/spring", "examples/spring/run").splitlines()
    block = re.search(r"^```text\n(.*?)^```", (ROOT / "docs/from.md").read_text(), re.M | re.S)
    if missing := [line for line in (block[1].splitlines() if block else ["a block of text"]) if line not in printed]:
        fail("examples/spring/run does not print these lines of docs/from.md:", *missing)


def scoreboard() -> None:
    """examples/scoreboard/run --check: every cache can be set up, and the guard returns no old row"""
    module()
    use_server("The scoreboard", servers()[0])
    run("examples/scoreboard/run", "--check")


def printed_to(path: Path, *command: str) -> str:
    """Runs a command with the tool that is built already, shows what it prints, and keeps that in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "BLOOMGATE_TOOL": str(TOOL)})
    assert process.stdout
    with path.open("w") as file:
        for line in process.stdout:
            print(line, end="")
            file.write(line)
    if status := process.wait():
        raise SystemExit(status)
    return path.read_text()


def packages() -> None:
    """scripts/package --test"""
    run("scripts/package", "--test")


STEPS: dict[str, Callable[..., None]] = {
    "scripts": scripts, "format": formatting, "house": house, "links": links, "pictures": pictures, "shipped": shipped, "build": build,
    "lints": lints, "document": document, "cargo": cargo, "protocol": protocol, "tool": tool, "follow": follow,
    "ignored": ignored, "cases": specification, "run": demonstration, "spring": spring, "scoreboard": scoreboard, "packages": packages,
    "python": clients.python, "typescript": clients.typescript, "go": clients.go, "java": clients.java, "rust": clients.rust, "php": clients.php, "judge": clients.judge,
    "libraries": clients.libraries, "page": clients.page, "fuzz": fuzz, "miri": miri, "asan": asan, "memcheck": memcheck,
}
