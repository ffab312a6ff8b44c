"""Rows in the memory of this process, in front of the server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any


class NearCache:
    """Keeps up to `items` values in this process, for `seconds` each. What it serves may be that much older than what the
    server would answer. It needs `cachetools` (`pip install 'bloomgate[near]'`). Several guards may share one.

    A value is stored only if it was not dropped since it was fetched: `begin` marks the keys that are fetched, `drop`
    removes the marks, and `end` stores those values whose marks are left."""

    def __init__(self, items: int, seconds: float) -> None:
        from cachetools import TTLCache

        if items < 1 or not 0 < seconds < float("inf"):
            raise ValueError(f"a near cache has at least one item, for more than 0 seconds, not {items!r} and {seconds!r}")
        self._values: Any = TTLCache(items, seconds)
        self._marks: dict[bytes, object] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._values.expire()
            return len(self._values)

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a cache key."""
        with self._lock:
            value: bytes | None = self._values.get(key)
            return value

    def begin(self, keys: Iterable[bytes]) -> dict[bytes, object]:
        """Marks keys that are about to be fetched."""
        with self._lock:
            return {key: self._marks.setdefault(key, object()) for key in keys}

    def end(self, marks: Mapping[bytes, object], values: Mapping[bytes, bytes]) -> None:
        """Stores the values of marked keys, and removes the marks."""
        with self._lock:
            for key, mark in marks.items():
                if self._marks.get(key) is mark:
                    del self._marks[key]
                    if key in values:
                        self._values[key] = values[key]

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forgets values, and does not store those that are fetched now."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)
                self._marks.pop(key, None)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._values.clear()
            self._marks.clear()
