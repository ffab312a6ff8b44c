"""The JSON of the cases: their files, which are checked as a whole before one of them runs, and their items."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]
LISTS = {FOLDER / "options.json", FOLDER / "server-errors.json"}

MEMBERS = {"name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps"}
SERVERS = ("scripted", "real", "cluster")
NEEDS = {"cancel", "turns", "timeout", "pool", "share", "pause", "fatal", "background", "transaction", "resp2", "resp3"}
OUTCOME = {"result", "error", "message", "answers", "ids"}
STEPS = {
    "call": {"with", "process", *OUTCOME},
    "start": {"call", "with", "process"},
    "start_together": set(),
    "expect": {"reply", "hold", "on", "not_on"},
    "expect_all": set(),
    "answer": {"reply"},
    "called": {"ids"},
    "return": {"value"},
    "raise": {"message", "fatal"},
    "cancel": set(),
    "end": OUTCOME,
    "quiet": set(),
    "pause": set(),
}
"""The steps, and the additional members of each."""

SCRIPTED_ONLY = {"expect", "expect_all", "answer", "quiet"}
"""Steps that are skipped on real servers."""

ERRORS = {"FilterExists", "FilterFull", "FilterLoading", "FilterMissing", "LoadFailed", "ModuleMissing"} | {
    "ShardMissing", "ShardsChanged", "TimeoutError", "Unconfirmed", "cancelled", "connection", "fatal", "load", "refused", "server",
    "shared",
}


class SpecificationError(Exception):
    """A case that this runner, or an adapter, does not understand."""


def known(what: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := set(names) - set(allowed):
        raise SpecificationError(f"{what}: unknown: {', '.join(sorted(unknown))}")


def read_cases() -> list[dict[str, Any]]:
    """Reads and checks the cases of all files."""
    cases: list[dict[str, Any]] = []
    for path in sorted(set(FOLDER.glob("*.json")) - LISTS):
        content = json.loads(path.read_text(encoding="utf-8"))
        known(path.name, content, {"about", "cases"})
        for case in content["cases"]:
            check(f"{path.name}, {case.get('name')}", case)
            cases.append(case)
    names = [case["name"] for case in cases]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise SpecificationError(f"two cases have the name {repeated}")
    check_errors(set(server_errors(cases)))
    return cases


def option_cases() -> list[dict[str, Any]]:
    """Returns a case for each end of each range in options.json: the value is accepted, and the next one outside is refused. Below 0
    there is no case, because some languages have no such value."""
    cases: list[dict[str, Any]] = []
    for option in json.loads((FOLDER / "options.json").read_text(encoding="utf-8"))["options"]:
        name, is_time = option["name"], option["unit"] == "ms"
        in_ms = name in ("lease", "wait", "fresh", "replicas_timeout")
        for end, outside in (("least", -1), ("most", 1)) if "least" in option else ():
            accepted = {"call": "guard.announce", "with": {"ids": []}, "result": None}
            refused = {"call": "guard.get", "with": {"id": 17}, "error": "refused"}
            for value, step in ((option[end], accepted), (option[end] + outside, refused)):
                guard = {"filter": "users", f"{name}_ms" if in_ms else name: value / 1000 if is_time and not in_ms else value}
                if name == "fresh":
                    guard["feed"] = True
                case = {"name": f"option-{name}", "servers": ["scripted"], "guard": guard, "steps": [step]}
                if value >= 0:
                    # A client that makes one call at a time has no soft timeout.
                    cases.append(case | ({"needs": ["share"]} if name == "soft_timeout" else {}))
    return cases


def check_errors(texts: set[str]) -> None:
    """Checks that the errors of the scripted server are in the list, which is compared with a real server. Of the errors
    without ERR, the list contains only those that clients act on."""
    rows = [row["text"] for row in json.loads((FOLDER / "server-errors.json").read_text(encoding="utf-8"))["errors"]]
    matched = {row: {text for text in texts if text == row or row.endswith("...") and text.startswith(row[:-3].rstrip())} for row in rows}
    unlisted = {text for text in texts if text.startswith("ERR ")}.difference(*matched.values())
    if wrong := unlisted | {row for row in rows if not matched[row]}:
        raise SpecificationError(f"only the cases or only server-errors.json have {sorted(wrong)}")


def server_errors(part: Any) -> Iterator[str]:
    """The texts of the error replies in a part of the cases."""
    match part:
        case {"error": str(text), **rest} if not rest:
            yield text
        case dict():
            for value in part.values():
                yield from server_errors(value)
        case list():
            for value in part:
                yield from server_errors(value)


def check(what: str, case: dict[str, Any]) -> None:
    """Raises an error for an unknown part of a case."""
    known(what, case, MEMBERS)
    known(f"{what}, needs", case.get("needs", []), NEEDS)
    known(f"{what}, servers", case["servers"], SERVERS)
    known(f"{what}, client", case.get("client", {}), {"connections", "timeout_ms"})
    for number, step in enumerate(case["steps"], 1):
        name = next(iter(step))
        if name not in STEPS:
            raise SpecificationError(f"{what}, step {number}: unknown step {step}")
        known(f"{what}, step {number}", set(step) - {name}, STEPS[name])
        for inner, one in [(inner, one) for inner in ("start", "expect") for one in step.get(f"{inner}_{SUFFIXES[inner]}", [])]:
            known(f"{what}, step {number}", one, {inner, *STEPS[inner]})
        if "error" in step:
            known(f"{what}, step {number}, error", [step["error"]], ERRORS)


SUFFIXES = {"start": "together", "expect": "all"}


def needs(case: dict[str, Any]) -> set[str]:
    """Returns the abilities that a case needs: the ones that it names, and the parts of a client that not every language
    has."""
    found = set(case.get("needs", []))
    calls = {step["call"] for step in case["steps"] if "call" in step}
    if any(call.startswith("shard") for call in calls):
        found.add("sharded")
    if any(step.get("call") == "guard.get_in_transaction" for step in case["steps"]):
        found.add("transaction")
    if overlaps(case["steps"]):
        found.add("share")
    return found


def overlaps(steps: list[dict[str, Any]]) -> bool:
    """Whether a process has concurrent activities: overlapping calls, or a function that outlives its call."""
    running: dict[str, str] = {}
    for step in steps:
        if "call" in step:
            process = step.get("process", "A")
            if process in running.values():
                return True
            if "start" in step:
                running[step["start"]] = process
        elif "end" in step:
            running.pop(step["end"], None)
        elif {"return", "raise"} & set(step) and next(iter(step.values())) not in running:
            return True
    return False


def item_list(items: Any) -> list[Any]:
    """Returns the items of a case, which are a list or an abbreviation."""
    match items:
        case list():
            return items
        case {"items": inner, **rest} if not rest:
            return item_list(inner)
        case {"numbers": [first, end], **rest} if not rest:
            return list(range(first, end))
        case {"filled": size, "times": times, **rest} if not rest:
            return ["a" * size] * times
    raise SpecificationError(f"unknown items {items}")


def argument(value: Any) -> Any:
    """Returns an argument of a call in the form for an adapter: items in full, and a text that is not UTF-8 as its UTF-16 code
    units."""
    match value:
        case str() if not value.isascii() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in value):
            return {"utf16": [ord(letter) for letter in value]}
        case list():
            return [argument(one) for one in value]
        case {"items": items, **rest} if not rest:
            return item_list(items)
    return value


def equal(expected: Any, found: Any) -> bool:
    """Compares JSON values. A number never equals a boolean, and floating-point numbers are compared with a tolerance."""
    if isinstance(expected, dict) and set(expected) == {"repeat", "times"}:
        expected = [expected["repeat"]] * expected["times"]
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(equal(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(equal, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, float) or isinstance(found, float):
        return isinstance(found, (int, float)) and math.isclose(expected, found, rel_tol=1e-9)
    return bool(expected == found)


def named_alike(result: Any) -> Any:
    """Renames the fields of a filter's description to the names in the cases: languages write `size_bytes`, `sizeBytes` or
    `SizeBytes`."""
    if isinstance(result, dict):
        names = {"windowseconds": "window_s", **{name.replace("_", "").lower(): name for name in FIELDS}}
        return {names.get(name.replace("_", "").lower(), name): named_alike(value) for name, value in result.items()}
    if isinstance(result, list):
        return [named_alike(one) for one in result]
    return result


FIELDS = {"begin_ms", "bits_per_item", "buckets", "capacity", "end_ms", "error_rate", "error_rate_now", "expansion", "fill", "hash"} | {
    "hashes", "items", "items_deleted", "items_estimated", "kind", "layers", "layout", "pending_bytes", "room_for_deleted", "size_bytes",
    "sliding", "slot", "window_s",
}
