"""The protocol of Redis, for both ends: the commands and replies in cases, and a plain connection to a real server."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from typing import Any

from cases import SpecificationError, item_list


def token(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def encode(reply: Any, protocol: int) -> bytes:
    """Returns the bytes of a reply in a protocol version."""
    match reply:
        case None:
            return b"$-1\r\n" if protocol == 2 else b"_\r\n"
        case bool():
            return b":%d\r\n" % reply if protocol == 2 else b"#%b\r\n" % (b"t" if reply else b"f")
        case int():
            return b":%d\r\n" % reply
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case str():
            return encode(reply.encode(), protocol)
        case list():
            return b"*%d\r\n%b" % (len(reply), b"".join(encode(one, protocol) for one in reply))
        case {"hex": digits}:
            return encode(bytes.fromhex(digits), protocol)
        case {"token": name}:
            return encode(token(name), protocol)
        case {"ok": text}:
            return b"+%b\r\n" % text.encode()
        case {"error": text}:
            return b"-%b\r\n" % text.encode()
        case {"repeat": one, "times": times}:
            return encode([one] * times, protocol)
        case {"wire": text}:
            return bytes(text.encode("latin-1"))
    raise SpecificationError(f"unknown reply {reply}")


def read_commands(file: Any) -> Iterator[list[bytes]]:
    """Reads the commands of a connection until it is closed."""
    while line := file.readline():
        words = []
        for _ in range(int(line[1:])):
            length = int(file.readline()[1:])
            words.append(file.read(length + 2)[:-2])
        yield words


def word_matches(expected: Any, word: bytes) -> bool:
    match expected:
        case str():
            return word == expected.encode()
        case {"hex": digits}:
            return word == bytes.fromhex(digits)
        case {"token": name}:
            return word == token(name).encode()
        case {"from": least, "to": most}:
            return word.isdigit() and least <= int(word) <= most
    raise SpecificationError(f"unknown word {expected}")


def expanded(word: Any) -> list[Any]:
    """Expands one word of an expected command to the words that it abbreviates."""
    match word:
        case {"items": items}:
            return [str(item) for item in item_list(items)]
        case {"pairs": items, "prefix": prefix}:
            return [one for item in item_list(items) for one in (str(item), f"{prefix}{item}")]
    return [word]


def command_matches(expected: list[Any], words: list[bytes]) -> bool:
    spread = [one for word in expected for one in expanded(word)]
    if len(spread) != len(words):
        return False
    return words[0].upper() == spread[0].encode().upper() and all(map(word_matches, spread[1:], words[1:]))


class ErrorReply(Exception):
    """An error reply of a real server."""


class Client:
    """A connection to a real server in RESP2."""

    def __init__(self, port: int, patience_s: float) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), patience_s)
        self.file = self.socket.makefile("rb")

    def send(self, *words: str | bytes) -> None:
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        self.socket.sendall(b"*%d\r\n%b" % (len(encoded), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)))

    def read(self) -> Any:
        """Returns a reply. Raises it if it is an error."""
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b":":
                return int(rest)
            case b"+":
                return rest
            case b"$":
                return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
            case b"*":
                return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        raise ErrorReply(rest.decode())

    def command(self, *words: str | bytes) -> Any:
        self.send(*words)
        return self.read()

    def close(self) -> None:
        self.file.close()
        self.socket.close()
