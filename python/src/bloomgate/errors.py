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


class ModuleMissing(BloomgateError):
    """The server does not know a command of bloomgate: it has not loaded the module, or has loaded another one with BF.*
    commands."""


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
