"""Warnings of a component that keeps working without its server: once a minute, not once per request."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("bloomgate")

EVERY_S = 60.0


class Grumble:
    """Logs each kind of problem at most once a minute."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def about(self, what: str, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._last.get(what, -EVERY_S) >= EVERY_S:
            self._last[what] = now
            logger.warning("%s: %s: %s", what, type(error).__name__, error)
