"""Runs the steps of scripts/test: each is a separate process, this program with --only, so a step runs alone as in a whole run.

A step ends with status 0, or 77 if it cannot run here. Its output is counted: the summaries of cargo's test runner, pytest, node and
the cases of the specification."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from machine import ROOT, TARGET, fail, headline, installed_servers, output
from steps import STEPS

USAGE = """\
usage: scripts/test [--change | --deep | --soak TIME | --only STEP [WORD...] | --list]

Without an option, runs the checks that every change must pass: format, lints, documentation, all tests of the filter, the tool
and the module, and the specification of the clients. The module's tests run on the servers on the PATH, or on those in
BLOOMGATE_SERVERS. Ignored tests run on every server that scripts/setup --test installs. Takes eleven minutes on two cores from a
fresh clone, half of which is compilation.

  --change     then also runs the module's tests on the newest Redis and the newest Valkey that scripts/setup --test installs,
               scripts/run, and what the changed files call for. The changed files are those that differ from the commit in
               BLOOMGATE_BASE; by default, from origin/main, or on origin/main itself from its last commit older than a day.
               Without such a commit, everything has changed
  --deep       runs, instead, everything that scripts/test does not: all of the above whatever has changed, AddressSanitizer, the
               models within larger bounds, and the tool and the module on all servers besides those on the PATH,
               except most reliability tests and the tests of long chains and eviction
  --soak TIME  runs, for about a TIME such as 8h or 30m, the tests that find more the longer they run: half of it ordinary use, in
               which nothing may grow, then fuzzing, kills, faults, accuracy and memory checkers
  --only STEP  runs one step; the words are for it. Installs nothing
  --list       lists the steps and their words
  --help       prints this text

A step whose tool or server is missing is skipped with a line in the output. The run ends with the
seconds of each step, the skipped and the failed steps, and the number of tests and checks that passed, failed and
were skipped."""

WORK = TARGET / "test"
PROCESSORS = os.cpu_count() or 2
WAITING = f"--test-threads {2 * PROCESSORS}"
"""For tests that mostly wait."""


@dataclass
class Step:
    """A step of a run: its name and words, its servers (by default, those on the PATH), and the changed files that require it."""

    line: str
    title: str
    files: str = ""
    servers: list[str] | None = None
    setup: str = ""
    environment: dict[str, str] = field(default_factory=dict)


EVERY, NEWEST = installed_servers(), []
for family in ("redis", "valkey"):
    NEWEST += [server for server in EVERY if server.endswith(f"{family}-server")][-1:]
OTHERS = EVERY

# Without these, the following steps make no sense.
FIRST = [
    Step("scripts", "Scripts"),
    Step("format", "Format"),
    Step("house", "Imports, unsafe and the version"),
    Step("links", "Links, and the pages in Chinese"),
    Step("pictures", "The pictures"),
]
# Its last minute occupies one processor.
SHIPPED = Step("shipped", "Build the shipped module")
BUILD = [Step("build", "Build the tests"), Step("lints", "Lints"), Step("document", "Documentation")]
# Three lanes, so that both processors stay busy while servers wait. The first computes, and one test takes as long as the others have left.
QUICK = [
    [
        Step("cargo --lib --bins --test laws --test figures --test memory --test bench", "The filter, and all unit tests"),
        Step("cargo --doc", "Examples in the documentation"),
        Step("protocol small", "The protocols of the guard and the follower, exhaustively"),
        Step("typescript --specification", "The specification in TypeScript"),
    ],
    [
        Step("tool", "The command-line tool with real servers"),
        Step("cases", "The cases of the specification"),
        Step("cargo --test client", "The Rust client"),
        Step("rust", "The specification in Rust"),
    ],
    [
        Step(f"cargo --no-fail-fast --test server -- {WAITING}", "The module in real servers"),
        Step("ignored", "Ignored tests whose requirements are met"),
        Step("python --specification", "The specification in Python"),
    ],
]
NEWEST_SERVERS = Step(f"cargo --no-fail-fast --test server -- {WAITING}", "The module in the newest Redis and Valkey", servers=NEWEST)
CALLED_FOR = [
    Step("run", "scripts/run --once"),
    Step("run --feed", "scripts/run --feed --once", "^crates/(connect|follow)/|^scripts/(run|feed)"),
    Step("run --feed --mysql", "scripts/run --feed --mysql --once", "^crates/(connect|follow)/|^scripts/(run|feed)"),
    Step("fuzz 5", "Fuzzing", "^crates/filter/src/(arguments|cells|format|kinds)/|^fuzz/", setup="--fuzz"),
    Step("miri", "The filter in miri", "^crates/filter/src/(arguments|cells|format|kinds)/|^fuzz/", setup="--fuzz"),
    Step("page", "The page of the tool in Chromium", "^crates/tool/src/web/|^tests/page/"),
    Step("packages", "Packages", "^packaging/|^scripts/package|^Containerfile", setup="--packages"),
]


def client_steps(seconds: int) -> list[Step]:
    """Returns the clients, on every server: they mostly wait. The judge takes these seconds."""
    spring = "^clients/java/|^crates/(connect|follow)/|^examples/spring/|^docs/from"
    documents = "^src/commands/|^tests/clients/|^(README|docs/(faq|from|guard|jobs|kinds))[.]md"
    return [
        Step("cases", "The cases of the specification on every server", "^clients/specification/|^src/", EVERY),
        Step("python", "The Python package on every server", "^clients/(python|specification)/|^tests/clients/|^(docs|examples)/tutorial", EVERY),
        Step("typescript", "The TypeScript package on every server", "^clients/(typescript|specification)/|^tests/clients/", EVERY),
        Step("go", "The Go module on every server", "^clients/(go|specification)/", EVERY),
        Step("java", "The Java library on every server", "^clients/(java|specification)/", EVERY),
        Step("php", "The PHP package on every server", "^clients/(php|specification)/", EVERY),
        Step("spring", "The Spring example", spring),
        Step("scoreboard", "The scoreboard of old reads", r"^clients/python/|^examples/scoreboard/|^src/(commands/)?guard"),
        Step("cargo --test client", "The Rust client on every server", "^crates/client/|^clients/specification/", EVERY),
        Step("rust", "The specification in Rust on every server", "^crates/client/|^clients/specification/", EVERY),
        Step(f"judge {seconds}", "The judge of the clients", r"^(clients|crates/client|src/guard|tests/judge)/|^src/commands/guard\.rs"),
        Step("libraries", "Client libraries on every server", documents, EVERY),
    ]


# Tests that repeatedly kill servers, fill disks and memory, and wait run on the servers of the PATH only.
SLOW_ELSEWHERE = "reliability::disk:: reliability::hostile:: reliability::kill:: reliability::sizes:: long_chains:: eviction:: a_header_that_announces_much"
WITHOUT_SLOW = " ".join(f"--skip {name}" for name in SLOW_ELSEWHERE.split())
DEEP = [
    Step("java --spring", "The Spring starter on each release of Spring Boot"),
    # Only on the servers on the PATH, because AddressSanitizer makes a server slow.
    Step("asan loadchunk:: transfer:: membership:: redisbloom:: valkey_bloom::", "Some of the server tests under AddressSanitizer"),
    Step("protocol full", "The protocols of the guard and the follower, exhaustively, with larger bounds"),
    # The other servers have no TLS.
    Step("tool --skip connecting::", "The command-line tool on other servers", servers=OTHERS),
    *(Step(f"follow {name}", f"bloomgate follow on {name}") for name in ("postgres-17", "postgres-18", "mysql", "mariadb")),
    Step(f"cargo --no-fail-fast --test server -- {WAITING} {WITHOUT_SLOW}", "The module on other servers", servers=OTHERS),
]

Outcome = tuple[int, int, int, int, str]
"""Seconds, tests that passed, failed and were skipped, and the title."""
outcomes: list[Outcome] = []
left_out: set[str] = set()
figures: list[str] = []


def count(lines: list[str]) -> tuple[int, int, int]:
    """Adds up the summaries of test runners. Cargo's ignored tests are not counted: the step `ignored` runs them, and counts those that it
    leaves out."""
    passed = failed = skipped = 0
    for line in lines:
        if found := re.match(r"test result: .*?(\d+) passed; (\d+) failed", line):
            passed, failed = passed + int(found[1]), failed + int(found[2])
        elif found := re.match(r"(?:ℹ |# )?(pass|fail|skipped) (\d+)$", line):
            number = int(found[2])
            passed, failed, skipped = passed + number * (found[1] == "pass"), failed + number * (found[1] == "fail"), skipped + number * (found[1] == "skipped")
        elif found := re.match(r"OK(?:, but .*)? ?\((\d+) tests?|Tests: (\d+), Assertions: \d+(.*)", line):
            # PHPUnit: one line if all passed, another one otherwise.
            bad, left = (sum(map(int, re.findall(rf"(?:{words}): (\d+)", found[3] or ""))) for words in ("Errors|Failures", "Skipped|Incomplete"))
            passed, failed, skipped = passed + int(found[1] or found[2]) - bad - left, failed + bad, skipped + left
        elif re.match(r"=*( ?\d+ [a-z]+,?)+ in [\d.]+s", line):
            numbers = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", line)}
            passed += numbers.get("passed", 0)
            failed += numbers.get("failed", 0) + numbers.get("error", 0) + numbers.get("errors", 0)
            skipped += numbers.get("skipped", 0) + numbers.get("xfailed", 0)
    return passed, failed, skipped


def perform(step: Step, out: TextIO = sys.stdout) -> None:
    """Runs a step, and records its outcome. A step without a test runner counts as one check."""
    began, lines = time.monotonic(), []
    print(f"\n== {step.title} ==", file=out, flush=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **step.environment}
    if step.servers is not None:
        environment["BLOOMGATE_SERVERS"] = ":".join(step.servers)
    if step.servers == []:
        lines, status = ["SKIPPED: the other servers: this system has none of tests/servers.txt"], 77
        print(lines[0], file=out)
    else:
        if step.setup and subprocess.run([ROOT / "scripts/setup", step.setup], stdout=out, stderr=out, check=False).returncode:
            print("note: some of its tools could not be installed (see above)", file=out, flush=True)
        command = [sys.executable, "-B", str(Path(__file__).parent), "--only", *step.line.split()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
        assert process.stdout
        for line in process.stdout:
            out.write(line)
            out.flush()
            lines.append(line.rstrip("\n"))
        status = process.wait()
    passed, failed, skipped = count(lines)
    if status == 77:
        skipped += 1
    elif status:
        failed = failed or 1
    elif passed + failed + skipped == 0:
        passed = 1
    seconds = round(time.monotonic() - began)
    left_out.update(line[len("SKIPPED: ") :] for line in lines if line.startswith("SKIPPED: "))
    figures.extend(f"{step.line.split()[0]}: {found[1]}" for line in lines if (found := re.search("figures: (.*)", line)))
    outcomes.append((seconds, passed, failed, skipped, step.title))
    print(f"-- {seconds} s", file=out, flush=True)


def finish_if_failed() -> None:
    if any(failed for _, _, failed, _, _ in outcomes):
        finish()


def finish() -> None:
    """Prints the table of the steps, the skipped and the failed ones, and the totals, and exits."""
    headline("Seconds of each check")
    for seconds, *_, title in sorted(outcomes, reverse=True):
        print(f"{seconds:6}  {title}")
    print(f"{time.monotonic() - BEGAN:6.0f}  in all")
    for title, lines in (("Left out", sorted(left_out)), ("Failed", [title for _, _, failed, _, title in outcomes if failed])):
        if lines:
            headline(title)
            print(*lines, sep="\n")
    passed, failed, skipped = map(sum, zip(*(outcome[1:4] for outcome in outcomes)))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    raise SystemExit(1 if failed else 0)


class Lane:
    """Steps in the background, whose output is printed when they have ended."""

    def __init__(self, steps: list[Step]) -> None:
        self.path = WORK / f"lane-{steps[0].line.split()[0] if steps else 'none'}"
        self.thread = threading.Thread(target=self.perform, args=(steps,))
        self.thread.start()

    def perform(self, steps: list[Step]) -> None:
        with self.path.open("w") as out:
            for step in steps:
                perform(step, out)

    def join(self) -> None:
        self.thread.join()
        print(self.path.read_text(errors="replace"), end="", flush=True)


def in_lanes(*lanes: list[Step]) -> None:
    """Runs all lanes at once, the last one in the foreground."""
    background = [Lane(steps) for steps in lanes[:-1]]
    for step in lanes[-1]:
        perform(step)
    for lane in background:
        lane.join()


def quick() -> None:
    for step in FIRST:
        perform(step)
        finish_if_failed()
    lane = Lane([SHIPPED])
    for step in BUILD:
        perform(step)
        if any(outcome[2] for outcome in outcomes):
            break
    lane.join()
    finish_if_failed()
    in_lanes(*QUICK)


def base() -> str:
    """Returns the commit to compare with, or nothing."""
    if named := os.environ.get("BLOOMGATE_BASE"):
        return output("git", "rev-parse", "--verify", f"{named}^{{commit}}") or fail("BLOOMGATE_BASE is not a commit")
    main = output("git", "merge-base", "HEAD", "origin/main")
    if main and main != output("git", "rev-parse", "HEAD"):
        return main
    return output("git", "rev-list", "-1", "--before=24 hours ago", "HEAD")


def changed_files() -> list[str] | None:
    """Returns the files that differ from the base, or `None` without a base."""
    commit = base()
    names = output("git", "diff", "--name-only", commit) + "\n" + output("git", "ls-files", "--others", "--exclude-standard") if commit else ""
    files = names.split("\n") if commit else None
    print(f"compared with {commit or 'nothing'}: {len(list(filter(None, files or [])))} changed files", flush=True)
    return files


def change(files: list[str] | None) -> None:
    def called_for(steps: list[Step]) -> list[Step]:
        return [step for step in steps if files is None or any(re.search(step.files, file) for file in files)]

    in_lanes(called_for(CALLED_FOR), called_for(client_steps(45)), [NEWEST_SERVERS])


def deep() -> None:
    perform(SHIPPED)
    perform(BUILD[0])
    finish_if_failed()
    for step in [*CALLED_FOR, *client_steps(600), *DEEP]:
        perform(step)


def soak(text: str) -> None:
    found = re.fullmatch(r"([1-9]\d*)([hm])", text) or fail(f"`{text}` is not a time such as 8h or 30m")
    seconds = int(found[1]) * (3600 if found[2] == "h" else 60)
    # At effort 1, ordinary use takes 8 s, the reliability tests about a minute, the random commands half a minute.
    share, targets = seconds // 6, len(list((ROOT / "fuzz/fuzz_targets").glob("*.rs")))
    effort = {"BLOOMGATE_EFFORT": f"{share / 80:.1f}", "BLOOMGATE_SEED": os.environ.get("BLOOMGATE_SEED", str(int(time.time()) % 32768))}
    # The duration of the last steps cannot be set: a long run includes all of each, a short run a part of each.
    is_long = seconds >= 3600
    checked = "" if is_long else " loadchunk:: transfer:: lookup::"
    use = {"BLOOMGATE_EFFORT": str(seconds // 16 + 1)}
    for step in [SHIPPED, BUILD[0]]:
        perform(step)
    finish_if_failed()
    for step in [
        Step("cargo --test tool -- follow::soak::memory --nocapture", "Ordinary use", environment=use),
        Step(f"fuzz {share // targets + 1}", "Fuzzing"),
        *(Step(f"ignored {name}:: --nocapture", f"The server tests {name}", environment=effort) for name in ("reliability", "chaos", "fleet")),
        Step(f"judge {share // 10 + 45}", "The judge of the clients"),
        Step("cargo --test figures -- --nocapture", "Accuracy", environment={"BLOOMGATE_ACCURACY": "full"} if is_long else {}),
        Step("miri --all" if is_long else "miri", "The filter in miri"),
        Step(f"asan{checked}", "The module under AddressSanitizer"),
        Step(f"memcheck{checked}", "The module under memcheck"),
    ]:
        perform(step)
    headline("Figures")
    print(*figures, sep="\n")


def main(words: list[str]) -> None:
    if words in (["--help"], ["-h"]):
        print(USAGE)
    elif words == ["--list"]:
        for name, function in STEPS.items():
            print(f"{name:12} {' '.join((function.__doc__ or '').split())}")
    elif words[:1] == ["--only"]:
        if len(words) < 2 or words[1] not in STEPS:
            fail(f"--only needs a step: {', '.join(STEPS)}")
        STEPS[words[1]](*words[2:])
    else:
        WORK.mkdir(parents=True, exist_ok=True)
        if words[:1] == ["--soak"] and len(words) == 2:
            soak(words[1])
        elif words == ["--deep"]:
            deep()
        elif words in ([], ["--change"]):
            files = changed_files() if words else None
            quick()
            if words:
                change(files)
        else:
            fail(f"unknown option `{' '.join(words)}` (see scripts/test --help)")
        finish()


BEGAN = time.monotonic()
if __name__ == "__main__":
    # As other programs end if their reader does: `scripts/test --list | head`.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main(sys.argv[1:])
