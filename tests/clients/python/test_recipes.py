"""The recipes of docs/jobs.md: the code of each prints what the page says, and runs again. The lines of MIGRATING.md run."""

import contextlib
import io
import itertools
import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from server import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "jobs.md"
MIGRATING = ROOT / "MIGRATING.md"
RECIPES = PAGE.read_text().split("\n## ")[1:]
CODE_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def patient(server):
    """Returns the code of a client that does not send a command again after five seconds: an add that is sent twice is not new."""
    return f"redis.Redis(port={server.port}, socket_timeout={PATIENCE})"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition(":")[0].partition("\n")[0])
def test_the_code_of_a_recipe_prints_the_shown_output_and_runs_again(recipe, server):
    (code, said), = CODE_AND_OUTPUT.findall(recipe)
    assert code.count("redis.Redis()") == 1
    code = code.replace("redis.Redis()", patient(server))
    first, second = io.StringIO(), io.StringIO()
    for printed in first, second:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
    assert first.getvalue() == said
    # It finds the keys of the first run, so it may print something else.
    assert second.getvalue().count("\n") == said.count("\n")


# Runs one worker of the crawler on a site of 400 pages, and prints each page as it is fetched. A fetch ends with a line of
# the standard input or with its end, so a worker that is killed is in the middle of a crawl.
CRAWLER = """
import sys
{recipe}
class Site:
    def __getitem__(self, page):
        print(page, flush=True)
        sys.stdin.readline()
        number = int(page[1:] or 0)
        return [f"/{{link}}" for link in (2 * number + 1, 2 * number + 2, number // 2) if link < 400]

web = Site()
for page in crawl("killed", {worker!r}):
    pass
"""


def test_a_killed_crawler_loses_no_link(server):
    recipe, = (recipe for recipe in RECIPES if recipe.startswith("A crawler"))
    (code, _), = CODE_AND_OUTPUT.findall(recipe)
    code = code.partition("\nprint(")[0].replace("redis.Redis()", patient(server))
    workers, fetched, kills, rng = ["worker-1", "worker-2"], [], 0, random.Random(1)
    for run in itertools.count():
        # Six times 38 pages are fewer than the site has.
        counts = [rng.randrange(1, 20) if run < 6 else None for _ in workers]
        crawlers = [
            subprocess.Popen(
                [sys.executable, "-c", CRAWLER.format(recipe=code, worker=worker)],
                stdin=subprocess.PIPE if count else subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            )
            for worker, count in zip(workers, counts)
        ]
        for crawler, count in zip(crawlers, counts):
            if count:
                with contextlib.suppress(BrokenPipeError):  # It has ended: the other one has the only link.
                    crawler.stdin.write("\n" * count)
                    crawler.stdin.flush()
                fetched += itertools.islice(crawler.stdout, count)
                kills += crawler.poll() is None
                crawler.kill()
            fetched += crawler.stdout
            crawler.wait()
        if run >= 6 and all(crawler.returncode == 0 for crawler in crawlers):
            break
    pages = {page.strip() for page in fetched}
    assert pages == {"/", *(f"/{number}" for number in range(400))}
    assert kills >= 6
    assert len(fetched) <= len(pages) + kills, "only pages whose worker was killed are fetched again"
    left = server.client().keys("{killed}:*")
    assert left == [b"{killed}:seen"]


def test_the_page_has_its_recipes():
    assert len(RECIPES) >= 4


def test_the_lines_of_the_page_on_migrating_run_twice(server):
    client = server.client()
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", MIGRATING.read_text(), re.MULTILINE | re.DOTALL)
    copying, replacing = map(textwrap.dedent, blocks)
    client.execute_command("BF.RESERVE", "large", 0.01, 1000, "LAYOUT", "redisbloom")
    client.bf().madd("large", "a", "b")
    new = server.client(db=1)
    names = {"old": client, "new": new, "r": client}
    client.bf().add("seen", "known")
    for _ in range(2):
        exec(copying, names)
        assert new.bf().mexists("large", "a", "b", "c") == [True, True, False]
        exec(replacing, names)
        assert names["first_time"]("known") is False
    assert names["first_time"]("new") is True
    assert names["first_time"]("new") is False
