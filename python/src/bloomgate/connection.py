"""Clients of redis-py that suit filters: they wait for an answer, and never send a command twice by themselves."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_S = 10
"""How long a command may take. Longer than a guard's `wait_ms`."""


def options(chosen: dict[str, Any]) -> dict[str, Any]:
    return {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, **chosen}


def connect(url: str, **chosen: Any) -> redis.Redis:
    """A client for `redis://host:port/db` that raises where the connection is lost, instead of sending the command again.

    redis-py sends a command again whose reply was lost. That is harmless for a lookup; an add that is sent twice answers
    that the item was in, and a guard waits for a lease that it has itself."""
    client: redis.Redis = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options(chosen))
    return client


def aconnect(url: str, **chosen: Any) -> redis.asyncio.Redis:
    """The same of `redis.asyncio`, as `bloomgate.asyncio.connect`."""
    from redis.asyncio.retry import Retry as AsyncRetry

    client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **options(chosen))
    return client
