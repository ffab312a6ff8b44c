"""The spider middleware: looks up all links of a page by one command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response

from .seen import Seen


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
