"""The axes of a sweep: a setting by its dotted path, and the values it takes, from the file and from ``--over``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simulator.document import Document, Steps, kind_of
from simulator.errors import InputError
from simulator.scenario import ScenarioFile
from simulator.scenario_yaml import parse_yaml

EXAMPLE = "write --over engine.block_size=8,16,32"
_DOUBLING = re.compile(r"([0-9]+)\.\.([0-9]+)\Z")
_FIXED = {
    "variants": "variants are an axis by themselves; change them in the file",
    "sweep": "write sweep.over in the file",
    "name": "a name changes nothing",
    "mode": "sweep each mode by itself",
    "seed": "give --replications N, which runs each point with N seeds",
    "expect": "change it in the file",
    "assumptions": "delete it",
}


@dataclass(frozen=True)
class Axis:
    """A swept setting.

    Attributes:
        path: dotted, such as ``engine.block_size``.
        values: as plain data, in the order given.
        source, steps: the document in which the values stand, and where in it.
    """

    path: str
    values: tuple[Any, ...]
    source: Document
    steps: tuple[Steps, ...]

    def put(self, index: int, document: Document) -> None:
        """Sets the value of that index in a scenario's document. Raises InputError."""
        document.put(self.path, self.source, self.steps[index])

    def place(self, index: int) -> str:
        """Where a value was written."""
        return self.source.place(self.steps[index])


def read_axes(loaded: ScenarioFile, overs: Iterable[str], patches: Iterable[str] = ()) -> list[Axis]:
    """The axes of the file, those of the options in their place or after them.

    Args:
        overs: ``path=v1,v2,...`` options.
        patches: the ``--set`` options, none of which may set what is swept.
    Raises:
        InputError: no axis at all, a path or a value twice, no value, or a variant that sets what is swept.
    """
    found: dict[str, Axis] = {}
    if loaded.sweep is not None:
        settings, document = loaded.sweep
        for path in settings.over:
            found[path] = _axis(path, document, ("sweep", "over", path), document.key_place(("sweep", "over", path)))
    given: set[str] = set()
    for text in overs:
        path, axis = _option(text)
        if path in given:
            raise InputError(f"{path} is swept twice", where=f"--over {text}", remedy="give all its values at once")
        given.add(path)
        found[path] = axis
    axes = list(found.values())
    if not axes and len(loaded.variants) < 2:
        raise InputError("nothing is swept", where=loaded.document.name, remedy=EXAMPLE)
    _refuse_overlaps(axes)
    _refuse_overridden(axes, loaded, patches)
    return axes


def _option(text: str) -> tuple[str, Axis]:
    where = f"--over {text}"
    path, equals, values = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise InputError("is not path=v1,v2,...", where=where, remedy=EXAMPLE)
    document = parse_yaml(f"[{values}]", where, fixed_place=where)
    if len(document.data) == 1 and isinstance(document.data[0], list):  # path=[1, 2]
        return path, _axis(path, document, (0,), where)
    return path, _axis(path, document, (), where)


def _axis(path: str, document: Document, at: Steps, where: str) -> Axis:
    """An axis from the part of a document that holds its values."""
    if path.split(".")[0] in _FIXED:
        raise InputError(f"{path} cannot be swept", where=where, remedy=_FIXED[path.split(".")[0]])
    whole = document.part(at)
    if isinstance(whole, str):
        whole = [whole]
        document = Document(whole, document.name, {}, {(): where, (0,): document.place(at)})
        at = ()
    if not isinstance(whole, list):
        raise InputError(f"the values of {path} must be a list, not {kind_of(whole)}", where=where, remedy=EXAMPLE)
    document, steps = _spelled_out(path, document, at, where)
    values = tuple(document.part(step) for step in steps)
    if not values:
        raise InputError(f"{path} has no value", where=where, remedy=EXAMPLE)
    seen: set[str] = set()
    for value, step in zip(values, steps, strict=True):
        text = _same(value)
        if text in seen:
            raise InputError(
                f"{path} takes {value_text(value)} twice", where=document.place(step), remedy="delete one of them"
            )
        seen.add(text)
    return Axis(path, values, document, tuple(steps))


def _spelled_out(path: str, document: Document, at: Steps, where: str) -> tuple[Document, list[Steps]]:
    """Each ``a..b`` as the numbers that it stands for."""
    values: list[Any] = []
    places: list[str] = []
    for i, value in enumerate(document.part(at)):
        place = document.place((*at, i))
        doubling = _DOUBLING.match(value) if isinstance(value, str) else None
        expanded = _doubled(path, int(doubling[1]), int(doubling[2]), place) if doubling else [value]
        values += expanded
        places += [place] * len(expanded)
    if len(values) == len(document.part(at)) and not any(isinstance(v, str) and ".." in v for v in document.part(at)):
        return document, [(*at, i) for i in range(len(values))]
    made = Document(values, document.name, {}, {(): where} | {(i,): place for i, place in enumerate(places)})
    return made, [(i,) for i in range(len(values))]


def _doubled(path: str, first: int, last: int, where: str) -> list[int]:
    values = [first]
    while first > 0 and values[-1] < last:
        values.append(values[-1] * 2)
    if values[-1] != last:
        remedy = f"write {path}={first}..{values[-1]}, or list the values" if first > 0 else "list the values"
        raise InputError(f"{first}..{last} does not double from {first} to {last}", where=where, remedy=remedy)
    return values


def _same(value: Any) -> str:
    """Text that two values share where a setting cannot tell them apart (8 and 8.0)."""
    if isinstance(value, float) and value == value // 1:
        value = int(value)
    return json.dumps(value, sort_keys=True)


def value_text(value: Any) -> str:
    """A value in a message or a table."""
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def within(one: str, other: str) -> bool:
    """Whether one path is the other or reaches into it."""
    return one == other or one.startswith(other + ".")


def _refuse_overlaps(axes: list[Axis]) -> None:
    for i, axis in enumerate(axes):
        for other in axes[:i]:
            if within(axis.path, other.path) or within(other.path, axis.path):
                raise InputError(
                    f"{axis.path} and {other.path} cannot both be swept: one is a part of the other",
                    where=axis.place(0),
                    remedy="sweep one of them",
                )


def _refuse_overridden(axes: list[Axis], loaded: ScenarioFile, patches: Iterable[str]) -> None:
    variants = loaded.document.data.get("variants") or {}
    for axis in axes:
        for name, changes in variants.items():
            for path in changes or {}:
                if within(path, axis.path) or within(axis.path, path):
                    raise InputError(
                        f"the variant {name} sets {path}, and so {axis.path} cannot be swept",
                        where=axis.place(0),
                        remedy=f"give --set variants=null to sweep without variants, or delete {path} of {name}",
                    )
        for patch in patches:
            path = patch.partition("=")[0].strip()
            if within(path, axis.path):
                raise InputError(
                    f"{path} is swept, and so the value of --set never counts",
                    where=f"--set {patch}",
                    remedy="leave out --set or the axis",
                )
