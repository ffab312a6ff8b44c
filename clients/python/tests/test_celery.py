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


def test_the_error_of_a_task_is_kept(app: Celery, client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Also with the default hash, from which nothing can be deleted."""
    filter = Filter(client, "fast")
    filter.reserve(1e-6, 1000)

    @app.task
    @at_most_once(filter)
    def send(id: int) -> None:
        raise OSError("no such address")

    with pytest.raises(OSError, match="no such address"):
        send.delay(1)
    assert "1 failed and cannot try again" in caplog.text
    assert send.delay(1).get() is None


def test_a_task_that_a_shutdown_ends(filter: Filter) -> None:
    def send(id: int, error: BaseException | None = None) -> int:
        if error is not None:
            raise error
        return id

    once = at_most_once(filter)(send)
    with pytest.raises(SystemExit):
        once(1, SystemExit())
    assert once(1) == 1 and once(1) is None


def test_bound_tasks_and_named_arguments(app: Celery, filter: Filter) -> None:
    sent: list[Any] = []
    attempts: list[int] = []

    @app.task(bind=True, max_retries=2)
    @at_most_once(filter)
    def send(self: Any, id: int, text: str = "") -> None:
        attempts.append(id)
        if id == 7 and len(attempts) == 1:
            raise self.retry(countdown=0)
        sent.append((self.name, id, text))

    @app.task(bind=True)
    @spare_the_lookup(filter, lambda id: id == 3)
    def book(self: Any, id: int) -> int:
        return id

    app.conf.task_eager_propagates = False  # a retry is an exception
    send.delay(7, text="hello").get()
    assert attempts == [7, 7] and [one[1:] for one in sent] == [(7, "hello")]
    send.delay(text="hello", id=8).get()
    send.delay(8, text="hello").get()
    assert [one[1:] for one in sent] == [(7, "hello"), (8, "hello")]
    assert [book.delay(3).get(), book.delay(id=3).get(), book.delay(4).get()] == [3, None, 4]
