"""Queries per second over time, with and without jitter and early renewal, as CSV and as a plot. Rows that are filled together
live for ten seconds and take 0.3 s to load; tasks look them up at a steady rate. A point is a quarter of a second. The server
needs the module; the benchmark deletes the keys that begin with `bench`."""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import time
from pathlib import Path

from bloomgate import asyncio as bloom
from bloomgate import guard_commands

ROWS = 100
TTL_S = 10.0
LOAD_S = 0.3
TASKS = 200
PAUSE_S = 0.2
SECONDS = 60
POINT_S = 0.25

VARIANTS = {"neither": (0.0, 0.0), "jitter": (0.1, 0.0), "early renewal": (0.0, 1.0), "both": (0.1, 1.0)}
"""The jitter as a share of the time to live, and beta."""

Points = dict[str, list[float]]

GREY, ORANGE, BLUE = "#757575", "#EF6C00", "#1E88E5"
PANELS = [
    ("Queries per second", "queries", "neither", "jitter"),
    ("Queries per second", "queries", "neither", "early renewal"),
    ("Lookups per second that waited for a load", "waits", "jitter", "both"),
]


async def measure(url: str, jitter: float, beta: float) -> Points:
    """Returns, over time, queries per second, and lookups per second that took longer than half a load."""
    guard_commands.JITTER = jitter
    points: Points = {name: [0.0] * round(SECONDS / POINT_S) for name in ("queries", "waits")}
    async with bloom.connect(url) as client:
        await client.unlink("bench", *[f"{{bench}}:{id}" for id in range(ROWS)])
        await bloom.fill_filter(client, "bench", range(ROWS), 0.001, ROWS)
        guard = bloom.Guard(client, "bench", ttl=TTL_S, beta=beta)
        begun = time.perf_counter()

        def count(name: str) -> None:
            point = int((time.perf_counter() - begun) / POINT_S)
            if point < len(points[name]):
                points[name][point] += 1 / POINT_S

        async def load(_: object = None) -> bytes:
            count("queries")
            await asyncio.sleep(LOAD_S)
            return b"row"

        async def load_many(ids: list[int]) -> dict[int, bytes]:
            return dict.fromkeys(ids, await load())

        async def work(chance: random.Random) -> None:
            while time.perf_counter() - begun < SECONDS:
                asked = time.perf_counter()
                await guard.get(chance.randrange(ROWS), load)
                if time.perf_counter() - asked > LOAD_S / 2:
                    count("waits")
                await asyncio.sleep(PAUSE_S * 2 * chance.random())

        await guard.get_many(range(ROWS), load_many)
        begun = time.perf_counter()
        await asyncio.gather(*(work(random.Random(number)) for number in range(TASKS)))
    return points


def words(x: float, y: float, text: str, color: str = GREY, anchor: str = "start", size: int = 12) -> str:
    style = f'text-anchor="{anchor}" font-family="sans-serif" font-size="{size}" fill="{color}"'
    return f'<text x="{x}" y="{y}" {style}>{text}</text>'


def panel(top: int, title: str, lines: list[tuple[str, str, list[float]]]) -> list[str]:
    """Draws lines over time, each with a label and a colour."""
    left, width, height = 56, 740, 130
    bottom = top + height
    most = max(max(values) for _, _, values in lines) or 1
    drawn = [words(16, top - 14, title, size=14)]
    x = 420
    for label, color, _ in lines:
        drawn.append(f'<rect x="{x}" y="{top - 25}" width="12" height="12" fill="{color}"/>')
        drawn.append(words(x + 18, top - 14, label))
        x += 190
    for value in (0, most / 2, most):
        y = bottom - height * value / most
        drawn.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="{GREY}" opacity="0.3"/>')
        drawn.append(words(left - 8, y + 4, f"{value:.0f}", anchor="end"))
    for second in range(0, SECONDS + 1, 10):
        drawn.append(words(left + width * second / SECONDS, bottom + 18, f"{second} s", anchor="middle"))
    for _, color, values in lines:
        step = width * POINT_S / SECONDS
        path = " ".join(f"{left + step * (n + 0.5):.1f},{bottom - height * v / most:.1f}" for n, v in enumerate(values))
        drawn.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{path}"/>')
    return drawn


def plot(found: dict[str, Points]) -> str:
    names = {"neither": "neither", "jitter": "with jitter", "early renewal": "with early renewal", "both": "with both"}
    drawn = ['<svg width="820" height="640" viewBox="0 0 820 640" xmlns="http://www.w3.org/2000/svg">']
    for number, (title, values, before, after) in enumerate(PANELS):
        lines = [(names[before], ORANGE, found[before][values]), (names[after], BLUE, found[after][values])]
        drawn += panel(50 + 210 * number, title, lines)
    return "\n".join([*drawn, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="redis://host:port")
    parser.add_argument("folder", type=Path, help="where renewal.csv and renewal.svg are written")
    options = parser.parse_args()
    found = {name: asyncio.run(measure(options.url, *chosen)) for name, chosen in VARIANTS.items()}
    with (options.folder / "renewal.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["seconds", *(f"{name}: {values}" for name in found for values in found[name])])
        for point in range(round(SECONDS / POINT_S)):
            rows.writerow([point * POINT_S, *(f"{one[values][point]:.0f}" for one in found.values() for values in one)])
    (options.folder / "renewal.svg").write_text(plot(found))
    for name, points in found.items():
        sums = {values: sum(points[values]) * POINT_S for values in points}
        print(f"{name}: at most {max(points['queries']):.0f} queries a second; {sums['queries']:.0f} queries, "
              f"{sums['waits']:.0f} lookups waited")


if __name__ == "__main__":
    main()
