"""Which column of a table holds what: the names in use, and the unit that a name states."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.errors import WorkloadError
from workloads.traces.values import UNIT_PS

# Names in the wild, lower case and without blanks, dashes and underscores, best first.
_PROMPT = (
    *("prompttokens", "inputlength", "inputtokens", "contexttokens", "requesttokens", "numprefilltokens"),
    *("promptlen", "promptlength", "inputlen", "numprompttokens", "numinputtokens", "prefilltokens", "isl"),
    *("inputsequencelength", "inputtoks", "promptsize", "in", "prompt", "input"),
)
_OUTPUT = (
    *("outputtokens", "outputlength", "generatedtokens", "responsetokens", "numdecodetokens", "outputlen"),
    *("completiontokens", "generationtokens", "numoutputtokens", "decodetokens", "osl"),
    *("outputsequencelength", "outputtoks", "tokensize", "out", "output", "response"),
)
_TIME = (
    *("arrival", "arrivedat", "timestamp", "arrivaltime", "requestarrivedat", "arrivaltimestamp", "time"),
    *("starttime", "t"),
)
_CLASS = ("class", "classname", "requestclass", "tier")
_ID = ("requestid", "id")
_UNIT = re.compile(r"[ _\-(\[]+(s|sec|secs|seconds|ms|us|ns)[)\]]?$", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Names of the columns, as the file spells them; None where there is none. ``unit``: of the time column."""

    prompt: str
    output: str
    time: str | None
    unit: str
    request_class: str | None = None
    priority: str | None = None
    request_id: str | None = None

    @property
    def unit_ps(self) -> int:
        """Picoseconds of one unit of the time column."""
        return UNIT_PS[self.unit]


def find_columns(names: Iterable[str], *, where: str, time_unit: str, default_unit: str) -> Columns:
    """The columns among ``names``.

    Args:
        time_unit: what the user says (``auto``: the suffix of the name, else ``default_unit``).

    Raises:
        WorkloadError: no prompt or no output column.
    """
    names = [name for name in names if name]
    plain = {_plain(name): name for name in reversed(names)}
    units: dict[str, str] = {}
    for name in reversed(names):
        if suffix := _UNIT.search(name.strip()):
            stem = _plain(name.strip()[: suffix.start()])
            if stem in _TIME:
                plain[stem] = name
                units[name] = suffix[1].lower() if suffix[1].lower() in UNIT_PS else "s"

    def first(wanted: tuple[str, ...]) -> str | None:
        return next((plain[w] for w in wanted if w in plain), None)

    prompt, output = first(_PROMPT), first(_OUTPUT)
    for what, found, example in (("prompt", prompt, "prompt_tokens"), ("output", output, "output_tokens")):
        if found is None:
            raise WorkloadError(
                f"has no column of {what} tokens; it has {', '.join(names[:12]) or 'none'}",
                where=where,
                remedy=f"name one of them {example}",
            )
    time = first(_TIME)
    unit = time_unit if time_unit != "auto" else units.get(time or "", default_unit)
    priority = plain.get("priority")
    return Columns(prompt or "", output or "", time, unit, first(_CLASS), priority, first(_ID))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
