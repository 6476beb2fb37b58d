"""Reads fields of a config by their many names; what is missing or impossible is an error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import InputError

_ABSENT = object()


class Fields:
    """A config section with a name for errors and the Hugging Face defaults of its model type.

    ``config.json`` leaves out fields equal to the class default, so a documented default is part of the format. What
    was taken from there is listed in ``defaulted``.
    """

    def __init__(self, data: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None) -> None:
        self.data = data
        self.where = where
        self.defaults = defaults or {}
        self.defaulted: list[str] = []

    def raw(self, *names: str, default: Any = None) -> Any:
        """The first of ``names`` that is present and not null; then the model type's default; then ``default``."""
        for name in names:
            value = self.data.get(name)
            if value is not None:
                return value
        if any(name in self.data for name in names):
            return default  # an explicit null overrules the class default
        for name in names:
            if self.defaults.get(name) is not None:
                note = f"{name} = {self.defaults[name]} (Hugging Face default)"
                if note not in self.defaulted:
                    self.defaulted.append(note)
                return self.defaults[name]
        return default

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        value = self.raw(*names, default=_ABSENT if default is None else default)
        if value is _ABSENT:
            raise self.missing(*names)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"{self._spelled(names)} must be a whole number of at least {least}, got {value!r}",
                where=self.where,
                remedy="give the number of the model's own config.json",
            )
        return value

    def flag(self, *names: str, default: bool) -> bool:
        value = self.raw(*names, default=default)
        if not isinstance(value, bool):
            raise InputError(f"{self._spelled(names)} must be true or false, got {value!r}", where=self.where)
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        value = self.raw(*names, default=_ABSENT if default is None else default)
        if value is _ABSENT:
            raise self.missing(*names)
        if not isinstance(value, str):
            raise InputError(f"{self._spelled(names)} must be text, got {value!r}", where=self.where)
        return value

    def section(self, name: str) -> Fields:
        value = self.data.get(name)
        if not isinstance(value, Mapping):
            raise self.missing(name)
        return Fields(value, f"{self.where}: {name}", self.defaults)

    def items(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list, or None where absent; ``length`` checks that it has one entry a layer."""
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{self._spelled(names)} must be a list, got {value!r}", where=self.where)
        if length is not None and len(value) != length:
            raise InputError(
                f"{self._spelled(names)} has {len(value)} entries for {length} layers",
                where=self.where,
                remedy="it needs one entry a layer",
            )
        return list(value)

    def missing(self, *names: str) -> InputError:
        return InputError(
            f"the config has no {self._spelled(names)}",
            where=self.where,
            remedy=f"add {names[0]}; its value is not guessed",
        )

    @staticmethod
    def _spelled(names: tuple[str, ...]) -> str:
        return names[0] if len(names) == 1 else f"{names[0]} (or {', '.join(names[1:])})"
