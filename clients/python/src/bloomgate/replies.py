"""The replies of BF.INFO, BF.STATS and BF.PLAN as dataclasses. In RESP2 they are flat lists of names and values with numbers
as text, and in RESP3 maps. The dataclasses are the same for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Info:
    """A filter's capacity and contents. `size_bytes` counts its fields and bits; `expansion` is None if it does not grow."""

    capacity: int
    size_bytes: int
    layers: int
    items: int
    expansion: int | None


@dataclass(frozen=True)
class Layer:
    """One layer of a filter. `fill` is the share of its bits that are set. `fill` and `items` are None in a plan."""

    capacity: int
    size_bytes: int
    hashes: int
    items: int | None
    fill: float | None


@dataclass(frozen=True)
class Bucket:
    """One bucket of a filter that forgets; the server lists the oldest first. Times are milliseconds since 1970, None in a
    filter with ROLLING."""

    slot: int
    items: int
    begin_ms: int | None
    end_ms: int | None


@dataclass(frozen=True)
class Stats:
    """A filter's kind and fill. `error_rate_now` is the estimated share of absent items that are found."""

    kind: str
    layout: str
    hash: str
    error_rate: float
    error_rate_now: float
    items: int
    items_estimated: int
    capacity: int
    size_bytes: int
    pending_bytes: int
    layers: tuple[Layer, ...]
    items_deleted: int | None
    room_for_deleted: int | None
    window_s: int | None
    sliding: bool
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True)
class Plan:
    """The size of a filter that does not exist yet."""

    kind: str
    layout: str
    hash: str
    error_rate: float
    capacity: int
    size_bytes: int
    bits_per_item: float
    layers: tuple[Layer, ...]


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def fields(reply: Any) -> dict[str, Any]:
    """Converts a flat list or a map to a dict by name."""
    if isinstance(reply, Mapping):
        return {text(name): value for name, value in reply.items()}
    return {text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def whole(found: dict[str, Any], name: str) -> int | None:
    """Returns a whole number, or None if the field is missing or null."""
    value = found.get(name)
    return None if value is None else int(value)


def booleans(reply: Any) -> list[bool | None]:
    """Converts an array of 1 and 0. An error in it, which can only be the last element, becomes None."""
    return [None if isinstance(answer, Exception) else bool(answer) for answer in reply]


def parse_info(reply: Any) -> Info:
    """Parses BF.INFO without a field. A client whose `bf()` was called returns an object of redis-py."""
    if hasattr(reply, "insertedNum"):
        return Info(reply.capacity, reply.size, reply.filterNum, reply.insertedNum, reply.expansionRate)
    found = fields(reply)
    return Info(
        capacity=int(found["Capacity"]),
        size_bytes=int(found["Size"]),
        layers=int(found["Number of filters"]),
        items=int(found["Number of items inserted"]),
        expansion=whole(found, "Expansion rate"),
    )


def parse_layer(reply: Any) -> Layer:
    found = fields(reply)
    fill = found.get("Fill")
    return Layer(
        capacity=int(found["Capacity"]),
        size_bytes=int(found["Size"]),
        hashes=int(found["Hashes"]),
        items=whole(found, "Number of items inserted"),
        fill=None if fill is None else float(fill),
    )


def parse_bucket(reply: Any) -> Bucket:
    found = fields(reply)
    return Bucket(
        slot=int(found["Slot"]),
        items=int(found["Number of items inserted"]),
        begin_ms=whole(found, "Begin"),
        end_ms=whole(found, "End"),
    )


def parse_stats(reply: Any) -> Stats:
    found = fields(reply)
    return Stats(
        kind=text(found["Kind"]),
        layout=text(found["Layout"]),
        hash=text(found["Hash"]),
        error_rate=float(found["Error rate"]),
        error_rate_now=float(found["Error rate now"]),
        items=int(found["Number of items inserted"]),
        items_estimated=int(found["Number of items estimated"]),
        capacity=int(found["Capacity"]),
        size_bytes=int(found["Size"]),
        pending_bytes=int(found["Size of pending adds"]),
        layers=tuple(map(parse_layer, found["Layers"])),
        items_deleted=whole(found, "Number of items deleted"),
        room_for_deleted=whole(found, "Room for items deleted"),
        window_s=whole(found, "Window"),
        sliding=bool(found.get("Sliding", False)),
        buckets=tuple(map(parse_bucket, found.get("Buckets", ()))),
    )


def parse_plan(reply: Any) -> Plan:
    found = fields(reply)
    return Plan(
        kind=text(found["Kind"]),
        layout=text(found["Layout"]),
        hash=text(found["Hash"]),
        error_rate=float(found["Error rate"]),
        capacity=int(found["Capacity"]),
        size_bytes=int(found["Size"]),
        bits_per_item=float(found["Bits per item"]),
        layers=tuple(map(parse_layer, found["Layers"])),
    )
