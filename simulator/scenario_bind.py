"""Binds plain data to standard dataclasses, strictly, and says of every fault where it stands.

The dataclasses are the only description of a scenario: ``kvplan schema`` lets pydantic draw the JSON Schema
from the same classes. Binding is our own because an error must name file, line and column of the very key,
list the valid kinds of a union and offer a change that works, also when the value came from ``--set`` or from
a variant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, NoReturn, TypeVar, cast

import annotated_types

from simulator.document import Document, Steps, dotted, kind_of
from simulator.errors import InputError, KvplanError
from simulator.suggestions import did_you_mean, named, number_remedy
from workloads.errors import WorkloadError

T = TypeVar("T")


def bind(cls: type[T], document: Document, steps: Steps = ()) -> T:
    """The part of a document at ``steps`` as an object of a dataclass. Raises InputError."""
    return cast("T", _Binder(document).value(cls, document.part(steps), steps))


@functools.cache
def fields_of(cls: type) -> dict[str, tuple[Any, bool]]:
    """Type and "is required" of each field of a dataclass that a scenario may give."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        f.name: (
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
        if f.init
    }


def kinds(members: Iterable[Any]) -> dict[str, type]:
    """The dataclasses of a union by their literal ``kind``."""
    found: dict[str, type] = {}
    for member in members:
        if dataclasses.is_dataclass(member) and "kind" in fields_of(cast("type", member)):
            for kind in typing.get_args(fields_of(cast("type", member))["kind"][0]):
                found[kind] = cast("type", member)
    return found


class _Binder:
    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, hint: Any, data: Any, steps: Steps, limits: tuple[Any, ...] = ()) -> Any:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.value(args[0], data, steps, args[1:])
        if hint is Any:
            return data
        if origin in (typing.Union, types.UnionType):
            return self._union(args, data, steps, limits)
        if origin is Literal:
            return self._literal(args, data, steps)
        if origin in (tuple, list) or (isinstance(origin, type) and issubclass(tuple, origin)):
            return self._sequence(origin, args, data, steps, limits)
        if origin is dict or (isinstance(origin, type) and issubclass(dict, origin)):
            return self._dict(args, data, steps, limits)
        if dataclasses.is_dataclass(hint):
            return self._dataclass(cast("type", hint), data, steps)
        return self._scalar(hint, data, steps, limits)

    # -- structures

    def _dataclass(self, cls: type, data: Any, steps: Steps) -> Any:
        if not isinstance(data, dict):
            self._wrong("a mapping", data, steps, "write its keys below it, indented")
        fields = fields_of(cls)
        for key in data:
            if key not in fields:
                remedy = did_you_mean(key, fields)
                name = dotted((*steps, key))
                where = self._document.key_place((*steps, key))
                raise InputError(f"{name} is not an option", where=where, remedy=remedy)
        for key, (_, required) in fields.items():
            if required and key not in data:
                self._refuse(f"{dotted((*steps, key))} is missing", steps, f"add {key}: ...")
        values = {key: self.value(fields[key][0], item, (*steps, key)) for key, item in data.items()}
        try:
            return cls(**values)
        except (WorkloadError, KvplanError) as error:
            self._relay(error, data, steps)

    def _relay(self, error: WorkloadError | KvplanError, data: dict[str, Any], steps: Steps) -> NoReturn:
        """An error of the class's own check, placed at the field that it names."""
        name = (error.where or "").rpartition(".")[2]
        if name not in data:  # not by its address, then by the first field that the sentence names
            name = next((w for w in re.findall(r"\w+", error.what) if w in data and w != "kind"), "")
        at = (*steps, name) if name else steps
        what = error.what
        if not what.startswith(dotted(at)):
            what = f"{dotted(at)}: {what}" if dotted(at) else what
        raise InputError(what, where=self._document.place(at), remedy=error.remedy) from None

    def _union(self, members: tuple[Any, ...], data: Any, steps: Steps, limits: tuple[Any, ...]) -> Any:
        if data is None and type(None) in members:
            return None
        options = [member for member in members if member is not type(None)]
        if len(options) == 1:
            return self.value(options[0], data, steps, limits)
        classes = [m for m in options if dataclasses.is_dataclass(m)]
        if isinstance(data, dict) and classes:
            return self._by_kind(classes, data, steps)
        for member in options:
            if member not in classes:
                with contextlib.suppress(InputError):
                    return self.value(member, data, steps, limits)
        wanted = " or ".join(dict.fromkeys(named(m) for m in options))
        listed = ", ".join(kinds(classes))
        remedy = f"write {{kind: ...}} with one of {listed}" if listed else f"give {wanted} that is not empty"
        return self._wrong(wanted, data, steps, remedy)

    def _by_kind(self, classes: list[Any], data: dict[str, Any], steps: Steps) -> Any:
        by_kind = kinds(classes)
        if len(classes) == 1 and "kind" not in data:
            return self._dataclass(classes[0], data, steps)
        if "kind" not in data:
            listed = f"add kind: one of {', '.join(by_kind)}"
            self._refuse(f"{dotted((*steps, 'kind'))} is missing", steps, listed)
        kind = data["kind"]
        if not isinstance(kind, str) or kind not in by_kind:
            close = did_you_mean(str(kind), by_kind)
            listed = "" if close.startswith("valid") else f" valid: {', '.join(by_kind)}"
            section = next(step for step in reversed(steps) if isinstance(step, str))
            what = f"{dotted((*steps, 'kind'))}: {kind!r} is not a kind that {section} knows"
            self._refuse(what, (*steps, "kind"), f"{close}{listed}")
        return self._dataclass(by_kind[kind], data, steps)

    def _sequence(self, origin: Any, args: tuple[Any, ...], data: Any, steps: Steps, limits: Any) -> Any:
        if not isinstance(data, list):
            self._wrong("a list", data, steps, "write [a, b, ...]")
        if (len(args) == 2 and args[1] is Ellipsis) or origin is list or len(args) == 1:
            items = [self.value(args[0], item, (*steps, i)) for i, item in enumerate(data)]
        elif len(args) != len(data):
            self._wrong(f"a list of {len(args)}", f"{len(data)} values", steps, f"give {len(args)} values")
        else:
            items = [self.value(h, d, (*steps, i)) for i, (h, d) in enumerate(zip(args, data, strict=True))]
        for limit in limits:
            if isinstance(limit, annotated_types.MinLen) and len(items) < limit.min_length:
                self._refuse(f"{dotted(steps)} is empty", steps, f"give at least {limit.min_length}")
        return items if origin is list else tuple(items)

    def _dict(self, args: tuple[Any, ...], data: Any, steps: Steps, limits: tuple[Any, ...]) -> Any:
        if not isinstance(data, dict):
            self._wrong("a mapping", data, steps, "write name: value pairs below it, indented")
        for limit in limits:
            if isinstance(limit, annotated_types.MinLen) and len(data) < limit.min_length:
                self._refuse(f"{dotted(steps)} is empty", steps, "add an entry or delete the key")
        return {key: self.value(args[1], item, (*steps, key)) for key, item in data.items()}

    # -- scalars

    def _literal(self, options: tuple[Any, ...], data: Any, steps: Steps) -> Any:
        if any(data == option and type(data) is type(option) for option in options):
            return data
        close = did_you_mean(str(data), map(str, options))
        listed = "" if close.startswith("valid") else f" valid: {', '.join(map(str, options))}"
        return self._refuse(f"{dotted(steps)} cannot be {kind_of(data)}", steps, f"{close}{listed}")

    def _scalar(self, hint: Any, data: Any, steps: Steps, limits: tuple[Any, ...]) -> Any:
        value = data
        if hint is bool:
            if not isinstance(data, bool):
                self._wrong("true or false", data, steps, "write true or false")
        elif hint in (int, float):
            value = self._number(hint, data, steps)
            self._check_range(data, limits, steps)
        elif hint is str:
            if not isinstance(data, str):
                remedy = "delete the key" if data is None else "write it in quotes"
                self._wrong("text", data, steps, remedy if not isinstance(data, dict | list) else "write text")
            if not data.strip():
                self._refuse(f"{dotted(steps)} is empty", steps, "give it a value or delete the key")
        elif hint is type(None):
            if data is not None:
                self._wrong("empty (null)", data, steps, "write null")
        else:
            raise TypeError(f"no rule to bind {hint!r} at {dotted(steps)}")
        return value

    def _number(self, hint: type, data: Any, steps: Steps) -> int | float:
        wanted = "a whole number" if hint is int else "a number"
        if isinstance(data, bool) or not isinstance(data, int | float):
            self._wrong(wanted, data, steps, number_remedy(data, str(steps[-1]) if steps else ""))
        if not math.isfinite(data):
            self._wrong("a finite number", data, steps, "write a number that is not .nan or .inf")
        if hint is float:
            return float(data)
        if data != int(data):
            self._wrong(wanted, data, steps, f"write {round(data)}")
        return int(data)

    def _check_range(self, value: float, limits: tuple[Any, ...], steps: Steps) -> None:
        for limit in limits:
            match limit:
                case annotated_types.Ge(ge=low) if not value >= cast("float", low):
                    self._wrong(f"at least {low}", value, steps, f"write {low} or more")
                case annotated_types.Gt(gt=low) if not value > cast("float", low):
                    self._wrong(f"above {low}", value, steps, f"write a number above {low}")
                case annotated_types.Le(le=high) if not value <= cast("float", high):
                    self._wrong(f"at most {high}", value, steps, f"write {high} or less")
                case _:
                    pass

    # -- faults

    def _wrong(self, wanted: str, data: Any, steps: Steps, remedy: str) -> NoReturn:
        found = data if isinstance(data, str) and wanted.startswith("a list of") else kind_of(data)
        name = dotted(steps) or "a scenario"
        self._refuse(f"{name} must be {wanted}, not {found}", steps, remedy)

    def _refuse(self, what: str, steps: Steps, remedy: str) -> NoReturn:
        raise InputError(what, where=self._document.place(steps), remedy=remedy)
