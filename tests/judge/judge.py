"""Runs drivers of all clients at once on the same rows, injects faults, and judges every answer. README.md describes it.

judge.py [--mutation NAME] [--cluster] --seconds N NAME=COMMAND..."""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time

from servers import Cluster, Pair, preload_clock
from table import Ids, Table

CALLERS = 16
"""Calls of each driver at a time."""

PATIENCE = 45
"""Seconds after which a call counts as hanging."""

TIMES = {"ttl": 2, "absent_ttl": 1, "lease": 0.3, "wait": 0.3, "patience": 20, "fail_safe": 5, "soft_timeout": 0.2}
"""The options of the guards, in seconds."""

READ_ERRORS = ["the judge fails this call", "LoadFailed", "last load failed", "ancel", "bort"]
"""Parts of the errors that reads may raise: a failed load, a back-off, a cancelled call. None comes from the server."""

PAUSES = [0.3, 1.5, 4.5]
"""How long an event loop is busy or a process stops, in seconds."""

NEAR = {"seconds": 30, "age": PAUSES[-1] + 1.5}
"""How long near caches keep values, and how old their answers may be. Reports arrive within a moment, but a process that was paused may
answer calls before it reads the reports of that time."""


class Call:
    def __init__(self, id=None):
        self.id, self.version = id, None
        self.ended = asyncio.get_running_loop().create_future()


class Driver:
    """One program with one client, and its observed behaviour."""

    def __init__(self, judge, name, command):
        self.judge, self.name, self.command = judge, name, shlex.split(command)
        self.age, self.process = NEAR["age"] if "near" in name else 0, None
        self.numbers, self.calls, self.counts = itertools.count(1), {}, collections.Counter()

    async def start(self, address):
        near = NEAR["seconds"] if self.age else None
        guard = {**TIMES, "replicas": self.judge.servers.durable_replicas}
        settings = {"address": address, "cluster": self.judge.is_cluster, "near": near, "guard": guard}
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        pipe = asyncio.subprocess.PIPE
        # A driver may consist of several processes: signals go to its group.
        self.process = await asyncio.create_subprocess_exec(
            *self.command, json.dumps(settings), stdin=pipe, stdout=pipe, env=environment, limit=1 << 26, start_new_session=True
        )
        assert await self.process.stdout.readline(), f"{self.name} did not start"
        self.receiver = asyncio.create_task(self.receive())

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def tell(self, *words):
        self.process.stdin.write(json.dumps(words).encode() + b"\n")

    async def receive(self):
        while line := await self.process.stdout.readline():
            word, number, value = json.loads(line)
            if word == "load":
                asyncio.create_task(self.load(number, value))
            elif word == "commit":
                asyncio.create_task(self.commit(number, self.calls[value]))
            else:
                self.calls.pop(number).ended.set_result((word, value))
        for call in self.calls.values():
            if not call.ended.done():
                call.ended.set_result(("ended", None))

    async def load(self, number, ids):
        """Answers a load with the rows as they are now. The answer may take longer than a lease, or be an error."""
        self.counts["loads"] += 1
        self.counts["invented loads"] += sum(id in self.judge.ids.invented for id in ids)
        rows = self.judge.table.load(ids)
        if random.random() < 0.3:
            await asyncio.sleep(random.choice([0.001, 0.01, 0.02, 0.02, 0.02, 0.5]))
        if random.random() < 0.02:
            self.tell("fail", number, "the judge fails this call")
        else:
            self.tell("row", number, rows)

    async def commit(self, number, call):
        """Commits a change, or rolls it back."""
        await asyncio.sleep(random.random() * 0.01)
        if random.random() < 0.05:
            return self.tell("fail", number, "the judge fails this call")
        if self.judge.mutation != "early":
            call.version = self.judge.table.commit(call.id, random.random() < 0.1)
            await asyncio.sleep(random.choice([0, 0, 0.005, 0.3]))
        self.tell("row", number, {})

    async def call(self, word, value, id=None):
        number, call = next(self.numbers), Call(id)
        self.calls[number] = call
        self.tell(word, number, value)
        if random.random() < 0.02:
            asyncio.get_running_loop().call_later(random.random() * 0.05, self.tell, "cancel", number, None)
        try:
            answer, found = await asyncio.wait_for(call.ended, PATIENCE)
        except asyncio.TimeoutError:
            answer, found = "hangs", None
        if answer in ("hangs", "ended"):
            self.judge.wrong(self, f"a call to {word} {value} {answer}")
        elif answer == "error":
            self.counts["errors"] += 1
            if word == "read" and not any(text in found for text in READ_ERRORS):
                self.judge.wrong(self, f"a read fails with {found[:200]}")
        return call, answer, found

    async def read(self):
        table, ids = self.judge.table, [self.judge.ids.one() for _ in range(random.choice([1, 1, 1, 2, 20]))]
        oldest = {id: table.oldest(id, self.age) for id in ids}
        _, answer, rows = await self.call("read", list(oldest))
        if answer != "read":
            return
        for id, version in oldest.items():
            self.counts["reads"] += 1
            self.counts["invented"] += id in self.judge.ids.invented
            if reason := table.judge(id, version, (rows or {}).get(id)):
                self.judge.wrong(self, reason)

    async def write(self):
        table, id = self.judge.table, self.judge.ids.written()
        if self.judge.mutation == "unannounced":
            return table.confirm(id, table.commit(id))
        call, answer, _ = await self.call("write", [id], id)
        if answer == "write":
            self.counts["writes"] += 1
            table.confirm(id, table.commit(id) if self.judge.mutation == "early" else call.version)

    async def calls_for_ever(self):
        while not self.judge.is_over:
            await asyncio.sleep(random.random() * 0.04)
            await (self.write() if random.random() < 0.05 else self.read())


class Judge:
    def __init__(self, options, drivers):
        self.mutation, self.is_cluster, self.seconds = options.mutation, options.cluster, options.seconds
        self.chosen = options.fault
        self.ids, self.is_over, self.faults = Ids(), False, collections.Counter()
        self.table = Table(self.ids.all)
        for id in self.ids.existing:
            self.table.commit(id)
            self.table.confirm(id, 1)
        self.drivers = [Driver(self, *driver.split("=", 1)) for driver in drivers]

    def wrong(self, driver, reason):
        driver.counts["wrong"] += 1
        if driver.counts["wrong"] <= 5 and not self.mutation:
            at = time.monotonic() - self.begun
            print(f"wrong: {driver.name}, {at:.1f} s, {self.last_fault}: {reason}", flush=True)

    def writes(self):
        return [call.ended.done for driver in self.drivers for call in list(driver.calls.values()) if call.id is not None]

    async def run(self, has_clock):
        self.servers = await asyncio.to_thread(Cluster if self.is_cluster else Pair, self.table, self.ids, self.writes)
        try:
            await asyncio.to_thread(self.servers.fill)
            await asyncio.gather(*(driver.start(self.servers.address) for driver in self.drivers))
            self.begun, self.last_fault = time.monotonic(), "before the first fault"
            callers = [asyncio.create_task(driver.calls_for_ever()) for driver in self.drivers for _ in range(CALLERS)]
            await self.let_faults_happen(has_clock)
            if not self.mutation:
                await self.quiet()
            self.is_over = True
            await asyncio.gather(*callers)
        finally:
            self.is_over = True
            for driver in self.drivers:
                if driver.process:
                    driver.signal(signal.SIGKILL)
            await asyncio.to_thread(self.servers.end)
        return self.report()

    async def let_faults_happen(self, has_clock):
        """Injects every fault once in random order, and repeats until the time is up. A mutated run needs no faults."""
        names = [name for name in [*self.servers.faults, "busy_fault", "pause_fault"] if has_clock or name != "clock_fault"]
        names = [name for name in names if not self.chosen or name.removesuffix("_fault") in self.chosen]
        left = []
        while time.monotonic() - self.begun < self.seconds:
            await asyncio.sleep(random.random() * 2)
            if self.mutation and all(driver.counts["wrong"] for driver in self.drivers):
                break
            if self.mutation:
                continue
            left = left or random.sample(names, len(names))
            fault = left.pop()
            self.last_fault = fault.replace("_", " ")
            self.faults[self.last_fault.removesuffix(" fault")] += 1
            if fault in ("busy_fault", "pause_fault"):
                await getattr(self, fault)()
            else:
                await asyncio.to_thread(getattr(self.servers, fault))

    async def busy_fault(self):
        """The event loops are busy."""
        for driver in self.drivers:
            if "asyncio" in driver.name or "TypeScript" in driver.name:
                driver.tell("busy", 0, random.choice(PAUSES))
        await asyncio.sleep(PAUSES[-1])

    async def pause_fault(self):
        """All processes of a driver stop, as in a pause of its garbage collector or of its machine."""
        driver = random.choice(self.drivers)
        driver.signal(signal.SIGSTOP)
        await asyncio.sleep(random.choice(PAUSES))
        driver.signal(signal.SIGCONT)

    async def quiet(self):
        """Once the faults are over, every driver has to return to the server: then few invented ids reach the table."""
        self.last_fault = "after the last fault"
        await asyncio.sleep(8)
        before = {driver: driver.counts.copy() for driver in self.drivers}
        await asyncio.sleep(4)
        for driver, counts in before.items():
            invented, loads = (driver.counts[name] - counts[name] for name in ("invented", "invented loads"))
            if loads * 2 >= invented:
                self.wrong(driver, f"{loads} loads in {invented} reads of invented ids: it has left the server")
            if driver.counts["writes"] == counts["writes"]:
                self.wrong(driver, "no change succeeds any more")

    def report(self):
        names = ["reads", "loads", "writes", "errors", "wrong"]
        print(f"\n{'':24}" + "".join(f"{name:>10}" for name in names))
        for driver in self.drivers:
            print(f"{driver.name:24}" + "".join(f"{driver.counts[name]:>10}" for name in names))
        total = sum((driver.counts for driver in self.drivers), collections.Counter())
        print(f"{'all':24}" + "".join(f"{total[name]:>10}" for name in names))
        print("faults:", ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items())) or "none", flush=True)
        return [driver.name for driver in self.drivers if driver.counts["wrong"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--mutation", choices=["unannounced", "early"])
    parser.add_argument("--fault", action="append", help="only faults of this name, which may be repeated")
    parser.add_argument("drivers", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        has_clock = preload_clock(folder)
        judge = Judge(options, options.drivers)
        guilty = asyncio.run(judge.run(has_clock))
    if options.mutation:
        blind = sorted({driver.name for driver in judge.drivers} - set(guilty))
        print(f"pass {len(guilty)}\nfail {len(blind)}")
        return f"the mutation {options.mutation} was not found in: {', '.join(blind)}" if blind else 0
    print(f"pass {len(judge.drivers) - len(guilty)}\nfail {len(guilty)}")
    return f"wrong answers: {', '.join(guilty)}" if guilty else 0


if __name__ == "__main__":
    sys.exit(main())
