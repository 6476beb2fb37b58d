"""The question of a scenario file: the comment it starts with, up to its question mark."""

from __future__ import annotations

from pathlib import Path


def question_of(path: Path) -> str | None:
    """The first comment's first question, else its first line; None where the file starts without a comment."""
    lines: list[str] = []
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("#").strip())
    if not lines or not lines[0]:
        return None
    before, mark, _ = " ".join(lines).partition("?")
    return before + mark if mark else lines[0]
