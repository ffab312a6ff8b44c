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
