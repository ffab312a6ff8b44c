"""The parts of Scrapy's component: the spider middleware looks up all links of a page by one command, and the dupefilter
passes the requests that it has looked up. The add-on enables both by one setting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.settings import BaseSettings

from .seen import Seen

ORDER = 10
"""The position of the middleware: nearest to the engine."""


class DupeFilter(BaseDupeFilter):
    """`DUPEFILTER_CLASS` for the schedulers of Scrapy and of scrapy-redis. Without BatchMiddleware, each request costs a round
    trip that blocks the crawl."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> DupeFilter:
        return cls(Seen.of(crawler))

    @classmethod
    def from_spider(cls, spider: Spider) -> DupeFilter:
        """Called by scrapy-redis to create its dupefilter."""
        return cls.from_crawler(spider.crawler)

    def request_seen(self, request: Request) -> bool:
        return self._seen.is_seen(request)

    def log(self, request: Request, spider: Spider) -> None:
        self._seen.count_dropped()

    def clear(self) -> None:
        """Called by scrapy-redis with SCHEDULER_FLUSH_ON_START, and at the end without SCHEDULER_PERSIST."""
        self._seen.filter.clear()

    def close(self, reason: str = "") -> Any:
        self._seen.close()


class BatchMiddleware:
    """Collects the requests of one response, looks all of them up together and drops those that were seen. Items, and requests
    with `dont_filter`, pass at once. It must be nearest to the engine (order 10), after the spider middlewares that drop
    requests, because dropped requests must not count as seen."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> BatchMiddleware:
        middleware = cls(Seen.of(crawler))
        crawler.signals.connect(middleware.spider_closed, signal=signals.spider_closed)
        return middleware

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Looks up start requests one by one, because they may be generated slowly."""
        async for output in start:
            if not is_to_filter(output) or await self._seen.keep_new([output]):
                yield output

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        collected: list[Request] = []
        failure: Exception | None = None
        try:
            async for output in result:
                if not is_to_filter(output):
                    yield output
                    continue
                collected.append(output)
                if len(collected) >= self._seen.options.batch:
                    batch, collected = collected, []
                    for request in await self._seen.keep_new(batch):
                        yield request
        except Exception as error:
            # Requests that a callback yielded before it failed are scheduled, as Scrapy does.
            failure = error
        for request in await self._seen.keep_new(collected):
            yield request
        if failure is not None:
            raise failure

    async def spider_closed(self) -> None:
        await self._seen.aclose()


def is_to_filter(output: Any) -> bool:
    return isinstance(output, Request) and not output.dont_filter


class Addon:
    """`ADDONS = {"bloomgate.scrapy.Addon": 500}` enables the dupefilter and the middleware."""

    def update_settings(self, settings: BaseSettings) -> None:
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        settings["SPIDER_MIDDLEWARES"][BatchMiddleware] = ORDER
