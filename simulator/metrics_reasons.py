"""Why requests were rejected: reasons that differ in their numbers alone are one reason with a range.

Of "prompt of 858 tokens leaves no room" and "prompt of 648 tokens leaves no room" becomes "prompt of 648 to 858 tokens
leaves no room"; each request's own reason stands in requests.csv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REASONS_SHOWN = 3
OTHERS = "other reasons"
_NUMBER = re.compile(r"\d+")


def summarized(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent kinds of reasons and how many requests each holds for; the rest together."""
    kinds: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for text, count in counts.items():
        kinds.setdefault(tuple(_NUMBER.split(text)), []).append((text, count))
    found = [(sum(count for _, count in group), _joined(words, group)) for words, group in kinds.items()]
    ranked = sorted(found, key=lambda pair: (-pair[0], pair[1]))
    shown = {text: count for count, text in ranked[:REASONS_SHOWN]}
    rest = sum(count for count, _ in ranked[REASONS_SHOWN:])
    return shown | ({OTHERS: rest} if rest else {})


def _joined(words: tuple[str, ...], group: list[tuple[str, int]]) -> str:
    """The words with each number, or with its range where it differs within the group."""
    columns = zip(*([int(number) for number in _NUMBER.findall(text)] for text, _ in group), strict=True)
    numbers = [str(min(c)) if min(c) == max(c) else f"{min(c)} to {max(c)}" for c in columns]
    return "".join(part for pair in zip(words, [*numbers, ""], strict=True) for part in pair)
