"""What the guard is told and answered: its options, the names of cache keys, the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from .items import Key
from .replies import text


class GuardWords(TypedDict, total=False):
    """The options of `bloomgate.Guard`, which says what they are."""

    ttl: float
    absent_ttl: float
    lease_ms: int
    wait_ms: int
    stale_ms: int
    attempts: int
    patience: float
    prefix: Key | None
    announce_to: Sequence[Key]
    replicas: int
    replicas_timeout_ms: int


@dataclass(frozen=True)
class GuardOptions:
    """See `bloomgate.Guard`."""

    ttl: float = 60.0
    absent_ttl: float = 10.0
    lease_ms: int = 3000
    wait_ms: int = 3000
    stale_ms: int = 0
    attempts: int = 3
    patience: float = 30.0
    prefix: Key | None = None
    announce_to: Sequence[Key] = ()
    replicas: int = 0
    replicas_timeout_ms: int = 1000

    def __post_init__(self) -> None:
        if self.ttl <= 0 or self.absent_ttl <= 0:
            raise ValueError("ttl and absent_ttl are more than 0 seconds: they bound what a writer leaves that died")
        if self.lease_ms < 1 or self.wait_ms < 0 or self.stale_ms < 0 or self.attempts < 1 or self.patience < 0:
            raise ValueError("lease_ms and attempts are 1 or more, wait_ms, stale_ms and patience 0 or more")


@dataclass(frozen=True)
class Fetched:
    """An answer of BF.FETCH. `value` is there with hit and stale, `token` with load and stale."""

    word: str
    value: bytes = b""
    token: bytes = b""
    wait_ms: int = 0


def parse_fetch(reply: Any) -> Fetched:
    word, *rest = reply
    match text(word), rest:
        case "absent", []:
            return Fetched("absent")
        case "hit", [value]:
            return Fetched("hit", value=value)
        case "stale", [value, token]:
            return Fetched("stale", value=value, token=token)
        case "load", [token]:
            return Fetched("load", token=token)
        case "wait", [left]:
            return Fetched("wait", wait_ms=int(left))
    raise ValueError(f"BF.FETCH answered {reply!r}")


def parse_fill(reply: Any) -> bool:
    """Whether the token was the lease's still."""
    return reply is not None


def in_slot_of(filter: bytes) -> bytes:
    """What other keys begin with that lie in the slot of the filter: that of what stands between the first `{` and the
    next `}`, or else of the whole name."""
    opened = filter.find(b"{")
    closed = filter.find(b"}", opened + 1) if opened >= 0 else -1
    if closed > opened + 1:
        return filter
    if b"}" in filter:
        raise ValueError(f"no other key shares the slot of {filter!r}: give a prefix, or another name to the filter")
    return b"{" + filter + b"}"


def cache_prefix(filter: bytes) -> bytes:
    """What stands before an id in the name of its cache key."""
    return in_slot_of(filter) + b":"


def filling_name(filter: bytes) -> bytes:
    """The name under which a filter is filled; no cache key has it."""
    return in_slot_of(filter) + b"~filling"


def check_socket_timeout(client: object, wait_ms: int) -> None:
    """A client that gives up before the server has answered would ask again and again."""
    pool = getattr(client, "connection_pool", None)
    timeout = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
    if isinstance(timeout, (int, float)) and timeout * 1000 <= wait_ms:
        raise ValueError(f"the client's socket_timeout of {timeout} s has to be longer than wait_ms ({wait_ms} ms)")
