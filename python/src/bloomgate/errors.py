"""What goes wrong, by name. Errors that have no name here are the client library's own (`redis.RedisError`): a lost
connection, a refused permission, a server without memory."""

from __future__ import annotations


class BloomgateError(Exception):
    """The root of this package's errors.

    `answers` has what is known of a batch that failed: True, False, or None for an item whose answer is unknown."""

    answers: list[bool | None]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.answers = []


class FilterMissing(BloomgateError):
    """There is no filter under this key."""


class FilterExists(BloomgateError):
    """There is something under this key already."""


class FilterFull(BloomgateError):
    """A filter that does not grow has as many items as it was made for. Items before the first None in `answers` are in."""


class FilterLoading(BloomgateError):
    """The filter is still being loaded: `BF.LOADCHUNK` has not had the last record yet."""


class BadDump(BloomgateError):
    """The file is no dump of a filter, was cut short, or the server refuses a record of it."""


class ShardMissing(FilterMissing):
    """A shard of a sharded filter is gone, so that nothing can be said of its items."""


class ShardsChanged(BloomgateError):
    """The sharded filter has another number of shards than when it was opened: open it again, and repeat the batch."""


class Unconfirmed(BloomgateError):
    """A write was committed, and the server could not be told for as long as was allowed. Until a lease and a time to
    live are over, readers may get the old value. `ids` says of which rows; `Guard.confirm(*ids)` tells the server."""

    def __init__(self, ids: tuple[bytes | str | int, ...]) -> None:
        super().__init__(f"the change of {len(ids)} row(s) could not be confirmed")
        self.ids = ids


def named(error: Exception, key: object) -> Exception:
    """The error of a client library as one of this package's where it has a name here, else as it is."""
    text = str(error)
    if "non scaling filter is full" in text:
        return FilterFull(f"{key!r}: the filter is full")
    if "filter is still being loaded" in text:
        return FilterLoading(f"{key!r}: the filter is still being loaded")
    if text.removeprefix("ERR ") == "not found":
        return FilterMissing(f"{key!r}: there is no such filter")
    if text.removeprefix("ERR ") == "item exists":
        return FilterExists(f"{key!r}: there is a filter already")
    return error
