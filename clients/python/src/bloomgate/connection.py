"""Clients of redis-py for filters and the guard: callers wait for a free connection, and no command is sent twice."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_S = 1.0
"""The time limit of a command, of connecting, and of waiting for a free connection."""

CONNECTIONS = 100
"""The maximum number of connections of one client."""


def options(timeout: float, chosen: dict[str, Any]) -> dict[str, Any]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "timeout": timeout,
        "max_connections": CONNECTIONS,
        **chosen,
    }


def connect(url: str, *, timeout: float = TIMEOUT_S, **chosen: Any) -> redis.Redis:
    """Returns a client for `redis://host:port/db`.

    A command whose connection is lost raises. redis-py would send it again; but an add that arrives twice answers that the
    item was present, and a guard whose BF.FETCH arrives twice waits for its own lease.

    A command raises if its reply takes longer than `timeout` seconds (1). A command that waits in the server extends this
    limit by its wait (a guard's `wait` and `replicas_timeout`). `timeout` also limits connecting. If all `max_connections`
    (100) are in use, a caller waits for a connection for up to `timeout`; redis-py would raise at once. Other options are
    passed to redis-py's connections."""
    pool = redis.BlockingConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **options(timeout, chosen))
    return redis.Redis.from_pool(pool)


def aconnect(url: str, *, timeout: float = TIMEOUT_S, **chosen: Any) -> redis.asyncio.Redis:
    """Like `connect`, but returns a client of `redis.asyncio`. It is exported as `bloomgate.asyncio.connect`."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **options(timeout, chosen))
    return redis.asyncio.Redis.from_pool(pool)
