"""Bloom filters in a server with the module bloomgate, and a cache guard in front of a database. `bloomgate.asyncio` has the
same for asyncio, `bloomgate.scrapy` a component for Scrapy."""

from .codec import Bytes, Codec, Json
from .connection import connect
from .errors import (
    BloomgateError,
    FilterExists,
    FilterFull,
    FilterLoading,
    FilterMissing,
    LoadFailed,
    ModuleMissing,
    ShardMissing,
    ShardsChanged,
    Unconfirmed,
)
from .filter import Filter, plan
from .guard import Guard, fill_filter
from .near import NearCache
from .replies import Bucket, Info, Layer, Plan, Stats
from .sharded import ShardedFilter

__all__ = [
    "BloomgateError",
    "Bucket",
    "Bytes",
    "Codec",
    "Filter",
    "FilterExists",
    "FilterFull",
    "FilterLoading",
    "FilterMissing",
    "Guard",
    "Info",
    "Json",
    "Layer",
    "LoadFailed",
    "ModuleMissing",
    "NearCache",
    "Plan",
    "ShardMissing",
    "ShardedFilter",
    "ShardsChanged",
    "Stats",
    "Unconfirmed",
    "connect",
    "fill_filter",
    "plan",
]
