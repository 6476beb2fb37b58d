"""Strict YAML with a memory for places: plain data, and ``file:line:column`` of every key and value in it.

Scalars follow YAML 1.2's core schema: ``3.35e12`` is a number, ``no`` is text. Duplicate keys, tags, several
documents and endless aliases are errors, because stock PyYAML would swallow each of them in silence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from simulator.document import Document, Steps, dotted
from simulator.errors import InputError

MAX_NODES = 200_000
"""More than any scenario needs; aliases that multiply ("billion laughs") end here."""

_TAG = "tag:yaml.org,2002:"


class _CoreLoader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's own pieces, with the resolver of YAML 1.2's core schema instead of 1.1's."""

    def __init__(self, text: str, name: str) -> None:
        Reader.__init__(self, text)
        self.name = name
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
):
    _CoreLoader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


def core_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's table of implicit tags by first character, for a dumper that writes what this loader reads."""
    return {first: list(rules) for first, rules in _CoreLoader.yaml_implicit_resolvers.items()}


def scalar(tag: str, text: str) -> object:
    """The value of a scalar whose tag the core schema has resolved."""
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            if text.startswith(("0o", "0x")):
                return int(text, 0)
            return int(text)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            return text


def read_yaml(path: Path, name: str | None = None) -> Document:
    """Reads a file; ``name`` is what errors call it. Raises InputError."""
    name = name or str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", where=name, remedy="check the path") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a YAML file", where=name, remedy="name a file in it") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not a text file: byte {error.start} is not UTF-8",
            where=f"{name}:1:1",
            remedy="save it as UTF-8 text",
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=name, remedy="check its permissions") from None
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str, *, fixed_place: str | None = None) -> Document:
    """Parses one YAML document.

    Args:
        name: what errors call the text; places are ``name:line:column``, both from 1.
        fixed_place: the place of every node instead (an option of the command line has no lines).
    """
    try:
        loader = _CoreLoader(text, name)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, name, fixed_place)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise InputError(
            f"character {error.character!r} is not allowed in YAML",
            where=fixed_place or f"{name}:{line}:{column}",
            remedy="is this a text file? Delete the character",
        ) from None
    except RecursionError:
        raise InputError("is nested too deeply", where=fixed_place or f"{name}:1:1", remedy="flatten it") from None
    document = Document(None, name)
    if root is None:
        document.values[()] = fixed_place or f"{name}:1:1"
        return document
    document.data = _Reading(document, fixed_place).value(root, (), ())
    return document


class _Reading:
    """One walk over the composed nodes."""

    def __init__(self, document: Document, fixed_place: str | None) -> None:
        self._document = document
        self._fixed_place = fixed_place
        self._count = 0

    def value(self, node: Node, steps: Steps, above: tuple[int, ...]) -> Any:
        place = self._place(node)
        self._document.values[steps] = place
        self._count += 1
        if id(node) in above or self._count > MAX_NODES:
            raise InputError("an alias that has no end", where=place, remedy="write the values out")
        if isinstance(node, ScalarNode):
            if not node.tag.startswith(_TAG) or node.tag.removeprefix(_TAG) not in (
                "str", "int", "float", "bool", "null",
            ):  # fmt: skip
                self._refuse_tag(node)
            return self._scalar(node)
        if isinstance(node, SequenceNode):
            if node.tag != _TAG + "seq":
                self._refuse_tag(node)
            return [self.value(item, (*steps, i), (*above, id(node))) for i, item in enumerate(node.value)]
        if node.tag != _TAG + "map":
            self._refuse_tag(node)
        assert isinstance(node, MappingNode)  # the composer knows three kinds of nodes
        return self._mapping(node, steps, (*above, id(node)))

    def _mapping(self, node: MappingNode, steps: Steps, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, ScalarNode):
                raise InputError("a key must be text", where=place, remedy="write key: value")
            key = key_node.value
            if key in found:
                first = self._document.keys[(*steps, key)]
                raise InputError(
                    f"{dotted((*steps, key))} is given twice (first at {first})",
                    where=place,
                    remedy="delete one of them",
                )
            self._document.keys[(*steps, key)] = place
            found[key] = self.value(value_node, (*steps, key), above)
        return found

    def _scalar(self, node: ScalarNode) -> object:
        try:
            return scalar(node.tag, node.value)
        except ValueError:  # an explicit tag on what it is not: !!int ten
            raise InputError(
                f"{node.value!r} is not {node.tag.removeprefix(_TAG)}",
                where=self._place(node),
                remedy="delete the tag",
            ) from None

    def _place(self, node: Node) -> str:
        if self._fixed_place is not None:
            return self._fixed_place
        mark = node.start_mark
        return f"{self._document.name}:{mark.line + 1}:{mark.column + 1}"

    def _refuse_tag(self, node: Node) -> NoReturn:
        raise InputError(
            f"the tag {node.tag.replace(_TAG, '!!')} is not supported",
            where=self._place(node),
            remedy="write plain values without tags",
        )


def _refuse_syntax(error: yaml.MarkedYAMLError, name: str, fixed_place: str | None) -> NoReturn:
    mark = error.problem_mark or error.context_mark
    where = fixed_place or (f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name)
    said = " ".join(part for part in (error.problem, error.context) if part) or "cannot be parsed"
    if "expected a single document" in said:
        raise InputError("holds several documents", where=where, remedy="keep one, delete the --- line") from None
    remedy = "check the brackets, commas, quotes and the indentation there and on the line before"
    if "\\t" in said:
        remedy = "indent with spaces, not with tabs"
    raise InputError(f"is not valid YAML: {said}", where=where, remedy=remedy) from None
