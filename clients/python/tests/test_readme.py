"""The examples of the README run, in their order; those that are marked `skip` are lines of files that other tests run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import bloomgate
import bloomgate.asyncio

README = Path(__file__).parents[1] / "README.md"


def test_the_examples(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connect, aconnect = bloomgate.connect, bloomgate.asyncio.connect
    monkeypatch.setattr(bloomgate, "connect", lambda url: connect(url.replace("6379", str(port))))
    monkeypatch.setattr(bloomgate.asyncio, "connect", lambda url: aconnect(url.replace("6379", str(port))))
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"README example {number}", "exec"), names)
