"""Warnings of a guard, and its metrics and spans of OpenTelemetry. Without the API, or without an SDK, only warnings are
recorded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

logger = logging.getLogger("bloomgate")

WARN_INTERVAL_S = 60.0
"""The shortest interval between two warnings of a kind."""

Add = Callable[[int, dict[str, Any]], None]
Span = Callable[[str, dict[str, Any]], AbstractContextManager[Any]]


def instruments() -> tuple[Add | None, Span | None]:
    """Returns the function that adds to the counter, and the function that begins a span."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return None, None
    counter = metrics.get_meter("bloomgate").create_counter(
        "bloomgate.guard.events", unit="{event}", description="Answers of BF.FETCH and other events of a guard"
    )
    tracer = trace.get_tracer("bloomgate")
    return counter.add, lambda name, attributes: tracer.start_as_current_span(name, attributes=attributes)


ADD, SPAN = instruments()


class Telemetry:
    """Records the events of one guard. The attribute `bloomgate.filter` is the name of its filter."""

    def __init__(self, filter: bytes) -> None:
        self.filter = filter.decode(errors="backslashreplace")

    def event(self, name: str, count: int) -> None:
        """Adds to the counter `bloomgate.guard.events`; the attribute `bloomgate.event` is the name."""
        if ADD is not None:
            ADD(count, {"bloomgate.filter": self.filter, "bloomgate.event": name})

    def load(self, rows: int) -> AbstractContextManager[Any]:
        """Begins the span `bloomgate.load`, in which rows are loaded."""
        if SPAN is None:
            return nullcontext()
        return SPAN("bloomgate.load", {"bloomgate.filter": self.filter, "bloomgate.rows": rows})


class RateLimitedLog:
    """Logs each kind of problem at most once a minute, not once per request."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def warn(self, problem: str, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._last.get(problem, -WARN_INTERVAL_S) >= WARN_INTERVAL_S:
            self._last[problem] = now
            logger.warning("%s: %s: %s", problem, type(error).__name__, error)
