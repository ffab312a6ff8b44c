"""Converts values to the bytes that the guard caches, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

V = TypeVar("V")


class Codec(Protocol[V]):
    """Converts a value to bytes and back. If `decode` raises, the guard loads the row and replaces the cached value. Every
    caller gets the result of `decode`, including the caller that loaded the row."""

    def encode(self, value: V, /) -> bytes: ...

    def decode(self, data: bytes, /) -> V: ...


class Bytes:
    """Returns bytes unchanged. The guard's default."""

    def encode(self, value: bytes, /) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"the loaded value is {type(value).__name__}, not bytes: pass a codec to the guard")
        return value

    def decode(self, data: bytes, /) -> bytes:
        return data


class Json:
    """Converts values that JSON can represent, in UTF-8. `default` converts all other types, as in `json.dumps`:
    `Json(default=str)` stores dates as strings, and every caller gets strings. NaN and infinities raise ValueError: other
    readers of JSON refuse them."""

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        self._encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=default)

    def encode(self, value: Any, /) -> bytes:
        return self._encoder.encode(value).encode()

    def decode(self, data: bytes, /) -> Any:
        return json.loads(data)
