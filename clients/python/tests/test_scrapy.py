"""The Scrapy component fetches the same pages as Scrapy's own filter, equally often, even if the server fails."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from cluster import Start
from server import PATIENCE, free_port
from site_of_tests import Site

from bloomgate import Filter
from bloomgate.scrapy import seen

ADDON = {"ADDONS": {"bloomgate.scrapy.Addon": 500}, "BLOOMGATE_RATE": 1e-9}
SELECT = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}
SCRAPY_REDIS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_IDLE_BEFORE_CLOSE": 1,
    "SCHEDULER_PERSIST": True,
}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def run(start_urls: list[str], **settings: Any) -> tuple[dict[str, Any], str]:
    """Returns the statistics of a crawl, and its log."""
    command = [sys.executable, str(Path(__file__).with_name("crawl.py")), json.dumps(start_urls), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    stats: dict[str, Any] = json.loads(lines[-1])
    return stats, done.stderr


@pytest.fixture(scope="module")
def exact() -> dict[str, int]:
    """The pages that Scrapy's own filter fetches, and how often."""
    site = Site()
    run([site.url + "/"])
    site.close()
    return dict(site.fetched)


@pytest.mark.parametrize(
    "settings",
    [
        ADDON,
        {**ADDON, **SELECT, "BLOOMGATE_BATCH": 3, "BLOOMGATE_WORDS": {"window": 3600, "hash": "siphash"}},
        {"DUPEFILTER_CLASS": "bloomgate.scrapy.DupeFilter"},
        {"SPIDER_MIDDLEWARES": {"bloomgate.scrapy.BatchMiddleware": 10}},
        {**ADDON, **SCRAPY_REDIS},
    ],
    ids=["asyncio", "select-and-small-batches", "dupefilter-alone", "middleware-alone", "scrapy-redis"],
)
def test_the_same_pages_as_often(site: Site, port: int, exact: dict[str, int], settings: Any) -> None:
    url = f"redis://127.0.0.1:{port}"
    stats, log = run([site.url + "/"], BLOOMGATE_URL=url, REDIS_URL=url, **settings)
    assert dict(site.fetched) == exact, log
    assert exact["/unfiltered"] == 2 and exact["/broken"] == 2 and exact["/self"] == 1 and exact["/"] == 2
    assert "/before-it-raised" in exact and sum(path.startswith("/page/") for path in exact) == 120
    assert stats["finish_reason"] == "finished"
    assert stats["item_scraped_count"] == stats["response_received_count"]
    if "ADDONS" in settings:
        assert stats["bloomgate/asked_alone"] < 10 < 1000 < stats["bloomgate/asked"], "only what was redirected"
        assert stats["dupefilter/filtered"] > 500
    with redis.Redis(port=port) as client:
        assert 120 < Filter(client, "bloomgate:crawl").card() <= len(exact) + 1


def test_a_second_crawl_continues(site: Site, port: int) -> None:
    settings = {**ADDON, "BLOOMGATE_URL": f"redis://127.0.0.1:{port}", "BLOOMGATE_KEY": "seen by %(spider)s"}
    start = ["!" + site.url + "/", "!" + site.url + "/", "!" + site.url + "/page/17"]
    run(start, **settings)
    assert site.fetched["/"] == 1 and site.fetched["/page/17"] == 1
    before = site.fetched.total()
    stats, _ = run(start, **settings)
    assert site.fetched.total() == before and stats["dupefilter/filtered"] == 3
    run(start, **settings, BLOOMGATE_CLEAR=True)
    assert site.fetched["/"] == 2 and site.fetched["/page/17"] == 2


@pytest.mark.parametrize("reactor", [{}, SELECT], ids=["asyncio", "select"])
def test_a_server_that_comes_back(site: Site, start: Start, exact: dict[str, int], reactor: Any) -> None:
    server = start("appendonly yes", "appendfsync always")

    killed = threading.Event()

    def kill() -> None:
        process: Any = server.process
        process.kill()
        process.wait()
        killed.set()

    site.midway = kill
    url = f"redis://127.0.0.1:{server.port}"
    with ThreadPoolExecutor() as threads:
        crawl = threads.submit(run, [site.url + "/"], BLOOMGATE_URL=url, **ADDON, **reactor)
        assert killed.wait(PATIENCE)
        time.sleep(1)
        # Started in this thread, because the server ends with the thread that started it.
        server.start()
        stats, log = crawl.result()
    assert set(site.fetched) == set(exact), log
    assert stats["finish_reason"] == "finished", log
    assert sum(site.fetched.values()) < 3 * sum(exact.values()), "some are fetched again, none for ever"


async def test_a_reply_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch may have been added. One request per fingerprint counts as new, not both requests of the page."""
    outcomes: list[Any] = [redis.ConnectionError("Connection closed by server."), [False] * 4]

    async def add_once(_: Any) -> list[bool]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(_: float) -> None:
        return None

    monkeypatch.setattr(seen, "sleep", sleep)
    crawl = object.__new__(seen.Seen)
    monkeypatch.setattr(crawl, "options", SimpleNamespace(patience=PATIENCE), raising=False)
    monkeypatch.setattr(crawl, "_stats", SimpleNamespace(inc_value=lambda _: None), raising=False)
    monkeypatch.setattr(crawl, "_add_once", add_once)
    assert await crawl._add([b"a", b"b", b"a", b"c"]) == [True, True, False, True]


def test_a_server_that_stays_unreachable(site: Site, start: Start) -> None:
    server = start()

    def stop() -> None:
        with server.client() as client:
            client.config_set("requirepass", "secret")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    site.midway = stop
    settings = {**ADDON, "BLOOMGATE_URL": f"redis://127.0.0.1:{server.port}", "BLOOMGATE_PATIENCE": 1}
    stats, log = run([site.url + "/"], **settings)
    assert stats["finish_reason"] in ("bloomgate_unavailable", "bloomgate_error"), log
    assert site.fetched.total() < 120


def test_a_filter_that_is_lost(site: Site, port: int) -> None:
    def lose() -> None:
        with redis.Redis(port=port) as client:
            client.flushall()

    site.midway = lose
    stats, log = run([site.url + "/"], BLOOMGATE_URL=f"redis://127.0.0.1:{port}", **ADDON)
    assert stats["finish_reason"] == "bloomgate_error", log
    assert "no such filter" in log


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"BLOOMGATE_URL": f"redis://127.0.0.1:{free_port()}"}, "Connection refused"),
        ({}, "BLOOMGATE_URL says where"),
        ({"BLOOMGATE_WORDS": {"colour": 1}}, "there is no option"),
        ({"BLOOMGATE_BATCH": 0}, "BLOOMGATE_BATCH is 1 or more"),
    ],
)
def test_a_crawl_that_cannot_begin(site: Site, port: int, settings: Any, error: str) -> None:
    if settings and "BLOOMGATE_URL" not in settings:
        settings["BLOOMGATE_URL"] = f"redis://127.0.0.1:{port}"
    _, log = run([site.url + "/"], **{**ADDON, **settings})
    assert error in log and site.fetched.total() == 0
