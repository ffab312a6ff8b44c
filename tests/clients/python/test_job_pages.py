"""The pages of docs/jobs: the code of each prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "jobs"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
CODE_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_prints_the_shown_output(page, server):
    (code, said), = CODE_AND_OUTPUT.findall(page.read_text())
    assert code.count("redis.Redis()") == 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("redis.Redis()", f"redis.Redis(port={server.port})"), {})
    assert printed.getvalue() == said


def test_every_page_is_listed():
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (FOLDER / "README.md").read_text()))
    assert listed == {page.name for page in PAGES}
    assert len(PAGES) >= 5


def test_the_guard_asks_the_database_if_another_caller_takes_too_long(server):
    (code, _), = CODE_AND_OUTPUT.findall((FOLDER / "guard.md").read_text())
    assert '"WAIT", 3000' in code
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code.replace("redis.Redis()", f"redis.Redis(port={server.port})").replace('"WAIT", 3000', '"WAIT", 10'), names)
    client = names["client"]
    assert client.execute_command("BF.FETCH", "users", "8", "{users}:8", "LEASE", 100_000)[0] == b"load"
    assert names["find"](b"8") == ("database", b"the eighth")
    assert not client.exists("{users}:8")
