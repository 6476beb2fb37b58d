"""What an error offers: the nearest valid word, or the number that was meant."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable
from typing import Any, Literal

_SIZES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
    "": 1,
}  # fmt: skip
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """A remedy for a word that is not among the valid ones: the nearest, or all of them."""
    known = sorted(valid)
    plain = re.sub(r"[^a-z0-9]", "", word.lower())
    for name in known:
        if re.sub(r"[^a-z0-9]", "", name.lower()) == plain:
            return f"did you mean {name}?"
    close = difflib.get_close_matches(word.lower(), known, n=2, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"valid: {', '.join(known)}" if known else "delete it"


def named(hint: Any) -> str:
    if dataclasses.is_dataclass(hint):
        return "a mapping"
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return named(typing.get_args(hint)[0])
    if origin is Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names.get(hint, "a mapping" if origin is dict else "a list")


def number_remedy(data: Any, key: str) -> str:
    """What to write instead of a text that was meant as a number: "16GiB", "10s", "1_000", "'8'"."""
    if not isinstance(data, str):
        return "write a number" if data is not None else "give a number or delete the key"
    plain = data.strip().replace("_", "").replace(",", "")
    try:
        return f"write {float(plain):g} without quotes, commas or underscores" if plain else "write a number"
    except ValueError:
        pass
    sized = re.fullmatch(r"([0-9.]+)\s*([kmgt]?i?)b(?:ytes)?", plain, re.IGNORECASE)
    timed = re.fullmatch(r"([0-9.]+)\s*(ms|s|min|m|h)", plain, re.IGNORECASE)
    try:
        if sized and "bytes" in key and sized[2].lower() in _SIZES:
            return f"write bytes as a plain number: {round(float(sized[1]) * _SIZES[sized[2].lower()])}"
        if timed and key.endswith(("_s", "_ms")):
            seconds = float(timed[1]) * _SECONDS[timed[2].lower()]
            return f"write a plain number: {seconds * (1000 if key.endswith('_ms') else 1):g}"
    except ValueError:
        pass
    unit = re.search(r"_(tokens|blocks|bytes|seqs|s|ms|us|ns|rps|gib|gb|len)$", key)
    name = {"len": "tokens", "rps": "requests per second", "seqs": "sequences"}.get(
        unit[1] if unit else "", unit[1] if unit else ""
    )
    return f"write a plain number{f' of {name}' if name else ''}, without a unit"
