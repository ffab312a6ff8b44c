"""One crawl in a separate process: `crawl_once.py START_URL PREFIXES SETTINGS_JSON` follows every link whose path begins with
one of the prefixes, and prints seconds and pages as JSON."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


class DocsSpider(scrapy.Spider):
    name = "docs"
    prefixes: tuple[str, ...] = ()
    pages: ClassVar[list[str]] = []
    links = 0

    async def start(self) -> Any:
        yield scrapy.Request(self.start_urls[0], self.parse)

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.pages.append(response.url)
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        host = urlsplit(response.url).netloc
        for href in response.css("a::attr(href)").getall():
            url = urlsplit(response.urljoin(href))
            if url.netloc == host and url.path.startswith(self.prefixes) and url.path.endswith((".html", "/")):
                DocsSpider.links += 1
                yield response.follow(href)


def main() -> None:
    start, prefixes, settings = sys.argv[1:]
    DocsSpider.start_urls = [start]
    DocsSpider.prefixes = tuple(prefixes.split(","))
    process = CrawlerProcess(
        {
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
            "ROBOTSTXT_OBEY": False,
            "CONCURRENT_REQUESTS": 16,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "DOWNLOAD_DELAY": 0,
            "DEPTH_LIMIT": 0,
            **json.loads(settings),
        }
    )
    process.crawl(DocsSpider)
    begun = time.perf_counter()
    process.start()
    seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": used.ru_utime + used.ru_stime,
                "links": DocsSpider.links,
                "pages": len(DocsSpider.pages),
                "distinct": len(set(DocsSpider.pages)),
                "digest": hashlib.sha1(
                    "\n".join(sorted(urlsplit(page).path for page in DocsSpider.pages)).encode()
                ).hexdigest()[:12],
            }
        )
    )


if __name__ == "__main__":
    main()
