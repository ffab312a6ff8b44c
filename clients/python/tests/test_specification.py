"""Every case of clients/specification: in threads and under asyncio, on a scripted server, a real one and a cluster."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
import redis
from server import PATIENCE
from specification.calls import Tasks, Threads
from specification.replay import Replay
from specification.scripted import ScriptedServer
from specification.steps import Run
from specification.words import FOLDER, SpecificationError, read_cases

from bloomgate.guard_words import GuardOptions

CASES = read_cases()
OPTIONS: list[dict[str, Any]] = json.loads((FOLDER / "options.json").read_text())["options"]
UNITS = ((10**12, "s"), (86_400_000, "day"), (3_600_000, "h"), (1000, "s"), (1, "ms"))
FLAVOURS = {"threads": Threads, "tasks": Tasks}


def runs(server: str) -> list[Any]:
    """Returns the runs on one kind of server: each case in threads, and as tasks. The scripted server speaks RESP2 with the
    threads and RESP3 with the tasks, unless the case needs one of them."""
    found = []
    for case in (case for case in CASES if server in case["servers"]):
        needs = set(case.get("needs", []))
        for usual, (flavour, actors) in enumerate(FLAVOURS.items(), 2):
            missing = needs - actors.abilities
            marks = [pytest.mark.skip(reason=f"{flavour}: no {', '.join(sorted(missing))}")] if missing else []
            [protocol] = [n for n in (2, 3) if f"resp{n}" in needs] or [usual]
            found.append(pytest.param(case, actors, protocol, id=f"{case['name']}-{flavour}", marks=marks))
    return found


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """Returns the client's options."""
    chosen = dict(case.get("client", {}))
    timeout_s = chosen.pop("timeout_ms", PATIENCE * 1000) / 1000
    options: dict[str, Any] = {"socket_timeout": timeout_s, "timeout": PATIENCE}
    if "connections" in chosen:
        options["max_connections"] = chosen.pop("connections")
    if chosen:
        raise SpecificationError(f"unknown options of the client: {chosen}")
    return options


@pytest.mark.parametrize(("case", "actors", "protocol"), runs("scripted"))
def test_scripted(case: dict[str, Any], actors: type[Threads], protocol: int) -> None:
    server = ScriptedServer()
    running = actors(case, server.port, False, {**options_of(case), "protocol": protocol})
    try:
        Run(case, running, server).run()
    finally:
        server.close()
        running.close()


@pytest.mark.parametrize(("case", "actors", "protocol"), runs("real"))
def test_real(case: dict[str, Any], actors: type[Threads], protocol: int, port: int) -> None:
    with redis.Redis(port=port) as client:
        for command in case.get("setup", []):
            client.execute_command(*command)
    on_real_servers(case, actors, port, False)


@pytest.mark.parametrize(("case", "actors", "protocol"), runs("cluster"))
def test_cluster(
    case: dict[str, Any], actors: type[Threads], protocol: int, cluster: redis.RedisCluster, cluster_ports: list[int]
) -> None:
    for command in case.get("setup", []):
        cluster.execute_command(*command)
    on_real_servers(case, actors, cluster_ports[0], True)


def on_real_servers(case: dict[str, Any], actors: type[Threads], port: int, is_cluster: bool) -> None:
    running = actors(case, port, is_cluster, options_of(case))
    try:
        Run(case, running, None).run()
    finally:
        running.close()


@pytest.mark.parametrize(
    "case", [case for case in CASES if {"scripted", "real"} <= {*case["servers"]}], ids=lambda case: case["name"]
)
def test_a_server_answers_as_the_case_says(case: dict[str, Any], port: int) -> None:
    with redis.Redis(port=port) as client:
        for command in case.get("setup", []):
            client.execute_command(*command)
    replay = Replay(case, port)
    replay.run()
    assert replay.compared


def test_the_page_names_each_case() -> None:
    """Each rule of the page names its cases, and each case belongs to a rule."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    lists = re.findall(r"Cases?:\s+((?:`[^`]+`[,.]\s*)+)", page)
    named = [name for names in lists for name in re.findall(r"`([^`]+)`", names)]
    assert sorted(set(named)) == sorted(case["name"] for case in CASES)


@pytest.mark.parametrize(
    "steps",
    [
        [{"wonder": "r"}],
        [{"start": "r", "call": "filter.wonder"}, {"end": "r", "result": None}],
        [{"start": "r", "call": "filter.card", "wonder": 1}],
        [{"start": "r", "call": "shard_of", "with": {"item": {"wonder": 1}, "shards": 2}}, {"end": "r", "error": "refused"}],
        [{"start": "r", "call": "item_bytes", "with": {"item": {"boolean": True}}}, {"end": "r", "error": "wonder"}],
    ],
)
@pytest.mark.parametrize("actors", FLAVOURS.values())
def test_a_runner_refuses_what_it_does_not_know(steps: list[Any], actors: type[Threads]) -> None:
    case = {"name": "unknown", "servers": ["scripted"], "filter": {"key": "seen"}, "steps": steps}
    server = ScriptedServer()
    running = actors(case, server.port, False, {})
    try:
        with pytest.raises(SpecificationError):
            Run(case, running, server).run()
    finally:
        server.close()
        running.close()


def given(option: dict[str, Any], value: Any) -> Any:
    """Returns a value of options.json as this package takes it: times in seconds."""
    return value / 1000 if option["unit"] == "ms" and value is not None else value


def test_the_options() -> None:
    """options.json has every option of the guard with its default, and the ranges that it is checked against."""
    defaults = {option["name"]: given(option, option["default"]) for option in OPTIONS}
    assert defaults == {
        field.name: list(field.default) if field.default == () else field.default for field in dataclasses.fields(GuardOptions)
    }
    for option in (option for option in OPTIONS if "most" in option):
        name, step = option["name"], 0.1 if option["unit"] == "factor" else 1
        for value in (option["least"], option["most"]):
            GuardOptions(**{name: given(option, value)})
        for value in (option["least"] - step, option["most"] + step):
            with pytest.raises(ValueError, match=rf"{name} is .*from [\d.]+ to \d+"):
                GuardOptions(**{name: given(option, value)})


def test_the_table_of_options() -> None:
    """The page gives every option of the guard with its default and its range, and every event by its name."""
    page = (FOLDER / "README.md").read_text()
    section = page.partition("## The guard: options and events")[2].partition("## The guard: reading")[0]
    said = re.findall(r"^\| `(\w+)` \| (.*?) \| (?:(.*?) )?\| (.*) \|$", section, re.MULTILINE)

    def time(ms: int) -> str:
        size, unit = next((size, unit) for size, unit in UNITS if ms % size == 0)
        return f"{ms // size if ms < 10**12 else '10^9'} {unit}"

    def shown(option: dict[str, Any]) -> tuple[str, ...]:
        value = option["default"]
        default = "none" if value in (None, []) else time(value) if option["unit"] == "ms" else str(value).lower()
        ends = [option[end] for end in ("least", "most") if end in option]
        ends = [time(end) if option["unit"] == "ms" else "10^10" if end == 10**10 else str(end) for end in ends]
        sentence = option["sentence"].partition("; by default")[0]
        return option["name"], "the filter's" if option["name"] == "prefix" else default, " to ".join(ends), sentence

    assert said == [shown(option) for option in OPTIONS]
    package = (FOLDER.parent / "python" / "README.md").read_text()
    events = package.partition("| event | counts |")[2].partition("\n\n")[0]
    names = [
        name
        for line in events.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
    ]
    assert len(names) == 15 and all(f"`{name}`" in " ".join(section.split()) for name in names)
