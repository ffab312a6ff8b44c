"""The dupefilter: lets pass what the middleware has asked for, and asks for the rest."""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter

from .seen import Seen


class DupeFilter(BaseDupeFilter):
    """`DUPEFILTER_CLASS` for Scrapy's scheduler and for that of scrapy-redis. Without BatchMiddleware it works, too, with a
    round trip for each request, during which the crawl stands still."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> DupeFilter:
        return cls(Seen.of(crawler))

    @classmethod
    def from_spider(cls, spider: Spider) -> DupeFilter:
        """How scrapy-redis makes its dupefilter."""
        return cls.from_crawler(spider.crawler)

    def request_seen(self, request: Request) -> bool:
        return self._seen.is_seen(request)

    def log(self, request: Request, spider: Spider) -> None:
        self._seen.count_dropped()

    def clear(self) -> None:
        """Of scrapy-redis: with SCHEDULER_FLUSH_ON_START, and at the end without SCHEDULER_PERSIST."""
        self._seen.filter.clear()

    def close(self, reason: str = "") -> Any:
        self._seen.close()
