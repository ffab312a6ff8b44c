"""The guard's options, the names of cache keys, and the replies of its commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from .items import Key, refuse_single
from .near import NearCache
from .replies import text

# The range of each time, in seconds, and of each number, which must be an integer except for `beta`.
# scripts/generate-options writes these lines.
TIMES: dict[str, tuple[float, float]] = {
    "ttl": (0.001, 1_000_000_000),
    "absent_ttl": (0.001, 1_000_000_000),
    "lease": (0.001, 3600),
    "wait": (0, 86_400),
    "fail_safe": (0, 1_000_000_000),
    "soft_timeout": (0, 86_400),
    "fresh": (0, 3600),
    "patience": (0, 86_400),
    "replicas_timeout": (0.001, 86_400),
}
NUMBERS: dict[str, tuple[int, int]] = {
    "attempts": (1, 1000),
    "beta": (0, 1000),
    "replicas": (0, 1000),
}


class GuardArguments(TypedDict, total=False):
    """The options of `bloomgate.Guard`, which documents them."""

    # scripts/generate-options writes these lines.
    ttl: float
    absent_ttl: float
    lease: float
    wait: float
    attempts: int
    fail_safe: float
    soft_timeout: float | None
    beta: float
    near: NearCache | None
    feed: bool
    fresh: float
    patience: float
    prefix: Key | None
    announce_to: Sequence[Key]
    replicas: int
    replicas_timeout: float
    aof: bool


@dataclass(frozen=True)
class GuardOptions:
    """See `bloomgate.Guard`."""

    # scripts/generate-options writes these lines.
    ttl: float = 60.0
    absent_ttl: float = 10.0
    lease: float = 3.0
    wait: float = 3.0
    attempts: int = 3
    fail_safe: float = 0.0
    soft_timeout: float | None = None
    beta: float = 1.0
    near: NearCache | None = None
    feed: bool = False
    fresh: float = 0.0
    patience: float = 30.0
    prefix: Key | None = None
    announce_to: Sequence[Key] = ()
    replicas: int = 0
    replicas_timeout: float = 1.0
    aof: bool = False

    def __post_init__(self) -> None:
        refuse_single(self.announce_to)
        for name in TIMES:
            if name != "soft_timeout" or self.soft_timeout is not None:
                milliseconds(name, getattr(self, name))
        for name in NUMBERS:
            check_number(name, getattr(self, name))
        if self.feed and (self.announce_to or self.replicas or self.aof):
            raise ValueError("with feed=True the follower announces changes: announce_to, replicas and aof have no effect")
        if self.fresh and not (self.feed and self.fresh >= self.lease):
            raise ValueError(f"fresh needs feed=True, and must be at least the lease, {self.lease} s; it is not {self.fresh!r}")
        if self.fresh and self.near is not None and self.near.seconds > self.fresh:
            raise ValueError(f"the near cache keeps values for longer than fresh, {self.fresh} s")

    @property
    def fail_safe_ms(self) -> int:
        """How long a value stays cached after its time to live."""
        return round(self.fail_safe * 1000)

    @property
    def longest_wait(self) -> float:
        """The longest time for which the server withholds a reply."""
        return max(self.wait, self.replicas_timeout if self.replicas or self.aof else 0)


def check_number(name: str, number: object) -> None:
    """Raises an error if a number is out of the range of the option with this name, or not an integer."""
    least, most = NUMBERS[name]
    kinds = (int, float) if name == "beta" else (int,)
    if isinstance(number, bool) or not isinstance(number, kinds) or not least <= number <= most:
        raise ValueError(f"{name} is a {'' if float in kinds else 'whole '}number from {least} to {most}, not {number!r}")


def milliseconds(name: str, seconds: float) -> int:
    """Converts a time, which must be in the range of the option with this name."""
    least, most = TIMES[name]
    if not least <= seconds <= most:
        raise ValueError(f"{name} is from {least} to {most} seconds, not {seconds!r}")
    return round(seconds * 1000)


class Fetched(NamedTuple):
    """A reply of BF.FETCH: `value` is set for hit and stale, `token` for load and stale."""

    word: str
    value: bytes = b""
    token: bytes = b""


ABSENT = Fetched("absent")


def parse_fetch(reply: Any) -> Fetched:
    word, *rest = reply
    if word == b"hit" and len(rest) == 1:
        return Fetched("hit", rest[0])
    match text(word), rest:
        case "absent", []:
            return ABSENT
        case "hit", [value]:
            return Fetched("hit", value=value)
        case "stale", [value, token]:
            return Fetched("stale", value=value, token=token)
        case "load", [token]:
            return Fetched("load", token=token)
        case "wait" | "failed" as answer, [_]:
            return Fetched(answer)
    raise ValueError(f"BF.FETCH answered {reply!r}")


def parse_mfetch(reply: Any) -> list[Any]:
    """Reads a reply of BF.MFETCH. A row has an error in place of an answer if its cache key has another type, or if its answer
    cannot be parsed."""

    def parse(one: Any) -> Any:
        try:
            return one if isinstance(one, Exception) else parse_fetch(one)
        except Exception as error:
            return error

    return [parse(one) for one in reply]


def parse_fill(reply: Any) -> bool:
    """Returns whether the token was still valid."""
    return reply is not None


def in_slot_of(filter: bytes) -> bytes:
    """Returns a prefix of key names in the cluster slot of the filter. Its hash tag is the text between the first `{` and the
    next `}`, or else the whole name."""
    opened = filter.find(b"{")
    closed = filter.find(b"}", opened + 1) if opened >= 0 else -1
    if closed > opened + 1:
        return filter
    if b"}" in filter:
        raise ValueError(f"no other key shares the slot of {filter!r}: rename the filter, or, without a feed, pass a prefix")
    return b"{" + filter + b"}"


def cache_prefix(filter: bytes) -> bytes:
    """Returns the prefix of cache keys."""
    return in_slot_of(filter) + b":"


class FeedKeys:
    """The keys that `bloomgate follow` uses for a filter; crates/follow/src/config.rs defines their names."""

    def __init__(self, filter: bytes) -> None:
        base = in_slot_of(filter)
        self.heartbeat = base + b":feed"
        self.in_flight = base + b":feed:open"


def filling_name(filter: bytes) -> bytes:
    """Returns the name under which a filter is filled. No cache key has this name."""
    return in_slot_of(filter) + b"~filling"


def check_socket_timeout(client: object, longest_wait: float) -> None:
    """Refuses a cluster's client whose time limit is too short for commands that wait in the server. Other clients extend
    their limit for such commands."""
    kwargs = getattr(getattr(client, "nodes_manager", client), "connection_kwargs", None) or {}
    timeout = kwargs.get("socket_timeout")
    if isinstance(timeout, (int, float)) and timeout <= longest_wait:
        raise ValueError(
            f"the socket_timeout of a cluster's client, {timeout} s here, has to be longer than wait and"
            f" replicas_timeout ({longest_wait} s)"
        )
