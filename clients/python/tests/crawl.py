"""A crawl in a separate process: `crawl.py START_URLS_JSON SETTINGS_JSON` prints its statistics as JSON. A start URL that
begins with `!` is filtered like any other."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


class Spider(scrapy.Spider):
    name = "crawl"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield scrapy.Request(url.removeprefix("!"), dont_filter=not url.startswith("!"))

    def parse(self, response: Response) -> Iterator[Any]:
        # The response's meta is passed on, as many spiders do.
        meta = {name: value for name, value in response.meta.items() if name not in ("depth", "redirect_times", "retry_times")}
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, meta=dict(meta))
        if response.url.endswith("/page/1"):
            yield response.follow("/unfiltered", dont_filter=True)
            yield response.follow("/unfiltered", dont_filter=True, priority=1)
        if response.url.endswith("/raises"):
            yield response.follow("/before-it-raised")
            raise RuntimeError("a callback that fails")


def main() -> None:
    urls, settings = map(json.loads, sys.argv[1:])
    process = CrawlerProcess({"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False, "DEPTH_LIMIT": 30, **settings})
    Spider.start_urls = urls
    crawler = process.create_crawler(Spider)
    process.crawl(crawler)
    process.start()
    assert crawler.stats is not None
    print(json.dumps(crawler.stats.get_stats(), default=str))


if __name__ == "__main__":
    main()
