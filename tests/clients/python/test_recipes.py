"""The recipes of docs/jobs.md: the code of each prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"
RECIPES = PAGE.read_text().split("\n## ")[1:]
CODE_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition(":")[0].partition("\n")[0])
def test_the_code_of_a_recipe_prints_the_shown_output(recipe, server):
    (code, said), = CODE_AND_OUTPUT.findall(recipe)
    assert code.count("redis.Redis()") == 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("redis.Redis()", f"redis.Redis(port={server.port})"), {})
    assert printed.getvalue() == said


def test_the_page_has_its_recipes():
    assert len(RECIPES) >= 5


def test_the_guard_asks_the_database_if_another_caller_takes_too_long(server):
    recipe, = (recipe for recipe in RECIPES if recipe.startswith("A guard"))
    (code, _), = CODE_AND_OUTPUT.findall(recipe)
    assert '"WAIT", 3000' in code
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code.replace("redis.Redis()", f"redis.Redis(port={server.port})").replace('"WAIT", 3000', '"WAIT", 10'), names)
    client = names["client"]
    assert client.execute_command("BF.FETCH", "users", "8", "{users}:8", "LEASE", 100_000)[0] == b"load"
    assert names["find"](b"8") == ("database", b"the eighth")
    assert not client.exists("{users}:8")
