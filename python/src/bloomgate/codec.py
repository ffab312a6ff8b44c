"""Values as bytes: what the guard puts into the cache."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

V = TypeVar("V")


class Codec(Protocol[V]):
    """Makes bytes of a value, and the value of the bytes again. `decode` may raise: the value is then loaded."""

    def encode(self, value: V, /) -> bytes: ...

    def decode(self, data: bytes, /) -> V: ...


class Bytes:
    """Bytes as they are: what the guard uses where no codec is given."""

    def encode(self, value: bytes, /) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"the loaded value is {type(value).__name__}, not bytes: give the guard a codec")
        return value

    def decode(self, data: bytes, /) -> bytes:
        return data


class Json:
    """What JSON can say, in UTF-8."""

    def encode(self, value: Any, /) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes, /) -> Any:
        return json.loads(data)
