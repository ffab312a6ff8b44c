"""The settings of the Scrapy component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from scrapy.settings import BaseSettings

from ..words import Words


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
    words: Words | None = None
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
            words=cast(Words, settings.getdict("BLOOMGATE_WORDS")),
            batch=batch,
            patience=settings.getfloat("BLOOMGATE_PATIENCE", cls.patience),
            clear=settings.getbool("BLOOMGATE_CLEAR", cls.clear),
        )
