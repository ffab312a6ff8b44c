"""Where the items of a sharded filter are: the contract that all clients of the project share.

A sharded filter NAME with n shards is n filters at the keys `NAME:{0}` to `NAME:{n-1}`, and n in decimal at `NAME:shards`. The
braces are part of the key: shard i of every sharded filter is in the slot of "i"."""

from __future__ import annotations

import math
import zlib

from .items import Key, item_bytes

MOST_SHARDS = 16384


def shard_of(item: bytes, shards: int) -> int:
    """Returns the shard of an item: the CRC-32 of its bytes (ISO 3309, as in zlib) modulo the number of shards."""
    return zlib.crc32(item) % shards


def shard_key(name: Key, shard: int) -> bytes:
    return b"%b:{%d}" % (item_bytes(name), shard)


def count_key(name: Key) -> bytes:
    return b"%b:shards" % item_bytes(name)


def shard_capacity(capacity: int, shards: int) -> int:
    """Returns the capacity of one shard: its part and four standard deviations, so that chance fills none before the others."""
    part = capacity / shards
    return math.ceil(part + 4 * math.sqrt(part))


def check_shards(shards: int) -> int:
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"a sharded filter has 1 to {MOST_SHARDS} shards, not {shards!r}")
    return shards
