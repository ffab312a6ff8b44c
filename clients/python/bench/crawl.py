"""Compares the duration of a crawl with the Scrapy component and with Scrapy's exact filter in memory. The crawls alternate,
each in a separate process, and the medians are compared. `cpu` is CPU time, including the server's.

    bench/crawl.py --docs FOLDER --redis-server PROGRAM --module LIBRARY [--rounds 5] [--prefixes /alloc/,/book/]

FOLDER is a tree of HTML, for example the output of `rustup doc --path`, served by a separate process."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

HERE = Path(__file__).parent
ADDON = {"ADDONS": {"bloomgate.scrapy.Addon": 500}, "BLOOMGATE_CLEAR": True}
SELECT = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}

# The parts of the documentation to crawl: some 1600 of its 48,000 pages, with 80,000 links.
TREES = "/alloc/,/error_codes/,/book/,/reference/,/rust-by-example/,/nomicon/,/cargo/,/rustc/,/embedded-book/,/edition-guide/"

WAYS: dict[str, dict[str, Any]] = {
    "exact, in memory": {},
    "bloomgate": ADDON,
    "bloomgate, a command a link": {"DUPEFILTER_CLASS": "bloomgate.scrapy.DupeFilter", "BLOOMGATE_CLEAR": True},
    "scrapy-redis, a command a link": {"DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"},
    "exact, select reactor": SELECT,
    "bloomgate, select reactor (threads)": {**ADDON, **SELECT},
}


def crawl(start: str, prefixes: str, port: int, way: str) -> dict[str, Any]:
    url = f"redis://127.0.0.1:{port}"
    settings = {**WAYS[way], "BLOOMGATE_URL": url, "REDIS_URL": url}
    command = [sys.executable, str(HERE / "crawl_once.py"), start, prefixes, json.dumps(settings)]
    result: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )
    return result


def server_cpu(client: redis.Redis) -> float:
    """Returns the server's CPU time in seconds."""
    used: Any = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--docs", required=True)
    words.add_argument("--redis-server", required=True)
    words.add_argument("--module", required=True)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--prefixes", default=TREES)
    words.add_argument("--start", default="/index.html")
    words.add_argument("--port", type=int, default=22_399)
    words.add_argument("--ways", default=",".join(str(number) for number in range(len(WAYS))))
    chosen = words.parse_args()
    ways = [list(WAYS)[int(number)] for number in chosen.ways.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [chosen.redis_server, "--port", str(chosen.port), "--save", "", "--dir", folder, "--loadmodule", chosen.module],
            stdout=subprocess.DEVNULL,
        )
        pages = subprocess.Popen(
            [sys.executable, str(HERE / "static_server.py"), chosen.docs], stdout=subprocess.PIPE, text=True
        )
        try:
            run(chosen, ways, pages)
        finally:
            for process in (server, pages):
                process.kill()
                process.wait()


def run(chosen: argparse.Namespace, ways: list[str], pages: subprocess.Popen[str]) -> None:
    assert pages.stdout is not None
    start = f"http://127.0.0.1:{int(pages.stdout.readline())}{chosen.start}"
    time.sleep(1)
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    client = redis.Redis(port=chosen.port)
    crawl(start, chosen.prefixes, chosen.port, ways[0])  # fills the caches
    for number in range(chosen.rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            client.flushall()
            before = server_cpu(client)
            result = crawl(start, chosen.prefixes, chosen.port, way)
            result["cpu"] += server_cpu(client) - before
            found[way].append(result)
            print(f"{number + 1}  {way:36} {json.dumps(result)}", file=sys.stderr, flush=True)
    first = statistics.median(result["seconds"] for result in found[ways[0]])
    first_cpu = statistics.median(result["cpu"] for result in found[ways[0]])
    print(f"{'':36} {'seconds':>8} {'ratio':>6} {'cpu':>7} {'ratio':>6} {'pages':>7} {'links':>9}  same pages")
    same = {found[ways[0]][0]["digest"]}
    for way in ways:
        seconds = statistics.median(result["seconds"] for result in found[way])
        cpu = statistics.median(result["cpu"] for result in found[way])
        last = found[way][-1]
        equal = "yes" if {result["digest"] for result in found[way]} == same else "no"
        print(
            f"{way:36} {seconds:8.2f} {seconds / first:6.3f} {cpu:7.2f} {cpu / first_cpu:6.3f}"
            f" {last['pages']:7,} {last['links']:9,}  {equal}"
        )


if __name__ == "__main__":
    main()
