"""Celery tasks that run once for each id, though a message comes twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from bloomgate import Filter


def at_most_once(filter: Filter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For work that may be left out now and then, but not done twice: a mail, a push message. The first argument is the id.

    A false positive leaves the work out: with a rate of 1e-6 for one id in a million. So does a worker that is killed in
    the middle. A filter with `hash="siphash"` lets an id that failed try again."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def once(id: str | int, *args: Any, **kwargs: Any) -> Any:
            if not filter.add(id):
                return None
            try:
                return function(id, *args, **kwargs)
            except Exception:
                filter.delete(id)
                raise

        return once

    return decorate


def spare_the_lookup(filter: Filter, is_done: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For work that must be done: a table of what is done decides, and the filter only spares the lookup for ids that are
    certainly new. A false positive costs one lookup. The table needs a unique key: two workers may get one id at once."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def once(id: str | int, *args: Any, **kwargs: Any) -> Any:
            if not filter.add(id) and is_done(id):
                return None
            return function(id, *args, **kwargs)

        return once

    return decorate
