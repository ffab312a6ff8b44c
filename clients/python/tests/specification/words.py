"""The JSON of the cases: items, the words of commands, and replies, as Python values and as bytes of a connection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "specification"

MEMBERS = {"name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps"}
NEEDS = {"cancel", "turns", "timeout", "pool", "share", "pause", "fatal", "resp2", "resp3"}
OPTIONS = FOLDER / "options.json"
SERVERS = {"scripted", "real", "cluster"}


class SpecificationError(Exception):
    """A case that this runner does not understand."""


def known(what: str, names: set[str], allowed: set[str]) -> None:
    if unknown := names - allowed:
        raise SpecificationError(f"{what}: unknown: {', '.join(sorted(unknown))}")


def read_cases(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Reads the cases of all files."""
    cases: list[dict[str, Any]] = []
    for path in sorted(set(folder.glob("*.json")) - {OPTIONS}):
        content = json.loads(path.read_text(encoding="utf-8"))
        known(path.name, set(content), {"about", "cases"})
        for case in content["cases"]:
            known(f"{path.name}, {case.get('name')}", set(case), MEMBERS)
            known(f"{path.name}, {case['name']}, needs", set(case.get("needs", [])), NEEDS)
            known(f"{path.name}, {case['name']}, servers", set(case["servers"]), SERVERS)
            cases.append(case)
    names = [case["name"] for case in cases]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise SpecificationError(f"two cases have the name {repeated}")
    return cases


def token(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def one_item(item: Any) -> Any:
    """Returns an item, an id or a value that a case names."""
    if not isinstance(item, dict):
        return item
    match item:
        case {"hex": digits}:
            return bytes.fromhex(digits)
        case {"integer": digits}:
            return int(digits)
        case {"boolean": value} | {"float": value}:
            return value
        case {"null": True}:
            return None
    raise SpecificationError(f"unknown item {item}")


def item_list(items: Any) -> Any:
    """Returns items. A text is one item where a batch is expected, which a client refuses."""
    match items:
        case str():
            return items
        case list():
            return [one_item(item) for item in items]
        case {"items": {"numbers": [first, end], **rest}} if not rest:
            return list(range(first, end))
        case {"items": {"filled": size, "times": times, **rest}} if not rest:
            return ["a" * size] * times
    raise SpecificationError(f"unknown items {items}")


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
    """Returns the words that a word of an expected command stands for."""
    match word:
        case {"items": _}:
            return [str(item) for item in item_list(word)]
        case {"pairs": items, "prefix": prefix}:
            return [one for item in item_list({"items": items}) for one in (str(item), f"{prefix}{item}")]
    return [word]


def command_matches(expected: list[Any], words: list[bytes]) -> bool:
    spread = [one for word in expected for one in expanded(word)]
    if len(spread) != len(words):
        return False
    return words[0].upper() == spread[0].encode().upper() and all(map(word_matches, spread[1:], words[1:]))


def encode(reply: Any, protocol: int) -> bytes:
    """Returns the bytes of a reply on a connection that speaks the protocol."""
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
