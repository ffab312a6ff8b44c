"""A component for Scrapy: the links of a page are looked up, and added, by one command, and what was seen is dropped before it
reaches the scheduler. Crawlers of several processes and machines share what they have seen.

    ADDONS = {"bloomgate.scrapy.Addon": 500}
    BLOOMGATE_URL = "redis://localhost:6379"

The README has the settings, and how it goes with scrapy-redis."""

from .addon import Addon
from .dupefilter import DupeFilter
from .middleware import BatchMiddleware

__all__ = ["Addon", "BatchMiddleware", "DupeFilter"]
