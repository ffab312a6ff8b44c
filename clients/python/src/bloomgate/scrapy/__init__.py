"""A component for Scrapy. One command looks up and adds all links of a page, and links that were seen before are dropped
before they reach the scheduler. Crawlers in several processes and on several machines share the filter.

    ADDONS = {"bloomgate.scrapy.Addon": 500}
    BLOOMGATE_URL = "redis://localhost:6379"

The README describes the settings, and the use with scrapy-redis."""

from .components import Addon, BatchMiddleware, DupeFilter

__all__ = ["Addon", "BatchMiddleware", "DupeFilter"]
