"""The options of the guard, which clients/specification/options.json lists, and its events."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bloomgate import NearCache
from bloomgate.guard_options import GuardOptions

FOLDER = Path(__file__).parents[2] / "specification"
OPTIONS: list[dict[str, Any]] = json.loads((FOLDER / "options.json").read_text())["options"]


def given(option: dict[str, Any], value: Any) -> Any:
    """Converts a value of options.json for this package: times are in seconds."""
    return value / 1000 if option["unit"] == "ms" and value is not None else value


def test_the_options() -> None:
    """options.json lists every option of the guard with its default and its range."""
    defaults = {option["name"]: given(option, option["default"]) for option in OPTIONS}
    assert defaults == {
        field.name: list(field.default) if field.default == () else field.default for field in dataclasses.fields(GuardOptions)
    }
    for option in (option for option in OPTIONS if "most" in option):
        name, step = option["name"], 0.1 if option["unit"] == "factor" else 1
        for value in (option["least"], option["most"]):
            GuardOptions(**{"feed": name == "fresh", name: given(option, value)})
        for value in (option["least"] - step, option["most"] + step):
            with pytest.raises(ValueError, match=rf"{name} is .*from [\d.]+ to \d+"):
                GuardOptions(**{name: given(option, value)})


def test_the_events() -> None:
    """The page of the specification names every event."""
    page = (FOLDER / "README.md").read_text()
    section = page.partition("## The guard: options and events")[2].partition("## The guard: reading")[0]
    package = (FOLDER.parent / "python" / "README.md").read_text()
    events = package.partition("| event | counts |")[2].partition("\n\n")[0]
    names = [
        name
        for line in events.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
    ]
    assert len(names) == 16 and all(f"`{name}`" in section for name in names)


def test_how_fresh_answers_are() -> None:
    """FRESH limits the age of an answer only if no lease and no near cache outlives it."""
    options: Any = {"feed": True, "lease": 2.0, "fresh": 2.0}
    GuardOptions(**options, near=NearCache(10, 2.0))
    for refused in ({**options, "feed": False}, {**options, "fresh": 1.9}, {**options, "near": NearCache(10, 2.1)}):
        with pytest.raises(ValueError, match="fresh"):
            GuardOptions(**refused)
