"""The package for asyncio, on `redis.asyncio`. Errors, codecs and replies are those of `bloomgate`."""

from ..connection import aconnect as connect
from .filter import Filter, plan
from .guard import Guard, fill_filter
from .sharded import ShardedFilter

__all__ = ["Filter", "Guard", "ShardedFilter", "connect", "fill_filter", "plan"]
