"""Runs the examples of the README, in their order and twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from server import PATIENCE

import bloomgate
import bloomgate.asyncio

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_twice(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connect, aconnect = bloomgate.connect, bloomgate.asyncio.connect
    monkeypatch.setattr(bloomgate, "connect", lambda url: connect(url.replace("6379", str(port)), timeout=PATIENCE))
    monkeypatch.setattr(bloomgate.asyncio, "connect", lambda url: aconnect(url.replace("6379", str(port)), timeout=PATIENCE))
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for _ in range(2):
        names: dict[str, Any] = {}
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"README.md, example {number}", "exec"), names)
