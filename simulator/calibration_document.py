"""A small YAML or JSON file as nested entries that remember their line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import InputError

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Entry:
    """A value and where its key stands. ``value`` is a dict of entries, a number, text or None.

    Attributes:
        place: ``file:line``.
    """

    value: Any
    place: str


def read_entries(path: Path) -> dict[str, Entry]:
    """The top level of a file. Raises InputError: unreadable, bad syntax, not a mapping, a key given twice."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot be read: {reason}", where=str(path), remedy="check the path") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"is not YAML: {error.problem}", where=f"{path}{line}", remedy="correct this line") from None
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {error}", where=str(path), remedy="is this a text file?") from None
    top = _value(node, path) if node is not None else None
    if not isinstance(top, dict):
        raise InputError("is not a mapping", where=str(path), remedy="write key: value lines")
    return top


def _value(node: yaml.Node, path: Path) -> object:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if not isinstance(node, yaml.MappingNode):
        raise InputError("a list has no place here", where=_place(node, path), remedy="write key: value")
    found: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        key, place = str(key_node.value), _place(key_node, path)
        if key in found:
            raise InputError(
                f"{key} is given twice (first at {found[key].place})", where=place, remedy="delete one of them"
            )
        found[key] = Entry(_value(value_node, path), place)
    return found


def _place(node: yaml.Node, path: Path) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _scalar(node: yaml.ScalarNode) -> object:
    """Numbers as YAML 1.2 reads them (``1e-3`` is one; quoted text is not); everything else stays text."""
    text = str(node.value)
    if node.style is not None or node.tag == f"{_TAG}timestamp":
        return text
    if node.tag == f"{_TAG}null":
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
