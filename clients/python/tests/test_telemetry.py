"""Metrics and spans of OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bloomgate.asyncio
from bloomgate import Filter, Guard

READER = InMemoryMetricReader()
SPANS = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def providers() -> None:
    """A process has one provider of each kind."""
    metrics.set_meter_provider(MeterProvider([READER]))
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(tracers)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    SPANS.clear()
    yield SPANS


def events(filter: str) -> dict[str, int]:
    """The events of the guards of one filter."""
    found: dict[str, int] = {}
    data: Any = READER.get_metrics_data()
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                assert metric.name == "bloomgate.guard.events"
                for point in metric.data.data_points:
                    if point.attributes["bloomgate.filter"] == filter:
                        found[point.attributes["bloomgate.event"]] = point.value
    return found


def fails(*_: Any) -> Any:
    raise OSError("the database is down")


def test_threads(client: redis.Redis, protocol: int, spans: InMemorySpanExporter) -> None:
    name = f"rows{protocol}"
    Filter(client, name).insert(range(10), capacity=100)
    guard = Guard(client, name)
    assert guard.get(1, lambda _: b"one") == b"one" and guard.get(1, fails) == b"one" and guard.get(100, fails) is None
    assert guard.get_many([2, 3, 100], lambda ids: dict.fromkeys(ids, b"row")) == {2: b"row", 3: b"row", 100: None}
    with pytest.raises(OSError, match="down"):
        guard.get(4, fails)
    assert events(name) == dict(guard.counts)
    assert events(name) == {"load": 4, "filled": 3, "hit": 1, "absent": 2, "load_failed": 1}
    found = spans.get_finished_spans()
    assert [(span.name, dict(span.attributes or {})) for span in found] == [
        ("bloomgate.load", {"bloomgate.filter": name, "bloomgate.rows": rows}) for rows in (1, 2, 1)
    ]
    assert [span.status.is_ok for span in found] == [True, True, False]


async def test_asyncio(client: redis.Redis, aclient: redis.asyncio.Redis, spans: InMemorySpanExporter) -> None:
    """The work of `load` is inside its span, and the span is inside the caller's span."""
    Filter(client, "tasks").insert(range(10), capacity=100)
    guard = bloomgate.asyncio.Guard(aclient, "tasks")
    tracer = trace.get_tracer("test")

    async def load(_: Any) -> bytes:
        with tracer.start_as_current_span("query"):
            return b"one"

    with tracer.start_as_current_span("request"):
        assert await guard.get(1, load) == b"one"
    query, loading, request = spans.get_finished_spans()
    assert [span.name for span in (query, loading, request)] == ["query", "bloomgate.load", "request"]
    assert query.parent == loading.context and loading.parent == request.context


def test_without_opentelemetry(port: int) -> None:
    program = f"""
import sys
sys.modules["opentelemetry"] = None
import redis
from bloomgate import Filter, Guard
client = redis.Redis(port={port})
Filter(client, "rows").insert([1], capacity=100)
guard = Guard(client, "rows")
assert guard.get(1, lambda _: b"one") == b"one"
print(dict(guard.counts))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "{'load': 1, 'filled': 1}\n", done.stderr
