"""What docs/guard.md and docs/kinds.md show of redis-cli is what it prints."""

import re
from pathlib import Path

import pytest

from test_from import session

ROOT = Path(__file__).parents[3]
SESSION = re.compile(r"^```\n(> .*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["guard", "kinds"])
def test_a_session_can_be_typed_into_a_new_server(page, server):
    (text,) = SESSION.findall((ROOT / "docs" / f"{page}.md").read_text())
    session(text, server.port)
