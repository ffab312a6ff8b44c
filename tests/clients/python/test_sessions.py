"""The redis-cli sessions in README.md, docs/faq.md, docs/guard.md and docs/kinds.md, and the transcripts in cli/, match its output."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOKEN = re.compile(r"\b[0-9a-f]{32}\b")
SESSION = re.compile(r"^```\n(> .*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_lines_of_the_first_page_can_be_pasted(server):
    page = (ROOT / "README.md").read_text()
    lines, replies = re.search(r"^```\n(BF[.].*?)^```\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).groups()
    assert lines.count("\n") == 10
    pasted = subprocess.run(["redis-cli", "--no-raw", "-p", str(server.port)], input=lines, capture_output=True, text=True, check=True)
    assert comparable(pasted.stdout) == comparable(replies)


@pytest.mark.parametrize("name, options", [("resp2", "--no-raw"), ("resp3", "-3 --no-raw"), ("raw", "--raw"), ("json", "-3 --json")])
def test_redis_cli_prints_a_transcript(name, options, server):
    """A transcript has comments (`# `), input lines (`> `), and below these the output. Consecutive input lines are passed to one
    redis-cli, so that MULTI and EXEC are in one session. Sizes in bytes are not compared."""
    transcript = (ROOT / f"tests/clients/cli/{name}.txt").read_text()

    def typed(part):
        command = ["redis-cli", "-p", str(server.port), *options.split()]
        lines = part[1].replace("\n> ", "\n").removeprefix("> ")
        return part[1] + subprocess.run(command, input=lines, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout

    now = re.sub(r"((?:^> .*\n)+)(?:(?![>#] ).*\n)*", typed, transcript, flags=re.MULTILINE)
    assert re.sub(r'(Size(?: => \(integer\) |":|\n(?: 4\) \(integer\) )?))\d+', r"\1N", now) == transcript


@pytest.mark.parametrize("page", ["faq", "guard", "kinds"])
def test_the_sessions_can_be_typed_into_a_new_server(page, server):
    texts = SESSION.findall((ROOT / "docs" / f"{page}.md").read_text())
    assert texts
    for text in texts:
        session(text, server.port)


def session(text, port):
    """Types what follows each prompt into redis-cli. The server chooses its own tokens."""
    tokens = {}
    for part in text.split("> ")[1:]:
        command, _, expected = part.partition("\n")
        command = TOKEN.sub(lambda token: tokens[token[0]], command)
        reply = subprocess.run(["redis-cli", "--no-raw", "-p", str(port)], input=command, capture_output=True, text=True, check=True).stdout
        tokens.update(zip(TOKEN.findall(expected), TOKEN.findall(reply)))
        assert comparable(reply) == comparable(expected), command


def comparable(reply):
    """Returns a reply without tokens, and without the milliseconds that are left of a lease."""
    return re.sub(r'"wait"\n2\) \(integer\) \d+', '"wait"', TOKEN.sub("token", reply))
