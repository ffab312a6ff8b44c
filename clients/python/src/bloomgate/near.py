"""Rows in the memory of this process, in front of the server. On a separate connection, the server reports changes of all keys
with the guard's prefix (`CLIENT TRACKING ... BCAST`, RESP3), and their values are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .steps import is_cluster, keep
from .telemetry import RateLimitedLog

RETRY_S = 1.0
"""The pause before reconnecting. It doubles with each failed attempt."""

MOST_RETRY_S = 30.0
"""The longest of these pauses."""

CHECK_S = 1.0
"""How often the thread checks whether the near cache is still in use."""


class NearCache:
    """Keeps up to `items` values in this process, for `seconds` each. A served value may be up to this much older than the
    server's. It needs `cachetools` (`pip install 'bloomgate[near]'`). Several guards may share one near cache.

    A value is stored only if it was not dropped since it was fetched: `begin` marks the keys that are fetched, `drop` removes
    marks, and `end` stores the values whose keys are still marked."""

    def __init__(self, items: int, seconds: float) -> None:
        from cachetools import TTLCache

        if items < 1 or not 0 < seconds < float("inf"):
            raise ValueError(f"a near cache has at least one item, for more than 0 seconds, not {items!r} and {seconds!r}")
        self.seconds = seconds
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
        """Removes values, and discards their fetches in flight."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)
                self._marks.pop(key, None)

    def clear(self) -> None:
        """Removes all values."""
        with self._lock:
            self._values.clear()
            self._marks.clear()


class Tracking:
    """Follows the changes of the keys with a prefix. The near cache serves values only while this `is_active`: without a
    connection, no changes are reported. All values are dropped when the connection is lost, and again when it is restored."""

    def __init__(self, client: object, near: NearCache, prefix: bytes) -> None:
        if is_cluster(client):
            raise ValueError("a near cache needs a plain client: the nodes of a cluster report changes separately")
        self._pool: Any = client.connection_pool  # type: ignore[attr-defined]
        self._is_async = hasattr(client, "__aenter__")
        self._log = RateLimitedLog()
        self._pause_s = RETRY_S
        self._near = weakref.ref(near)
        self._prefix = prefix
        self._follower: object = None
        self.is_active = False

    def start(self) -> None:
        """Follows changes from now on, in a thread or in a task, depending on the client."""
        if self._is_async:
            self.start_task()
        else:
            self.start_thread()

    def start_thread(self) -> None:
        """Starts a thread that follows changes, once in each process."""
        if self._follower != os.getpid():
            # After a fork, the thread exists only in the parent process.
            self._follower = os.getpid()
            self._stopped()
            threading.Thread(target=self._follow, name="bloomgate tracking", daemon=True).start()

    def start_task(self) -> None:
        """Starts a task that follows changes, once in each event loop."""
        loop = asyncio.get_running_loop()
        if self._follower is not loop:
            self._follower = loop
            self._stopped()
            task = loop.create_task(self._afollow())
            keep(task)
            near = self._near()
            weakref.finalize(near, stop, loop, task)

    def _connection(self) -> Any:
        """Returns a new connection with the client's settings, but with RESP3 and without a read timeout."""
        chosen = {**self._pool.connection_kwargs, "protocol": 3, "decode_responses": False, "socket_timeout": None}
        return self._pool.connection_class(**chosen)

    def _clear(self) -> None:
        if (near := self._near()) is not None:
            near.clear()

    def _changed(self, message: Any) -> None:
        """Handles `invalidate` with a list of keys, or with null after FLUSHALL."""
        near = self._near()
        if near is None:
            return
        if message[1] is None:
            near.clear()
        else:
            near.drop(bytes(key) for key in message[1])

    def _achanged(self, message: Any) -> asyncio.Future[None]:
        """Like `_changed`, for redis.asyncio, which awaits the result, and valkey.asyncio, which does not."""
        self._changed(message)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _begin(self, connection: Any, handler: Callable[[Any], Any]) -> tuple[Any, ...]:
        connection._parser.set_invalidation_push_handler(handler)
        return ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", self._prefix)

    def _began(self) -> None:
        # Values that were fetched before are not tracked.
        self._clear()
        self._pause_s = RETRY_S
        self.is_active = True

    def _stopped(self) -> None:
        self.is_active = False
        self._clear()

    def _lost(self, error: Exception) -> float:
        """Returns how long to wait before the next attempt. Any error may be temporary: a server may become a replica, a
        password may be changed."""
        self._log.warn("the near cache serves nothing until the server reports changes again", error)
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, MOST_RETRY_S)
        return pause_s

    def _follow(self) -> None:
        while self._near() is not None:
            connection, pause_s = None, 0.0
            try:
                connection = self._connection()
                connection.connect()
                connection.send_command(*self._begin(connection, self._changed))
                connection.read_response()
                self._began()
                while self._near() is not None:
                    if connection.can_read(timeout=CHECK_S):
                        connection.read_response(push_request=True)
            except Exception as error:
                pause_s = self._lost(error)
            finally:
                self._stopped()
                if connection is not None:
                    connection.disconnect()
            while pause_s > 0 and self._near() is not None:
                time.sleep(min(pause_s, CHECK_S))
                pause_s -= CHECK_S

    async def _afollow(self) -> None:
        while self._near() is not None:
            connection, pause_s = None, 0.0
            try:
                connection = self._connection()
                await connection.connect()
                await connection.send_command(*self._begin(connection, self._achanged))
                await connection.read_response()
                self._began()
                while True:
                    await connection.read_response(push_request=True, timeout=math.inf)
            except Exception as error:
                pause_s = self._lost(error)
            finally:
                self._stopped()
                if connection is not None:
                    with contextlib.suppress(Exception):
                        await connection.disconnect()
            await asyncio.sleep(pause_s)


def stop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Ends a task when its near cache is no longer in use. The loop may have been closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)
