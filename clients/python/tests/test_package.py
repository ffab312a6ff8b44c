"""The installed package: its page on a registry, and its licences."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_links_on_the_registrys_page_are_absolute() -> None:
    page = distribution("bloomgate").metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", str(page))
    assert len(links) >= 15 and all(re.match(r"https?://[\w.]+/", link) for link in links)
    base = "https://bloomgate.invalid/blob/main/"
    inside = [link.removeprefix(base).partition("#")[0] for link in links if link.startswith(base)]
    assert {"docs/guard.md", "clients/python/README.md", "clients/python/examples/django_guard.py"} < set(inside)
    assert all((ROOT / path).is_file() for path in inside)


def test_addresses_of_the_project() -> None:
    urls = dict(url.split(", ") for url in distribution("bloomgate").metadata.get_all("Project-URL") or [])
    assert set(urls) == {"Repository", "Documentation", "Changelog"}


def test_both_licences_are_installed() -> None:
    files = {file.name: file for file in distribution("bloomgate").files or []}
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert files[name].read_text() == (ROOT / name).read_text()
    assert "py.typed" in files
