"""The dupefilter: passes requests that the middleware has looked up, and looks up the others."""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter

from .seen import Seen


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
