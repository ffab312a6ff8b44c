"""Enables both parts of the component by one setting."""

from __future__ import annotations

from scrapy.settings import BaseSettings

from .dupefilter import DupeFilter
from .middleware import BatchMiddleware

ORDER = 10


class Addon:
    """`ADDONS = {"bloomgate.scrapy.Addon": 500}` enables the dupefilter and the middleware."""

    def update_settings(self, settings: BaseSettings) -> None:
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        settings["SPIDER_MIDDLEWARES"][BatchMiddleware] = ORDER
