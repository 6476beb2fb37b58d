"""Names that forgive case, spaces, underscores and Hugging Face paths."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from simulator.errors import InputError


def data_files(folder: str, suffix: str) -> dict[str, Traversable]:
    """Catalogue name -> file, in alphabetical order."""
    found = {
        entry.name.removesuffix(suffix): entry
        for entry in files("simulator.catalog").joinpath(folder).iterdir()
        if entry.name.endswith(suffix)
    }
    return dict(sorted(found.items()))


def plain(name: str) -> str:
    """Lower case, dashes for spaces and underscores, the last part of a path."""
    last = name.strip().rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[\s_]+", "-", last).lower()


def pick(asked: str, names: Mapping[str, str], kind: str) -> str:
    """The catalogue name that ``asked`` means; ``names`` maps every accepted spelling to it.

    Raises:
        InputError: nothing or more than one thing fits; with close matches.
    """
    wanted = plain(asked)
    if wanted in names:
        return names[wanted]
    squeezed = {re.sub(r"[-.]", "", spelling): target for spelling, target in names.items()}
    if re.sub(r"[-.]", "", wanted) in squeezed:
        return squeezed[re.sub(r"[-.]", "", wanted)]
    parts = set(wanted.split("-"))
    holding = {target for spelling, target in names.items() if parts <= set(spelling.split("-"))}
    if len(holding) == 1 and kind == "GPU":
        return holding.pop()
    raise InputError(
        f"{asked!r} is not a {kind} of the catalogue",
        remedy=_advice(wanted, holding, set(names.values()), kind),
    )


def _advice(wanted: str, holding: Iterable[str], known: Iterable[str], kind: str) -> str:
    close = sorted(holding) or difflib.get_close_matches(wanted, sorted(known), n=3, cutoff=0.5)
    listing = f"`kvplan catalog {kind.lower()}s` lists them all"
    return f"did you mean {' or '.join(close)}? {listing}" if close else listing
