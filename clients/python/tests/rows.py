"""A table with counted queries, the leases of its rows, and callers that wait for them."""

from __future__ import annotations

import threading
import time
from typing import Any

import redis
from server import PATIENCE


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

    async def aload(self, id: Any) -> bytes | None:
        return self.load(id)

    def load_many(self, ids: list[Any]) -> dict[Any, bytes]:
        with self._lock:
            self.batches += 1
            self.queries += len(ids)
        time.sleep(self.delay)
        return {id: self._rows[id] for id in ids if id in self._rows}

    async def aload_many(self, ids: list[Any]) -> dict[Any, bytes]:
        return self.load_many(ids)


def lease(client: redis.Redis, id: int) -> bytes:
    """Takes the lease of a row, as another process would. Returns its token."""
    word, token = client.execute_command("BF.FETCH", "rows", id, f"{{rows}}:{id}", "LEASE", 1000 * PATIENCE)
    assert word == b"load"
    return bytes(token)


def blocked(client: redis.Redis) -> int:
    """Returns how many callers wait in the server."""
    return int(client.info("clients")["blocked_clients"])


def waiting_for(guard: Any) -> int:
    """Returns how many callers wait in the process."""
    return sum(len(row.waiting) for row in guard._steps.flights._rows.values())
