"""Celery tasks that run once for each id, though a message may be delivered twice."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from celery import Task

from bloomgate import Filter

logger = logging.getLogger(__name__)


def at_most_once(filter: Filter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For work that may be skipped now and then, but not done twice: a mail, a push message. The first argument is the id.

    A false positive skips the work: for one id in a million with a rate of 1e-6. So does a worker that is killed midway. With
    `hash="siphash"`, an id whose task failed can try again, `self.retry` included."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def once(*args: Any, **kwargs: Any) -> Any:
            id = first_argument(function, args, kwargs)
            if not filter.add(id):
                return None
            try:
                return function(*args, **kwargs)
            except BaseException:
                # A worker that shuts down raises SystemExit.
                try:
                    filter.delete(id)
                except Exception as error:
                    # The task's own error is the one to report.
                    logger.warning("%r failed and cannot try again: %s", id, error)
                raise

        return once

    return decorate


def spare_the_lookup(filter: Filter, is_done: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For work that must be done: a table of finished work decides, and the filter saves the lookup for ids that are certainly
    new. A false positive costs one lookup. The table needs a unique key, because two workers may get the same id at once."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def once(*args: Any, **kwargs: Any) -> Any:
            id = first_argument(function, args, kwargs)
            if not filter.add(id) and is_done(id):
                return None
            return function(*args, **kwargs)

        return once

    return decorate


def first_argument(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the first argument of a task. With `bind=True`, the task itself comes before it."""
    values = list(inspect.signature(function).bind(*args, **kwargs).arguments.values())
    return values[1] if isinstance(values[0], Task) else values[0]
