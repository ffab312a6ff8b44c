"""Puts each cache in front of a table with versions, and counts the reads that return an old one: scoreboard.py URL SECONDS CHECK
LANGUAGE=COMMAND... Each command is a program with caches. Without arguments it prints their names. With one of the names and a URL it
answers `read ID` with `done VERSION`, and `change ID` with `done 0`. Before it answers, it may ask for `load ID` or `commit ID`."""

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import redis

READERS, ROWS = 8, 20


def sleep_about(mean_ms):
    """Sleeps for a random time, from nothing to twice the mean."""
    time.sleep(random.uniform(0, mean_ms / 500))


class Table:
    """The database. A query takes as long as one of a server on another machine."""

    def __init__(self):
        self.versions, self.loads = [1] * ROWS, 0

    def load(self, id):
        time.sleep(0.001)
        self.loads += 1
        version = self.versions[id]
        sleep_about(4)
        return version

    def commit(self, id):
        time.sleep(0.001)
        self.versions[id] += 1
        return self.versions[id]


class Driver:
    """A process with its own client and cache, like a worker of a service."""

    def __init__(self, command, table):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.table = table

    def send(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def call(self, word, id):
        """Calls the cache, lets it load and commit, and returns its answer."""
        self.send(word, id)
        while True:
            word, number = self.process.stdout.readline().split()
            if word == "done":
                return int(number)
            self.send(getattr(self.table, word)(int(number)))


def measure(command, url, seconds):
    """Returns the numbers of reads, loads and old reads of a cache."""
    with redis.Redis.from_url(url) as client:
        client.flushall()
        client.execute_command("BF.RESERVE", "rows", 0.01, 1000, "HASH", "siphash")
        client.execute_command("BF.MADD", "rows", *range(ROWS))
    table, finished = Table(), [0] * ROWS
    drivers = [Driver(command, table) for _ in range(READERS + 1)]
    for driver in drivers:
        driver.call("read", 0)  # waits for its start
    table.loads, end = 0, time.monotonic() + seconds

    def read(driver):
        reads = old = 0
        while time.monotonic() < end:
            sleep_about(2)
            id = random.randrange(ROWS)
            expected = finished[id]
            old += driver.call("read", id) < expected
            reads += 1
        return reads, old

    def write(driver):
        while time.monotonic() < end:
            sleep_about(5)
            id = random.randrange(ROWS)
            driver.call("change", id)
            # The change is committed, and the cache knows: a read that begins from now on must see this version.
            finished[id] = table.versions[id]

    with ThreadPoolExecutor(READERS + 1) as threads:
        writer = threads.submit(write, drivers[0])
        reads, old = map(sum, zip(*threads.map(read, drivers[1:])))
        writer.result()
    for driver in drivers:
        driver.process.communicate()
    return reads, table.loads, old


def main(url, seconds, check, *languages):
    wrong, others = [], 0
    print(f"{'':<8}{'cache':<40}{'reads':>9}{'loads':>8}{'old reads':>11}")
    for language, command in (option.split("=", 1) for option in languages):
        names = subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout.splitlines()
        for name in sorted(names, key=lambda name: name.startswith("bloomgate")):
            reads, loads, old = measure([*command.split(), name, url], url, float(seconds))
            print(f"{language:<8}{name:<40}{reads:>9,}{loads:>8,}{old:>11,}{old / max(reads, 1):>7.1%}", flush=True)
            is_guard = name.startswith("bloomgate")
            others += 0 if is_guard else old
            if reads < 100 or not loads or (is_guard and old):
                wrong.append(f"{name}: {reads} reads, {loads} loads, {old} old reads")
    # A run without an old read measures nothing.
    if check and (wrong or not others):
        sys.exit("\n".join(wrong) or "no cache returned an old row")


main(*sys.argv[1:])
