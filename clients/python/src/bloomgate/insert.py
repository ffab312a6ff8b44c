"""The options of BF.INSERT that precede ITEMS."""

from __future__ import annotations

from .words import Word, Words, creation_words


def insert_words(
    capacity: int | None,
    rate: float | None,
    nocreate: bool,
    tightening: float | None,
    validate_scale_to: int | None,
    seed32: bytes | None,
    sync: bool,
    words: Words,
) -> list[Word]:
    """Returns the options as words of the command."""
    if seed32 is not None and len(seed32) != 32:
        raise ValueError(f"seed32 is 32 bytes, not {len(seed32)}")
    result = creation_words(words)
    valued: list[tuple[str, Word | None]] = [
        ("CAPACITY", capacity),
        ("ERROR", rate),
        ("TIGHTENING", tightening),
        ("VALIDATESCALETO", validate_scale_to),
        ("SEED", seed32),
    ]
    for word, value in valued:
        if value is not None:
            result += [word, value]
    if nocreate:
        result.append("NOCREATE")
    if sync:
        result.append("SYNC")
    return result
