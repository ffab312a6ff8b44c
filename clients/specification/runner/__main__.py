"""Runs the cases of clients/specification: on a scripted server in RESP2 and RESP3, on a real server with the module, and on a
cluster of three. An adapter, a program in the client's language, makes the calls; README.md, in the folder above, specifies
its messages."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adapter import Adapter, AdapterEnded, AdapterError
from cases import SERVERS, SpecificationError, check, needs, option_cases, read_cases
from replay import Replay, check_page
from scripted import ScriptedServer
from servers import Server, running, set_up
from steps import Failed, Run

REFUSED = Path(__file__).with_name("refused.json")
TIMED_JOBS = 4
"""The number of cases with a time limit or a pause that run at the same time."""


def say(text: str) -> None:
    """Prints a line as a whole, because the cases run in threads."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Report:
    """Prints and counts the results of runs."""

    def __init__(self, title: str, is_verbose: bool) -> None:
        self.title = title
        self.is_verbose = is_verbose
        self.passed = self.failed = self.skipped = 0
        self.reasons: set[tuple[str, str]] = set()
        self.ends: set[str] = set()

    def run(self, name: str, work: Callable[[], None]) -> None:
        begun = time.monotonic()
        try:
            work()
        except AdapterEnded as error:
            # Every later run would fail in the same way.
            self.fail(name, str(error))
            self.ends.add(str(error))
        except (Failed, AdapterError, SpecificationError) as error:
            self.fail(name, str(error))
        except Exception:
            self.fail(name, traceback.format_exc())
        else:
            self.passed += 1
            if self.is_verbose:
                say(f"passed: {name} ({time.monotonic() - begun:.1f} s)")

    def fail(self, name: str, why: str) -> None:
        self.failed += 1
        if why in self.ends:
            return
        say(f"\nFAILED: {self.title}: {name}\n  {why}\n")

    def skip(self, case: str, why: str) -> None:
        self.skipped += 1
        if (case, why) not in self.reasons:
            self.reasons.add((case, why))
            say(f"skipped: {case}: {self.title}: {why}")


def obstacle(case: dict[str, Any], adapter: Adapter) -> str | None:
    """Returns why an adapter cannot run a case, or None."""
    missing = needs(case) - adapter.abilities
    return f"no {', '.join(sorted(missing))}" if missing else adapter.skips.get(case["name"])


def on_a_scripted_server(case: dict[str, Any], adapter: Adapter, protocol: int) -> None:
    server = ScriptedServer()
    try:
        perform(Run(case, adapter, {"ports": [server.port], "protocol": protocol}, server))
    finally:
        server.close()


def on_real_servers(case: dict[str, Any], adapter: Adapter, servers: list[Server]) -> None:
    set_up(servers, case.get("setup", []))
    protocol = 3 if len(servers) == 1 and "resp3" in adapter.abilities else 2
    perform(Run(case, adapter, {"ports": [server.port for server in servers], "protocol": protocol}, None))


def perform(run: Run) -> None:
    try:
        run.run()
    except BaseException:
        run.abandon()
        raise
    finally:
        run.close()


def refuse(case: dict[str, Any], adapter: Adapter) -> None:
    """Runs a case that must fail with its stated message."""
    wanted = case.pop("fails")
    try:
        check(case["name"], case)
        on_a_scripted_server(case, adapter, 2)
    except (Failed, SpecificationError) as error:
        if wanted not in str(error):
            raise Failed(f"it fails with a text other than `{wanted}`: {error}") from error
    else:
        raise Failed(f"it does not fail with `{wanted}`")


def protocols(case: dict[str, Any], adapter: Adapter) -> list[int]:
    """Returns the protocols of a case, by default all protocols of the client."""
    chosen = [protocol for protocol in (2, 3) if f"resp{protocol}" in case.get("needs", [])]
    return chosen or [protocol for protocol in (2, 3) if f"resp{protocol}" in adapter.abilities]


def runs(cases: list[dict[str, Any]], adapter: Adapter, report: Report, is_timed: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """Returns the runs on scripted servers, of cases that measure time or of the others."""
    for case in (case for case in cases if "scripted" in case["servers"]):
        if is_timed != ("timeout_ms" in case.get("client", {}) or any("pause" in step for step in case["steps"])):
            continue
        for protocol in protocols(case, adapter):
            if why := obstacle(case, adapter):
                report.skip(case["name"], why)
            else:
                name = f"{case['name']}, scripted, RESP{protocol}"
                yield name, lambda case=case, protocol=protocol: on_a_scripted_server(case, adapter, protocol)


def run_real(kind: str, cases: list[dict[str, Any]], adapter: Adapter, report: Report) -> None:
    """Runs the cases of a kind of real server one by one."""
    with running(kind) as servers:
        for case in (case for case in cases if kind in case["servers"]):
            if why := obstacle(case, adapter):
                report.skip(case["name"], why)
            else:
                report.run(f"{case['name']}, {kind}", lambda case=case: on_real_servers(case, adapter, servers))


def run_all(cases: list[dict[str, Any]], adapter: Adapter, report: Report, kinds: list[str], jobs: int) -> None:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_real, kind, cases, adapter, report) for kind in kinds if kind != "scripted"]
        if "scripted" in kinds:
            waiting += [pool.submit(report.run, *run) for run in runs(cases, adapter, report, is_timed=False)]
        for one in waiting:
            if error := one.exception():
                report.fail("the servers", str(error))
    if "scripted" in kinds:
        # With more runs at a time, the client would not answer in time.
        with concurrent.futures.ThreadPoolExecutor(min(jobs, TIMED_JOBS)) as pool:
            for run in runs(cases, adapter, report, is_timed=True):
                pool.submit(report.run, *run)
        for case in json.loads(REFUSED.read_text())["cases"]:
            report.run(f"refused: {case['name']}", lambda case=case: refuse(case, adapter))


def check_cases(cases: list[dict[str, Any]], report: Report) -> None:
    """Checks the cases themselves, without a client."""
    report.run("the page names each case", lambda: check_page(cases))
    with running("real") as [server]:
        for case in (case for case in cases if {"scripted", "real"} <= set(case["servers"])):
            report.run(f"{case['name']}, replayed", Replay(case, server).run)


def main() -> int:
    parser = argparse.ArgumentParser(prog="runner", description=__doc__)
    parser.add_argument("--title", default="the cases", help="what the report calls the client")
    parser.add_argument("--on", choices=SERVERS, action="append", help="a kind of server; by default all of them")
    parser.add_argument("--case", default="", help="runs only the cases whose names contain this text")
    parser.add_argument("--jobs", type=int, default=8, help="how many cases run at a time; most of their time is waiting")
    parser.add_argument("--verbose", action="store_true", help="also prints a line for each run that passed")
    parser.add_argument("adapter", nargs="*", help="the adapter's command, after --; without one, only the cases are checked")
    given = parser.parse_args()
    begun = time.monotonic()
    report = Report(given.title, given.verbose)
    if given.adapter:
        adapter = Adapter(given.adapter)
        cases = [case for case in read_cases() + option_cases() if given.case in case["name"]]
        run_all(cases, adapter, report, given.on or list(SERVERS), given.jobs)
        report.run("the adapter", adapter.close)
    else:
        cases = [case for case in read_cases() if given.case in case["name"]]
        check_cases(cases, report)
    say(f"{given.title}: {len(cases)} cases in {time.monotonic() - begun:.1f} s")
    say(f"pass {report.passed}\nfail {report.failed}\nskipped {report.skipped}")
    return 1 if report.failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
