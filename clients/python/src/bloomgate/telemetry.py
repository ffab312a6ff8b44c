"""Metrics and spans of OpenTelemetry, if its API is installed. Without it, or without an SDK, nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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
