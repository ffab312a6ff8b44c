"""The programs of docs/from.md with Redisson print what the page says, and its section on Spring shows the lines of examples/spring,
which has a separate test."""

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


@pytest.mark.parametrize("title", ["Redisson's", "Cuckoo filters"])
def test_the_program_with_redisson_prints_what_the_page_shows(title, server):
    section, = (section for section in SECTIONS if section.startswith(title))
    (language, code), (_, output) = BLOCK.findall(section)
    assert language == "java"
    assert run_java(code, server.port) == output


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
