"""Plain data that remembers where each of its keys and values was written, and can be patched in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulator.errors import InputError

Steps = tuple[str | int, ...]
"""The way to a node: keys of mappings and indices of sequences, from the root."""


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the place of every node in it.

    Attributes:
        data: the value of the root.
        name: the file's name as the user gave it.
        keys, values: place of a mapping's key, and of the value under it, by the steps from the root.
    """

    data: Any
    name: str
    keys: dict[Steps, str] = field(default_factory=dict)
    values: dict[Steps, str] = field(default_factory=dict)

    def place(self, steps: Steps) -> str:
        """Where the value at ``steps`` stands, or its nearest ancestor where it stands nowhere itself."""
        return self._nearest(self.values, steps)

    def key_place(self, steps: Steps) -> str:
        """Where the key of ``steps`` stands; a sequence's item has no key, so its value's place."""
        return self.keys.get(steps) or self.place(steps)

    def copy(self) -> Document:
        """A deep copy, so that a patch changes one variant only."""
        return Document(_copied(self.data), self.name, dict(self.keys), dict(self.values))

    def put(self, path: str, value: Document, at: Steps = ()) -> None:
        """Replaces what is at the dotted ``path`` by the part ``at`` of another document, and its places.

        Mappings on the way that do not exist yet are made; ``classes.0.weight`` reaches into a list. Raises
        InputError, at the place of the new value, where the way leads through something else.
        """
        steps = self._way(path, value.key_place(at))
        for table in (self.keys, self.values):
            for old in [s for s in table if s[: len(steps)] == steps]:
                del table[old]
        self.part(steps[:-1])[steps[-1]] = _copied(value.part(at))
        for mine, theirs in ((self.keys, value.keys), (self.values, value.values)):
            mine.update({steps + s[len(at) :]: p for s, p in theirs.items() if s[: len(at)] == at})
        self.keys[steps] = value.key_place(at)

    def _way(self, path: str, where: str) -> Steps:
        """The steps of a dotted path, all but the last of which exist afterwards."""
        here = self.data
        way: Steps = ()
        names = path.split(".")
        for i, name in enumerate(names):
            step: str | int = name
            if isinstance(here, list) and name.isdecimal() and int(name) < len(here):
                step = int(name)
            elif not isinstance(here, dict) or not name:
                whole = dotted(way) or "the scenario"
                raise InputError(
                    f"{path} cannot be set: {whole} is {kind_of(here)}",
                    where=where,
                    remedy=f"set {whole} as a whole",
                )
            way = (*way, step)
            if i == len(names) - 1:
                break
            if isinstance(here, dict) and here.get(name) is None:
                here[name] = {}
                self.keys[way] = self.values[way] = where
            here = here[step]
        return way

    def part(self, steps: Steps) -> Any:
        """The value at ``steps``."""
        value = self.data
        for step in steps:
            value = value[step]
        return value

    def _nearest(self, table: dict[Steps, str], steps: Steps) -> str:
        for end in range(len(steps), -1, -1):
            if steps[:end] in table:
                return table[steps[:end]]
        return self.name


def dotted(steps: Steps) -> str:
    """``("workload", "classes", 0, "name")`` as ``workload.classes[0].name``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def kind_of(value: object) -> str:
    """What a value is, in the words of an error."""
    match value:
        case None:
            return "empty"
        case bool():
            return f"{str(value).lower()} (true or false)"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
