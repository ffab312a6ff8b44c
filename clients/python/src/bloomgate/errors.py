"""Errors of this package. Other errors are the client library's (`redis.RedisError`): lost connections, missing permissions,
a server that is out of memory."""

from __future__ import annotations


class BloomgateError(Exception):
    """The base class of this package's errors.

    `answers` are the answers of a failed batch: True, False, or None for an unknown answer."""

    answers: list[bool | None]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.answers = []


class ModuleMissing(BloomgateError):
    """The server lacks a command of bloomgate: the module is missing or too old, or another module provides BF.*."""


class FilterMissing(BloomgateError):
    """The key does not exist."""


class FilterExists(BloomgateError):
    """The key exists already."""


class FilterFull(BloomgateError):
    """A NONSCALING filter has reached its capacity. Items before the first None in `answers` were added."""


class FilterLoading(BloomgateError):
    """The filter is still being loaded: the last `BF.LOADCHUNK` has not arrived yet."""


class ShardMissing(FilterMissing):
    """A shard of a sharded filter is missing, so the answers for its items are unknown."""


class ShardsChanged(BloomgateError):
    """The number of shards has changed since the sharded filter was opened: open it again, and repeat the batch."""


class LoadFailed(BloomgateError):
    """The last load of a row failed, and no value is cached: the row is not loaded again until the back-off ends. Callers that
    waited for a load that raised a BaseException, such as SystemExit, get this error with its cause."""

    def __init__(self, id: bytes) -> None:
        super().__init__(f"the row {id!r} has no cached value, and its last load failed")
        self.id = id


class Unconfirmed(BloomgateError):
    """A write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to a lease
    and a time to live. `ids` are the ids of the rows; `Guard.confirm(*ids)` tries again."""

    def __init__(self, ids: tuple[bytes | str | int, ...]) -> None:
        super().__init__(f"the change of {len(ids)} row(s) could not be confirmed")
        self.ids = ids


def named(error: Exception, key: object) -> Exception:
    """Converts an error of the client library to this package's error, with the former as its cause. Returns other errors
    unchanged."""
    text = str(error).removeprefix("ERR ")
    result: Exception
    if "non scaling filter is full" in text:
        result = FilterFull(f"{key!r}: the filter is full")
    elif "filter is still being loaded" in text:
        result = FilterLoading(f"{key!r}: the filter is still being loaded")
    elif text == "not found":
        result = FilterMissing(f"{key!r}: there is no such filter")
    elif text == "item exists":
        result = FilterExists(f"{key!r}: there is a filter already")
    else:
        return error
    result.__cause__ = error
    return result
