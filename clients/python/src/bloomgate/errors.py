"""The errors of this package. All others are the client library's own (`redis.RedisError`): a lost connection, a missing
permission, a server that is out of memory."""

from __future__ import annotations


class BloomgateError(Exception):
    """The base class of this package's errors.

    `answers` has what is known of a batch that failed: True, False, or None for an item whose answer is unknown."""

    answers: list[bool | None]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.answers = []


class ModuleMissing(BloomgateError):
    """The server does not know a command of bloomgate: it has not loaded the module, or has loaded another one with BF.*
    commands."""


class FilterMissing(BloomgateError):
    """There is no filter at this key."""


class FilterExists(BloomgateError):
    """The key exists already."""


class FilterFull(BloomgateError):
    """A filter that does not grow has reached its capacity. Items before the first None in `answers` were added."""


class FilterLoading(BloomgateError):
    """The filter is still being loaded: the last `BF.LOADCHUNK` has not arrived yet."""


class BadDump(BloomgateError):
    """The file is not a dump of a filter, was truncated, or has a record that the server refuses."""


class ShardMissing(FilterMissing):
    """A shard of a sharded filter is missing, so nothing is known of its items."""


class ShardsChanged(BloomgateError):
    """The number of shards has changed since the sharded filter was opened: open it again, and repeat the batch."""


class LoadFailed(BloomgateError):
    """A row has no cached value, and its last load failed: the database is not asked for it again before the back-off ends. If a load
    raised more than an Exception, those that waited for it get this, with the cause."""

    def __init__(self, id: bytes) -> None:
        super().__init__(f"the row {id!r} has no cached value, and its last load has failed")
        self.id = id


class Unconfirmed(BloomgateError):
    """A write was committed, but the server did not answer its confirmation in time. Readers may get the old rows for up to a
    lease and a time to live. `ids` are those of the rows; `Guard.confirm(*ids)` tries again."""

    def __init__(self, ids: tuple[bytes | str | int, ...]) -> None:
        super().__init__(f"the change of {len(ids)} row(s) could not be confirmed")
        self.ids = ids


def named(error: Exception, key: object) -> Exception:
    """Converts an error of the client library, which becomes the cause, to the one of this package that it stands for.
    Returns any other error unchanged."""
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
