#!/usr/bin/env python3
"""Draws the plots of the tables in a folder: benches/plots.py FOLDER [--check]. With --check it writes nothing, and fails if a plot
differs from its table. Plots have no background, and colours that are legible on light and dark ones."""

import csv
import math
import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

INK = "#757575"
COLOURS = ["#1E88E5", "#EF6C00", "#43A047", "#BA68C8", "#EC407A"]
WIDTH, MARGIN, HEAD, BAR, AXIS, LINES = 820, 16, 72, 20, 72, 340

Row = dict[str, str]


class Figure(NamedTuple):
    variant: str
    about: str  # the command and the filter, the phase, the size, or the fill in percent
    value: float


def figures(rows: Iterable[Row], about: Callable[[Row], str], column: str, factor: float = 1, name: str = "") -> list[Figure]:
    """Returns the values of a column where it has one, under their variant or `name`."""
    return [Figure(name or row["variant"], about(row), float(row[column]) * factor) for row in rows if row[column]]


def number(value: float) -> str:
    """Formats a value with three significant digits."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def size(value: float) -> str:
    unit, name = next((u, n) for u, n in [(1e9, " billion"), (1e6, " million"), (1e3, " thousand"), (1, "")] if value >= u)
    return f"{value / unit:.0f}{name}"


def text(x: float, y: float, words: str, pixels: int, anchor: str = "start", turn: str = "") -> str:
    style = f'font-family="sans-serif" font-size="{pixels}" fill="{INK}" text-anchor="{anchor}" dominant-baseline="middle"{turn}'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{words.replace("&", "&amp;").replace("<", "&lt;")}</text>'


def line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{INK}" opacity="{opacity}"/>'


def ticks(most: float) -> list[float]:
    """Returns some round numbers from 0 to `most`."""
    power = 10 ** math.floor(math.log10(most))
    step = next(s * power for s in (0.1, 0.2, 0.25, 0.5, 1, 2) if most / (s * power) <= 8)
    return [step * count for count in range(int(most / step) + 1)]


def image(title: str, variants: list[str], height: int, body: list[str]) -> str:
    parts = [f'<svg width="{WIDTH}" height="{HEAD + height}" viewBox="0 0 {WIDTH} {HEAD + height}" xmlns="http://www.w3.org/2000/svg">']
    parts.append(text(MARGIN, 22, title, 16))
    x = MARGIN
    for variant, colour in zip(variants, COLOURS):
        parts += [f'<rect x="{x}" y="44" width="12" height="12" fill="{colour}"/>', text(x + 18, 50, variant, 14)]
        x += 44 + 8 * len(variant)
    return "\n".join([*parts, *body, "</svg>", ""])


def bars(title: str, panels: list[tuple[str, list[Figure]]]) -> str:
    """Draws panels below one another, each with its own scale. The bars of one group are together under its name."""
    variants = list(dict.fromkeys(bar.variant for _, panel in panels for bar in panel))
    body, top = [], HEAD
    for axis, panel in panels:
        groups = [(about, list(group)) for about, group in groupby(panel, lambda bar: bar.about)]
        bottom = top + BAR * (len(panel) + len(groups))
        scale = (WIDTH - 2 * MARGIN) / (1.12 * max(bar.value for bar in panel))
        for tick in ticks((WIDTH - 2 * MARGIN) / scale):
            x = MARGIN + tick * scale
            body += [line(x, top, x, bottom, 0.3), text(x, bottom + 12, f"{tick:g}", 12, "middle")]
        body.append(text(WIDTH / 2, bottom + 36, axis, 13, "middle"))
        y = top
        for about, group in groups:
            body.append(text(MARGIN, y + BAR / 2, about, 14))
            for bar in group:
                y += BAR
                colour, long = COLOURS[variants.index(bar.variant)], bar.value * scale
                body.append(f'<rect x="{MARGIN}" y="{y + 3}" width="{long:.0f}" height="14" fill="{colour}"/>')
                body.append(text(MARGIN + long + 6, y + BAR / 2, number(bar.value), 12))
            y += BAR
        top = bottom + AXIS
    return image(title, variants, top - HEAD, body)


def lines(title: str, axis: str, unit: str, points: list[Figure], logarithmic: bool) -> str:
    """Draws a line for each variant over sizes on a logarithmic scale, or over the fill of a filter."""
    variants = list(dict.fromkeys(point.variant for point in points))
    place = (lambda about: math.log10(float(about))) if logarithmic else float
    places = [place(point.about) for point in points]
    first, last = (min(places) if logarithmic else 0), max(places)
    left, right, top, bottom = MARGIN + 60, WIDTH - 4 * MARGIN, HEAD, HEAD + LINES - MARGIN - 52
    highest = 1.1 * max(point.value for point in points)
    x = lambda at: left + (at - first) / (last - first) * (right - left)
    y = lambda value: bottom - value / highest * (bottom - top)
    body = []
    for tick in ticks(highest):
        body += [line(left, y(tick), right, y(tick), 0.3), text(left - 8, y(tick), f"{tick:g}", 12, "end")]
    marks = range(math.ceil(first), math.floor(last) + 1) if logarithmic else ticks(last)
    for mark in marks:
        body += [line(x(mark), top, x(mark), bottom, 0.3)]
        body.append(text(x(mark), bottom + 14, size(10**mark) if logarithmic else f"{mark:g}", 12, "middle"))
    middle = (top + bottom) / 2
    body.append(text((left + right) / 2, bottom + 40, axis, 13, "middle"))
    body.append(text(MARGIN + 8, middle, unit, 13, "middle", f' transform="rotate(-90 {MARGIN + 8} {middle:.0f})"'))
    for variant, colour in zip(variants, COLOURS):
        drawn = [(x(place(point.about)), y(point.value)) for point in points if point.variant == variant]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in drawn)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"/>' for px, py in drawn]
    return image(title, variants, LINES, body)


def commands(rows: list[Row]) -> list[Figure]:
    """The server's own commands, which have no filter, are omitted."""
    return figures((row for row in rows if row["filter"]), lambda row: f"{row['command']} · {row['filter']}", "us/call")


def peer(rows: list[Row]) -> dict[str, str]:
    drawn = commands(rows)
    many = [figure for figure in drawn if " 100 " in figure.about]
    one = [figure for figure in drawn if " 100 " not in figure.about]
    title = "Time inside a command, compared with another module"
    return {"peer": bars(title, [("µs per call, of 100 items", many), ("µs per call", one)])}


def chain(rows: list[Row]) -> dict[str, str]:
    title = "Time inside BF.MEXISTS, for a filter that grew and one that was reserved"
    return {"chain": bars(title, [("µs per call, of 100 items", commands(rows))])}


def saving(rows: list[Row]) -> dict[str, str]:
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    rows = sorted(rows, key=lambda row: phases.index(row["phase"]))
    of = lambda part: figures(rows, lambda row: row["phase"], f"us of BF.ADD from another client, {part}")
    return {"saving": bars("Duration of BF.ADD of another client during a save", [("µs, 99%", of("99%")), ("µs, 99.9%", of("99.9%"))])}


def scale(rows: list[Row]) -> dict[str, str]:
    fixed = [row for row in rows if row["filter"] == "fixed"]
    draw = lambda title, command: lines(
        title, "items in the filter", "ns an item, inside the command", figures(fixed, lambda row: row["items"], f"ns/item of {command}"), True
    )
    add, lookup = "Time per added item by filter size", "Time per looked-up item by filter size"
    return {"scale-add": draw(add, "BF.MADD"), "scale-lookup": draw(lookup, "BF.MEXISTS")}


def limit(rows: list[Row]) -> dict[str, str]:
    fill = lambda row: row["fill, %"]
    adds = figures(rows, fill, "items/s", 1e-6, "BF.MADD of 100 items")
    lookups = figures(rows, fill, "us/BF.EXISTS", 1, "BF.EXISTS")
    lookups += figures(rows, fill, "ns/item of BF.MEXISTS", 1e-3, "an item of BF.MEXISTS")
    draw = lambda title, unit, points: lines(title, "% of the capacity", unit, points, False)
    return {
        "limit-add": draw("Adds per second while one filter fills", "million items per second", adds),
        "limit-lookup": draw("Time per lookup while one filter fills", "µs, inside the command", lookups),
    }


def main(folder: Path, check: bool) -> int:
    stale = 0
    for plots in (peer, chain, saving, scale, limit):
        table = folder / f"{plots.__name__}.csv"
        if not table.exists():
            continue
        with table.open(newline="") as rows:
            drawn = plots(list(csv.DictReader(rows)))
        for name, svg in drawn.items():
            path = folder / f"{name}.svg"
            if not check:
                path.write_text(svg)
            elif not path.exists() or path.read_text() != svg:
                stale += 1
                print(f"{path} differs from {table}: benches/plots.py {folder} draws it again", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--check" in sys.argv))
