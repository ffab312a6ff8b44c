"""Drops values from a near cache as others change them: a connection of its own asks the server to report changes of all keys
with the guard's prefix (`CLIENT TRACKING ... BCAST`, RESP3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from .near import NearCache
from .steps import keep

logger = logging.getLogger("bloomgate")

RETRY_S = 1.0
"""The pause before a lost connection is made again."""

CHECK_S = 1.0
"""How often the thread looks whether the near cache is still in use."""


class Tracking:
    """Follows the changes of the keys with a prefix. Without a connection, values are bounded by their time only: nothing is
    dropped while it is lost, so everything is dropped when it is lost and again when it is made."""

    def __init__(self, client: object, near: NearCache, prefix: bytes) -> None:
        self._pool: Any = getattr(client, "connection_pool", None)
        self._near = weakref.ref(near)
        self._prefix = prefix
        self._follower: object = None
        self.is_active = False

    def start_thread(self) -> None:
        """Starts a thread that follows changes, once in each process."""
        if self._follower != os.getpid() and self._pool is not None:
            self._follower = os.getpid()
            threading.Thread(target=self._follow, name="bloomgate tracking", daemon=True).start()

    def start_task(self) -> None:
        """Starts a task that follows changes, once in each event loop."""
        loop = asyncio.get_running_loop()
        if self._follower is not loop and self._pool is not None:
            self._follower = loop
            task = loop.create_task(self._afollow())
            keep(task)
            near = self._near()
            weakref.finalize(near, stop, loop, task)

    def _connection(self) -> Any:
        """Returns a new connection, as those of the client but with RESP3 and without a limit to how long it reads."""
        chosen = {**self._pool.connection_kwargs, "protocol": 3, "decode_responses": False, "socket_timeout": None}
        return self._pool.connection_class(**chosen)

    def _clear(self) -> None:
        if (near := self._near()) is not None:
            near.clear()

    def _changed(self, message: Any) -> None:
        """Handles `invalidate` with a list of keys, or with none after FLUSHALL."""
        near = self._near()
        if near is None:
            return
        if message[1] is None:
            near.clear()
        else:
            near.drop(bytes(key) for key in message[1])

    def _achanged(self, message: Any) -> asyncio.Future[None]:
        """Does the same for redis.asyncio, which awaits the outcome, and valkey.asyncio, which does not."""
        self._changed(message)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _begin(self, connection: Any, handler: Callable[[Any], Any]) -> tuple[Any, ...]:
        connection._parser.set_invalidation_push_handler(handler)
        return ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", self._prefix)

    def _began(self) -> None:
        # What was fetched before is not tracked.
        self._clear()
        self.is_active = True

    def _lost(self, error: Exception) -> bool:
        """Whether to connect again: not if the server or the client library cannot track."""
        logger.info("the near cache is bounded by time only: %s: %s", type(error).__name__, error)
        return type(error).__name__ in ("ConnectionError", "TimeoutError", "BusyLoadingError") or isinstance(error, OSError)

    def _follow(self) -> None:
        goes_on = True
        while goes_on and self._near() is not None:
            connection = self._connection()
            try:
                connection.connect()
                connection.send_command(*self._begin(connection, self._changed))
                connection.read_response()
                self._began()
                while self._near() is not None:
                    if connection.can_read(timeout=CHECK_S):
                        connection.read_response(push_request=True)
            except Exception as error:
                goes_on = self._lost(error)
            finally:
                self.is_active = False
                self._clear()
                connection.disconnect()
            time.sleep(RETRY_S)

    async def _afollow(self) -> None:
        goes_on = True
        while goes_on and self._near() is not None:
            connection = self._connection()
            try:
                await connection.connect()
                await connection.send_command(*self._begin(connection, self._achanged))
                await connection.read_response()
                self._began()
                while True:
                    await connection.read_response(push_request=True, timeout=math.inf)
            except Exception as error:
                goes_on = self._lost(error)
            finally:
                self.is_active = False
                self._clear()
                with contextlib.suppress(Exception):
                    await connection.disconnect()
            await asyncio.sleep(RETRY_S)


def stop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Ends a task when its near cache is no longer in use. The loop may have been closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)
