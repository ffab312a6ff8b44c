"""The recipes of docs/jobs.md: the code of each prints what the page says, and runs again. The lines of MIGRATING.md run."""

import contextlib
import io
import itertools
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import uuid
from multiprocessing import connection
from pathlib import Path

import pytest

from server import PATIENCE, eventually

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "jobs.md"
MIGRATING = ROOT / "MIGRATING.md"
RECIPES = PAGE.read_text().split("\n## ")[1:]
CODE_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def patient(server):
    """Returns the code of a client that does not send a command again after five seconds: an add that is sent twice is not new."""
    return f"redis.Redis(port={server.port}, socket_timeout={PATIENCE})"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition(":")[0].partition("\n")[0])
def test_the_code_of_a_recipe_prints_the_shown_output_and_runs_again(recipe, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for a recipe that writes a file
    server.client().config_set("bf.auto-create", "no")
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


def defined_by(recipe, server):
    """Runs the definitions of the recipe whose heading begins with these words. Returns its names."""
    (code, _), = (CODE_AND_OUTPUT.findall(text)[0] for text in RECIPES if text.startswith(recipe))
    names = {}
    exec(code.rpartition("\n\n")[0].replace("redis.Redis()", patient(server)), names)
    return names


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


def test_a_crawler_that_ends_before_any_of_its_commands_loses_no_link(server):
    for commands in itertools.count():
        names = defined_by("A crawler", server)
        client, fetched, allowed = names["client"], [], iter(range(commands))
        client.flushall()
        send = client.execute_command

        def send_or_end(*words, **options):
            if next(allowed, None) is None:
                raise KeyboardInterrupt
            return send(*words, **options)

        client.execute_command = send_or_end
        try:
            fetched += names["crawl"]("ended", "worker-1")
            break
        except KeyboardInterrupt:
            client.execute_command = send
            fetched += names["crawl"]("ended", "worker-1")
        assert sorted(fetched) == sorted(names["web"])
    assert commands > 10


def test_a_crawl_continues_after_its_server_was_killed(start):
    server, fetched = start("appendonly yes", "appendfsync always"), []
    for pages in range(4):
        fetched += itertools.islice(defined_by("A crawler", server)["crawl"]("continued", "worker-1"), pages)
        server.restart()
    names = defined_by("A crawler", server)
    fetched += names["crawl"]("continued", "worker-1")
    assert sorted(fetched) == sorted(names["web"]), "every page once, and none again"


LEASE_MS = 3000


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def consume(server, name):
    """A worker on the stream `mail`, which dies in one of 40 works and after one of 40 messages, unless its name is "immortal". The
    work counts the message."""
    names, rng = defined_by("Each message once", server), random.Random(name)
    client, handle = names["client"], names["handle"]

    def may_die():
        if name != "immortal" and rng.random() < 1 / 40:
            die()

    def work(message):
        may_die()
        client.hincrby("works", message)

    while client.xlen("mail"):
        _, entries, *_ = client.xautoclaim("mail", "workers", name, LEASE_MS // 3)
        if not entries:
            streams = client.xreadgroup("workers", name, {"mail": ">"}, count=1, block=100)
            entries = streams[0][1] if streams else []
        for entry, fields in entries:
            if handle(fields[b"id"].decode(), work, LEASE_MS):
                may_die()
                client.xdel("mail", entry)


def test_messages_that_are_delivered_twice_to_dying_workers_are_processed_once(server):
    client = server.client()
    for number in range(6000):
        client.xadd("mail", {"id": f"message-{number // 2}"})
    client.xgroup_create("mail", "workers", 0)
    fork = multiprocessing.get_context("fork")
    workers, deaths = [], 0
    try:
        for number in itertools.count():
            # The last deliveries must not wait for one worker after the other.
            name = str(number) if deaths < 174 else "immortal"
            workers.append(fork.Process(target=consume, args=(server, name)))
            workers[-1].start()
            if len(workers) < 4:
                continue
            sentinels = connection.wait([worker.sentinel for worker in workers])
            ended = [worker for worker in workers if worker.sentinel in sentinels]
            for worker in ended:
                worker.join()
            if any(worker.exitcode == 0 for worker in ended):
                break
            assert {worker.exitcode for worker in ended} == {-signal.SIGKILL}
            deaths += len(ended)
            workers = [worker for worker in workers if worker not in ended]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    assert deaths >= 174
    works = client.hgetall("works")
    assert len(works) == 3000
    assert set(works.values()) == {b"1"}
    assert client.bf().card("{mail}:done") == 3000


def test_the_work_is_repeated_if_its_worker_dies_before_the_message_is_done(server):
    client, handle = server.client(), defined_by("Each message once", server)["handle"]

    def work_and_die(message):
        client.incr(message)
        die()

    worker = multiprocessing.get_context("fork").Process(target=handle, args=("m", work_and_die, 60_000))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    assert handle("m", client.incr) is False, "the claim of the dead worker holds"
    client.pexpire("{mail}:claim:m", 1)
    eventually("the end of the claim", lambda: handle("m", client.incr))
    assert handle("m", client.incr) is True
    assert client.get("m") == b"2"


def test_a_message_takes_a_tenth_of_a_key(server):
    client, options = server.client(), defined_by("Each message once", server)["DONE"]
    # An eighth bucket begins after seven days.
    for bucket in range(8):
        if bucket:
            client.execute_command("BF.ROTATE", "done")
        for first in range(0, 142_000, 1000):
            items = (f"{bucket}:{number}" for number in range(first, first + 1000))
            client.execute_command("BF.INSERT", "done", *options, "ITEMS", *items)
    assert client.memory_usage("done") < 11 * 1_000_000
    client.set(f"done:{uuid.uuid4()}", 1, nx=True, ex=604_800)
    (key,) = client.keys("done:*")
    assert client.memory_usage(key) > 60, "and as much again in the tables of keys and of times to live"


def test_the_index_decides_about_every_row_that_the_filter_lacks(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = defined_by("Insert once", server)
    insert, database = names["insert"], names["database"]

    # Another program has inserted a row; a batch has a row twice.
    with database:
        database.execute("INSERT INTO users VALUES ('other')")
    assert insert("other", "new", "new") == (3, 1)
    assert insert("other", "new") == (0, 0)

    # A row of a transaction that fails is not known.
    database.execute("CREATE TRIGGER refusal BEFORE INSERT ON users BEGIN SELECT RAISE(ROLLBACK, 'refused'); END")
    with pytest.raises(sqlite3.IntegrityError):
        insert("later")
    database.execute("DROP TRIGGER refusal")
    assert insert("later") == (1, 1)

    # The lost filter is created again with its rate.
    server.client().flushall()
    assert insert("later") == (1, 0)
    assert float(server.client().execute_command("BF.INFO", "emails", "ERROR")) == pytest.approx(1e-9)


def test_first_visits_are_recognised_and_counted(server):
    names, client, visitors = defined_by("Daily visitors", server), server.client(), [f"visitor-{number}" for number in range(3000)]
    firsts = [names["is_first_visit"](visitor, "today") for visitor in visitors]
    assert not any(names["is_first_visit"](visitor, "today") for visitor in visitors)
    assert 2980 <= sum(firsts) == client.bf().card("visitors:today")
    assert client.ttl("visitors:today") > 39 * 86400


@pytest.mark.parametrize("words", [["WINDOW", 86400], ["WINDOW", 86400, "SLIDING"], ["ROLLING"]], ids=str)
def test_first_visits_are_recognised_without_days(words, server):
    names = defined_by("Daily visitors", server)
    names["DAY"][4:] = words
    assert [names["is_first_visit"](visitor, "all") for visitor in ("ann", "bob", "ann")] == [True, True, False]
    assert server.client().ttl("visitors:all") == -1


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
