"""A part of a deployment that differs from the scenario: its sections, patched and checked as if written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.document import Document
from simulator.engine_checks import check_engine
from simulator.engine_settings import EngineSettings, read_aliases
from simulator.scenario_bind import bind
from simulator.scenario_resolved import plain_section
from simulator.scenario_settings import InlineGpu, ParallelismSettings, ScenarioSettings


def patched(
    settings: ScenarioSettings,
    where: str,
    *,
    gpu: str | Mapping[str, Any] | None = None,
    parallelism: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
) -> ScenarioSettings:
    """The settings with another GPU, and with keys of ``parallelism`` and ``engine`` that stand at ``where``.

    Raises:
        InputError: a key or value that the section would not take, at its dotted path below ``where``.
    """
    found: dict[str, Any] = {}
    if gpu is not None:
        found["gpu"] = gpu if isinstance(gpu, str) else bind(InlineGpu, _document({}, gpu, where, "gpu"), ("gpu",))
    if parallelism:
        document = _document(plain_section(settings.parallelism), parallelism, where, "parallelism")
        found["parallelism"] = bind(ParallelismSettings, document, ("parallelism",))
    if engine:
        document = _document(plain_section(settings.engine), engine, where, "engine")
        check_engine(document)
        found["engine"] = bind(EngineSettings, document, ("engine",))
    return replace(settings, **found)


def _document(base: Mapping[str, Any], patch: Mapping[str, Any], where: str, section: str) -> Document:
    """The section with its patch, whose keys know their dotted place, and have our names."""
    document = Document({section: dict(patch)}, f"{where}.{section}")
    for key in patch:
        document.keys[section, key] = document.values[section, key] = f"{where}.{section}.{key}"
    read_aliases(document)
    document.data[section] = {**base, **document.data[section]}
    return document
