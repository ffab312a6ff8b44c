"""examples/celery_once.py, with a worker in the same process."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from celery import Celery
from celery_once import at_most_once, spare_the_lookup

from bloomgate import Filter


@pytest.fixture
def app() -> Celery:
    app = Celery("tests", set_as_current=False)
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    return app


@pytest.fixture
def filter(client: redis.Redis) -> Filter:
    filter = Filter(client, "done", create=False)
    filter.reserve(1e-6, 1000, hash="siphash")
    return filter


def test_at_most_once(app: Celery, filter: Filter) -> None:
    sent: list[Any] = []

    @app.task
    @at_most_once(filter)
    def send(id: int, text: str) -> str:
        if text == "fails":
            raise OSError(text)
        sent.append((id, text))
        return text

    with pytest.raises(OSError, match="fails"):
        send.delay(1, "fails")
    assert send.delay(1, "hello").get() == "hello", "what failed may try again"
    assert send.delay(1, "hello").get() is None
    assert send.delay(2, "hello").get() == "hello"
    assert sent == [(1, "hello"), (2, "hello")]


def test_a_lookup_is_spared(app: Celery, filter: Filter) -> None:
    done: set[int] = set()
    lookups = []

    def is_done(id: int) -> bool:
        lookups.append(id)
        return id in done

    @app.task
    @spare_the_lookup(filter, is_done)
    def book(id: int) -> int:
        if len(lookups) == 0 and id == 3:
            raise OSError("killed in the middle")
        done.add(id)
        return id

    assert [book.delay(id).get() for id in (1, 2, 1)] == [1, 2, None]
    assert lookups == [1]
    filter.add(4)
    assert book.delay(4).get() == 4, "a false positive costs a lookup, not the work"
    assert lookups == [1, 4]
