"""The filter of seen requests, which the middleware and the dupefilter of one crawler share, and its settings.

Calls of redis-py block, and Scrapy's reactor must not be blocked for long. With asyncio's reactor the middleware awaits
`redis.asyncio`, with other reactors a thread. Only the dupefilter blocks, because its caller needs the answer at once."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import redis
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from ..asyncio import Filter as AsyncFilter
from ..connection import aconnect, connect
from ..creation import CreationOptions
from ..errors import BloomgateError
from ..filter import Filter

logger = logging.getLogger(__name__)

MARK = "_bloomgate"
"""The key in a request's meta under which the looked-up fingerprint is stored, until the dupefilter passes the request."""

TIMEOUT_S = 10.0
"""How long a lookup may take. After a time-out, its items count as new."""

PAUSE_S = 0.5
"""The pause between two attempts to reach the server."""

_crawls: WeakKeyDictionary[Crawler, Seen] = WeakKeyDictionary()


@dataclass(frozen=True)
class Options:
    """The settings `BLOOMGATE_URL` and so on. `key` may contain `%(spider)s`. `rate` is the share of new pages that may be
    reported as seen, `capacity` the number of pages before the filter grows, `words` additional options of BF.RESERVE, `batch`
    the most links that are looked up together, `patience` the seconds for which a crawl waits for the server before it closes
    the spider. With `clear` a crawl starts with an empty filter."""

    url: str
    key: str = "bloomgate:%(spider)s"
    rate: float = 0.001
    capacity: int = 1_000_000
    words: CreationOptions | None = None
    batch: int = 500
    patience: float = 60.0
    clear: bool = False

    @classmethod
    def of(cls, settings: BaseSettings, spider: str) -> Options:
        url = settings.get("BLOOMGATE_URL") or settings.get("REDIS_URL")
        if not url:
            raise ValueError("BLOOMGATE_URL says where the server is: redis://localhost:6379")
        batch = settings.getint("BLOOMGATE_BATCH", cls.batch)
        if batch < 1:
            raise ValueError(f"BLOOMGATE_BATCH is 1 or more, not {batch}")
        return cls(
            url=str(url),
            key=str(settings.get("BLOOMGATE_KEY", cls.key)) % {"spider": spider},
            rate=settings.getfloat("BLOOMGATE_RATE", cls.rate),
            capacity=settings.getint("BLOOMGATE_CAPACITY", cls.capacity),
            words=cast(CreationOptions, settings.getdict("BLOOMGATE_WORDS")),
            batch=batch,
            patience=settings.getfloat("BLOOMGATE_PATIENCE", cls.patience),
            clear=settings.getbool("BLOOMGATE_CLEAR", cls.clear),
        )


class Seen:
    """The filter of one crawl. Raises redis-py's error if the server is unreachable when the crawl begins, and ModuleMissing if
    it has not loaded the module."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.spider is not None and crawler.stats is not None and crawler.request_fingerprinter is not None
        self.options = Options.of(crawler.settings, crawler.spider.name)
        self._stats = crawler.stats
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        # Without `create`: a lost filter must not be recreated empty, because the crawl would silently start over.
        self.filter = Filter(connect(self.options.url, timeout=TIMEOUT_S), self.options.key, create=False)
        self.filter.reserve(self.options.rate, self.options.capacity, exist_ok=True, **(self.options.words or {}))
        if self.options.clear:
            self.filter.clear()
        self._asynchronous: AsyncFilter | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> Seen:
        """Returns the filter of this crawler."""
        if crawler not in _crawls:
            _crawls[crawler] = cls(crawler)
        return _crawls[crawler]

    async def keep_new(self, requests: list[Request]) -> list[Request]:
        """Returns the requests that were not seen before, marked for the dupefilter."""
        if not requests:
            return []
        fingerprints = [self._fingerprint(request) for request in requests]
        answers = await self._add(fingerprints)
        new = []
        for request, fingerprint, is_new in zip(requests, fingerprints, answers, strict=True):
            if is_new:
                request.meta[MARK] = fingerprint
                new.append(request)
            else:
                self.count_dropped()
        self._stats.inc_value("bloomgate/batches")
        self._stats.inc_value("bloomgate/asked", len(requests))
        return new

    def is_seen(self, request: Request) -> bool:
        """Returns False once for a request that `keep_new` has returned. Looks up any other request, which blocks for a round
        trip."""
        fingerprint = self._fingerprint(request)
        if request.meta.pop(MARK, None) == fingerprint:
            return False
        self._stats.inc_value("bloomgate/asked_alone")
        try:
            return not self.filter.add(fingerprint)
        except (redis.RedisError, BloomgateError) as error:
            # The request was redirected, or was created by the spider itself. If the server stays unreachable, the next page
            # closes the spider.
            self._stats.inc_value("bloomgate/unanswered")
            logger.warning("%s could not be looked up, and counts as new: %s", request, error)
            return False

    def count_dropped(self) -> None:
        self._stats.inc_value("dupefilter/filtered")

    def close(self) -> None:
        client: Any = self.filter.client
        client.close()

    async def aclose(self) -> None:
        if self._asynchronous is not None:
            client: Any = self._asynchronous.client
            await client.aclose()

    async def _add(self, fingerprints: list[bytes]) -> list[bool]:
        """Returns whether each fingerprint is new. While the server does not answer, the crawl waits. If an attempt may have
        added the batch but its reply was lost, each of its fingerprints counts as new once: fetching a page twice is better
        than losing it."""
        deadline = time.monotonic() + self.options.patience
        lost = False
        while True:
            try:
                answers = await self._add_once(fingerprints)
            except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError) as error:
                if time.monotonic() >= deadline:
                    logger.error("the server did not answer for %s s: %s", self.options.patience, error)
                    raise CloseSpider("bloomgate_unavailable") from error
                logger.warning("the crawl waits for the server: %s", error)
                lost = lost or may_have_arrived(error)
                self._stats.inc_value("bloomgate/retries")
                await sleep(PAUSE_S)
            except (redis.RedisError, BloomgateError) as error:
                logger.error("the filter %s cannot be used: %s", self.options.key, error)
                raise CloseSpider("bloomgate_error") from error
            else:
                return firsts(fingerprints) if lost else answers

    async def _add_once(self, fingerprints: list[bytes]) -> list[bool]:
        if not is_asyncio_available():
            return await maybe_deferred_to_future(deferToThread(self.filter.add_many, fingerprints))
        if self._asynchronous is None:
            self._asynchronous = AsyncFilter(aconnect(self.options.url, timeout=TIMEOUT_S), self.options.key, create=False)
        return await self._asynchronous.add_many(fingerprints)


def firsts(fingerprints: list[bytes]) -> list[bool]:
    """Returns whether each fingerprint is its first occurrence."""
    seen: set[bytes] = set()
    return [not (one in seen or seen.add(one)) for one in fingerprints]  # type: ignore[func-returns-value]


def may_have_arrived(error: Exception) -> bool:
    """Whether the server may have executed the command. It did not if it refused the command, or if there was no
    connection."""
    refused = isinstance(error, (redis.BusyLoadingError, redis.ReadOnlyError))
    return not refused and "connecting to" not in str(error)


async def sleep(seconds: float) -> None:
    if is_asyncio_available():
        await asyncio.sleep(seconds)
    else:
        # Imported here, because the first import of the reactor determines which one is installed.
        from twisted.internet import reactor

        await maybe_deferred_to_future(deferLater(cast(IReactorTime, reactor), seconds))
