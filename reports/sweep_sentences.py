"""Warnings and assumptions of a sweep's points, each kind said once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

_NUMBER = re.compile(r"\d[\d,.]*")


def sentences_of(folders: Iterable[Path], key: str) -> tuple[str, ...]:
    """The sentences under ``key`` of every point's ``result.json``.

    Sentences that differ in their numbers alone are one kind: the first with the largest number stands for them, with
    the number of points that say so. Folders without a result (failed points) say nothing.
    """
    kinds: dict[str, list[str]] = {}
    count = 0
    for folder in folders:
        try:
            found = json.loads((folder / "result.json").read_text(encoding="utf-8")).get(key, [])
        except (OSError, ValueError, AttributeError):
            continue
        count += 1
        for sentence in dict.fromkeys(map(str, found)):
            kinds.setdefault(_NUMBER.sub("#", sentence), []).append(sentence)
    return tuple(_said(group, count) for group in kinds.values())


def _said(group: list[str], count: int) -> str:
    if len(set(group)) == 1:
        return group[0] if len(group) == count else f"At {len(group)} of {count} points: {group[0]}"
    worst = max(group, key=_largest)
    return f"At {len(group)} of {count} points, at most: {worst}"


def _largest(sentence: str) -> float:
    found = [number.replace(",", "").rstrip(".") for number in _NUMBER.findall(sentence)[:1]]
    try:
        return float(found[0]) if found else 0.0
    except ValueError:
        return 0.0
