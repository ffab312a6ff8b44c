"""The programs of docs/from.md print what the page says. They are skipped where their tools or packages are missing. The first
section shows examples/spring, which has a test of its own."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPRING, *SECTIONS = (ROOT / "docs" / "from.md").read_text().split("\n## ")[1:]
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "clients" / "from"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKEN = re.compile(r"\b[0-9a-f]{32}\b")

JAVA = """
import java.util.*;
import java.util.function.*;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Main {{
    public static void main(String[] words) {{
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + words[0]);
        RedissonClient client = Redisson.create(config);
        {code}
        client.shutdown();
    }}
}}
"""

GO = """
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/rueidis"
)

func main() {{
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{{InitAddress: []string{{"127.0.0.1:" + os.Args[1]}}}})
	if err != nil {{
		panic(err)
	}}
	defer client.Close()
	{code}
}}
"""


def programs():
    """Yields each section's title, its code, and what the code prints."""
    for section in SECTIONS:
        found = BLOCK.findall(section)
        if found:
            (language, text), (after, output) = found
            assert after == "text"
            yield section.partition("\n")[0], language, text, output


@pytest.mark.parametrize("title, language, text, output", [pytest.param(*program, id=program[1]) for program in programs()])
def test_a_program_prints_what_the_page_shows(title, language, text, output, server):
    assert {"java": run_java, "go": run_go}[language](text, server.port) == output
    assert text.count("\n") <= 10, title


def test_the_page_has_programs():
    assert [language for _, language, *_ in programs()] == ["java", "go"]


def test_the_first_section_shows_the_lines_of_its_example():
    example = ROOT / "examples" / "spring"
    files = {
        "java": "src/main/java/com/example/users/UserService.java",
        "properties": "src/main/resources/application.properties",
    }
    shown = [(language, text) for language, text in BLOCK.findall(SPRING) if language != "text"]
    assert [language for language, _ in shown] == list(files)
    for language, text in shown:
        lines = [re.sub(" +#.*", "", line).strip() for line in (example / files[language]).read_text().splitlines()]
        assert [line for line in text.splitlines() if line.strip() not in lines] == []


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


def run_java(code, port):
    """Runs the lines with Redisson, in the version of tests/clients/libraries."""
    if not shutil.which("mvn") or not shutil.which("java"):
        pytest.skip("mvn or java is missing")
    pom = ROOT / "tests" / "clients" / "libraries" / "pom.xml"
    version = re.search(r"redisson</artifactId>\s*<version>([0-9.]+)<", pom.read_text())[1]
    jars = WORK / f"redisson-{version}"
    if not jars.is_dir():
        fetched = subprocess.run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"])
        if fetched.returncode:
            pytest.skip("Maven cannot fetch Redisson")
    source = written("java", "Main.java", JAVA.format(code=code))
    return run(["java", "-cp", f"{jars}/*", source, str(port)])


def run_go(code, port):
    """Runs the lines with rueidis, in the version of tests/clients/libraries."""
    if not shutil.which("go"):
        pytest.skip("go is missing")
    source = written("go", "main.go", GO.format(code=code))
    version, = re.findall(r"github.com/redis/rueidis (v\S+)", (ROOT / "tests" / "clients" / "libraries" / "go.mod").read_text())
    written("go", "go.mod", f"module from\n\ngo 1.25.0\n\nrequire github.com/redis/rueidis {version}\n")
    if subprocess.run(["go", "mod", "tidy"], cwd=source.parent).returncode:
        pytest.skip("Go cannot fetch rueidis")
    return run(["go", "run", ".", str(port)], source.parent)


def written(folder, name, text):
    path = WORK / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(command, folder=None):
    """Runs a program and returns what it prints."""
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
