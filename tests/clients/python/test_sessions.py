"""What README.md, docs/guard.md and docs/kinds.md show of redis-cli is what it prints."""

import re
import subprocess
from pathlib import Path

import pytest

from test_from import comparable, session

ROOT = Path(__file__).parents[3]
SESSION = re.compile(r"^```\n(> .*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_lines_of_the_first_page_can_be_pasted(server):
    page = (ROOT / "README.md").read_text()
    lines, replies = re.search(r"^```\n(BF[.].*?)^```\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).groups()
    assert lines.count("\n") == 10
    pasted = subprocess.run(["redis-cli", "--no-raw", "-p", str(server.port)], input=lines, capture_output=True, text=True, check=True)
    assert comparable(pasted.stdout) == comparable(replies)


@pytest.mark.parametrize("page", ["guard", "kinds"])
def test_the_sessions_can_be_typed_into_a_new_server(page, server):
    texts = SESSION.findall((ROOT / "docs" / f"{page}.md").read_text())
    assert texts
    for text in texts:
        session(text, server.port)
