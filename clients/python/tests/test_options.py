"""The options of the guard, which clients/specification/options.json lists, and its events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bloomgate import NearCache
from bloomgate.guard_options import GuardOptions

FOLDER = Path(__file__).parents[2] / "specification"


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
