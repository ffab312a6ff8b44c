"""A table with counted queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Rows:
    def __init__(self) -> None:
        self._rows: dict[Any, bytes] = {}
        self._lock = threading.Lock()
        self.delay = 0.0
        self.queries = 0
        self.batches = 0

    def save(self, id: Any, body: bytes) -> None:
        self._rows[id] = body

    def ids(self) -> list[Any]:
        return list(self._rows)

    def delete(self, id: Any) -> None:
        del self._rows[id]

    def load(self, id: Any) -> bytes | None:
        with self._lock:
            self.queries += 1
        time.sleep(self.delay)
        return self._rows.get(id)

    def loader(self, id: Any) -> Callable[[], bytes | None]:
        return lambda: self.load(id)

    def aloader(self, id: Any) -> Callable[[], Awaitable[bytes | None]]:
        async def load() -> bytes | None:
            return self.load(id)

        return load

    def load_many(self, ids: list[Any]) -> dict[Any, bytes]:
        with self._lock:
            self.batches += 1
            self.queries += len(ids)
        time.sleep(self.delay)
        return {id: self._rows[id] for id in ids if id in self._rows}

    async def aload_many(self, ids: list[Any]) -> dict[Any, bytes]:
        return self.load_many(ids)
