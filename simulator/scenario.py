"""From a scenario file to settings: find it, patch it, bind it, split it into its variants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import scenarios
from simulator.capacity_settings import CapacitySettings
from simulator.document import Document, dotted, kind_of
from simulator.engine_checks import check_engine
from simulator.engine_settings import read_aliases
from simulator.errors import InputError, KvplanError
from simulator.metrics_slo import SLO_METRICS, SLO_STATS
from simulator.scenario_bind import bind
from simulator.scenario_settings import ScenarioSettings, SweepSettings
from simulator.scenario_yaml import parse_yaml, read_yaml
from simulator.slo_presets import expand_presets, name_presets
from simulator.suggestions import did_you_mean
from workloads.config import check_workload
from workloads.errors import WorkloadError

SHIPPED = Path(scenarios.__file__).parent

_FILES = (".json", ".yaml", ".yml")
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_TAKEN = ("plots", "report.html", "result.json", "scenario.resolved.yaml", "provenance.json")
"""What stands in a result folder beside the variants' own folders."""


@dataclass(frozen=True)
class Scenario:
    """One run: its settings, the document they came from (for places), and notes on how it was read."""

    settings: ScenarioSettings
    document: Document
    notes: tuple[str, ...] = ()

    def located(self, error: KvplanError | WorkloadError) -> InputError | KvplanError:
        """The error with ``file:line:column`` instead of the dotted path of a setting."""
        return located(self.document, error)


@dataclass(frozen=True)
class ScenarioFile:
    """A loaded file: its variants by name, or ``base`` alone where it has none.

    Attributes:
        unbound: the document of each variant (or of "") before it was bound, for those who patch it further.
        folder: where relative paths start.
        sweep, capacity: what the file says there, and the document in which the values stand.
    """

    name: str
    document: Document
    base: Scenario | None
    variants: dict[str, Scenario]
    unbound: dict[str, Document] = field(default_factory=dict)
    folder: Path = Path()
    sweep: tuple[SweepSettings, Document] | None = None
    capacity: tuple[CapacitySettings, Document] | None = None

    @property
    def scenario(self) -> Scenario:
        """The only run of a file without variants."""
        assert self.base is not None
        return self.base


def shipped_scenarios() -> dict[str, Path]:
    """The scenarios that come with kvplan, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def find_scenario(name_or_path: str) -> Path:
    """A file by its path, or a shipped scenario by its name. Raises InputError."""
    path = Path(name_or_path)
    shipped = shipped_scenarios()
    if name_or_path in shipped:  # ./quickstart is the file of that name
        return shipped[name_or_path]
    if path.exists():
        return path  # a folder is refused by the reader, which names it
    looks_like_path = len(path.parts) > 1 or path.suffix in (".yaml", ".yml", ".json")
    near = "check the path" if looks_like_path else did_you_mean(name_or_path, shipped)
    what = "no such file" if looks_like_path else "no such file, and no scenario of that name is shipped"
    raise InputError(what, where=name_or_path, remedy=near)


def load_scenario(name_or_path: str, patches: Iterable[str] = (), seed: int | None = None) -> ScenarioFile:
    """Reads and checks a scenario file.

    Args:
        patches: ``path=value`` options; the value is YAML.
        seed: replaces the file's seed.
    Raises:
        InputError: with ``file:line:column``, or with the option where the fault is in an option.
    """
    path = find_scenario(name_or_path)
    loaded = read_scenario(read_yaml(path, str(path)), path, patches, seed)
    if path.parent == SHIPPED:
        _refuse_absent_trace(loaded)
    return loaded


def _refuse_absent_trace(loaded: ScenarioFile) -> None:
    """Shipped scenarios may name a trace that cannot be shipped."""
    for scenario in loaded.variants.values() or [loaded.scenario]:
        trace = scenario.settings.workload.trace
        if trace is not None and not Path(trace.path).exists():
            raise InputError(
                f"the trace is not shipped with kvplan, and there is no file {trace.path}",
                where=scenario.document.place(("workload", "trace", "path")),
                remedy="the scenario's first lines say where to get it; then give --set workload.trace.path=FILE",
            )


def read_scenario(document: Document, path: Path, patches: Iterable[str] = (), seed: int | None = None) -> ScenarioFile:
    """The same from a document that is already read; ``path`` is where its relative paths start."""
    if not isinstance(document.data, dict):
        raise InputError(
            f"a scenario must be a mapping, not {kind_of(document.data)}",
            where=document.place(()),
            remedy="start with name:, model:, gpu:, workload: (see kvplan schema)",
        )
    document.data.setdefault("name", path.stem)
    for patch in patches:
        name_presets(document)
        apply_patch(document, patch)
    name_presets(document)
    if seed is not None:
        document.put("seed", parse_yaml(str(seed), "--seed", fixed_place=f"--seed {seed}"))
    folder = path.parent
    _make_paths_absolute(document, folder)
    sweep, capacity = _taken(document, "sweep", SweepSettings), _taken(document, "capacity", CapacitySettings)
    variants = _variants(document)
    if not variants:
        unbound = {"": document.copy()}
        scenario = _scenario(document)
        return ScenarioFile(scenario.settings.name, document, scenario, {}, unbound, folder, sweep, capacity)
    unbound = {name: part.copy() for name, part in variants.items()}
    loaded = {name: _scenario(part) for name, part in variants.items()}
    name = document.data["name"]
    return ScenarioFile(str(name), document, None, loaded, unbound, folder, sweep, capacity)


def bind_patched(document: Document, folder: Path) -> Scenario:
    """One run from a document that was patched further (``ScenarioFile.unbound``), which this changes."""
    _make_paths_absolute(document, folder)
    return _scenario(document)


def _taken(document: Document, section: str, cls: type[T]) -> tuple[T, Document] | None:
    """Takes a section out of the document, for no single run depends on it."""
    if document.data.get(section) is None:
        document.data.pop(section, None)
        return None
    whole = document.copy()
    settings = bind(cls, whole, (section,))
    document.data.pop(section)
    return settings, whole


def apply_patch(document: Document, patch: str) -> None:
    """Applies one ``path=value``."""
    option = f"--set {patch}"
    path, equals, text = patch.partition("=")
    path = path.strip()
    if not equals or not path:
        raise InputError("is not path=value", where=option, remedy="write --set engine.block_size=32")
    if path.startswith("variants."):
        remedy = "change it in the file, or set variants=null to run without them"
        raise InputError("a single variant cannot be set here", where=option, remedy=remedy)
    value = parse_yaml(text, option, fixed_place=option)
    document.put(path, value)


def _variants(document: Document) -> dict[str, Document]:
    """A patched copy of the document for each variant."""
    variants = document.data.get("variants")
    if variants is None:
        document.data.pop("variants", None)
        return {}
    if not isinstance(variants, dict) or not variants:
        raise InputError(
            f"variants must be a mapping of names to patches, not {kind_of(variants) if variants else 'empty'}",
            where=document.place(("variants",)),
            remedy="write variants: {small: {engine.block_size: 8}, large: {engine.block_size: 32}}",
        )
    found = {}
    for name, patches in variants.items():
        where = document.key_place(("variants", name))
        if not _NAME.match(name) or name in _TAKEN:
            raise InputError(
                f"variants.{name} cannot be the name of a folder",
                where=where,
                remedy="use letters, digits, dots and dashes",
            )
        if patches is not None and not isinstance(patches, dict):
            raise InputError(
                f"variants.{name} must be a mapping of patches, not {kind_of(patches)}",
                where=document.place(("variants", name)),
                remedy="write {engine.block_size: 8}, or {} for no change",
            )
        copy = document.copy()
        copy.data.pop("variants")
        for path in patches or {}:
            if path.split(".")[0] in ("variants", "name", "mode"):  # a clock beside none has nothing to compare
                where = document.key_place(("variants", name, path))
                raise InputError(f"a variant cannot change {path}", where=where, remedy="delete the line")
            copy.put(path, document, ("variants", name, path))
        found[name] = copy
    return found


def _scenario(document: Document) -> Scenario:
    """Binds one document without variants, and checks what no single value shows."""
    notes = read_aliases(document)
    check_engine(document)
    notes += expand_presets(document)
    for key in ("parallelism", "engine", "fleet", "slo", "cost", "expect", "step_time"):
        if key in document.data and document.data[key] is None:
            raise InputError(
                f"{key} is empty", where=document.key_place((key,)), remedy="give it keys or delete the line"
            )
    settings = bind(ScenarioSettings, document)
    if not _NAME.match(settings.name):
        raise InputError(
            f"name: {settings.name!r} cannot be the name of a folder",
            where=document.place(("name",)),
            remedy="use letters, digits, dots and dashes",
        )
    _check_slo(document, ("slo",), settings.slo)
    for i, part in enumerate(settings.workload.classes):
        _check_slo(document, ("workload", "classes", i, "slo"), part.slo)
    if settings.gpu is None and needs_gpu(settings):
        raise InputError("gpu is missing", where=document.place(()), remedy="add gpu: h100-sxm-80gb")
    try:
        check_workload(settings.workload)
    except WorkloadError as error:
        raise located(document, error) from None
    return Scenario(settings, document, tuple(notes))


def needs_gpu(settings: ScenarioSettings) -> bool:
    """Whether memory or step time follows from a GPU."""
    engine = settings.engine
    sized = (engine.num_gpu_blocks_override, engine.kv_cache_memory_bytes, engine.max_total_tokens)
    timed = settings.mode == "admission" or settings.step_time.kind == "linear"
    return not timed or all(size is None for size in sized)


def _check_slo(document: Document, steps: tuple[str | int, ...], slo: dict[str, dict[str, float]]) -> None:
    for metric, limits in slo.items():
        for name, valid, at in [(metric, SLO_METRICS, (*steps, metric))] + [
            (statistic, SLO_STATS, (*steps, metric, statistic)) for statistic in limits
        ]:
            if name not in valid:
                remedy = did_you_mean(name, valid)
                raise InputError(f"{dotted(at)} is not known", where=document.key_place(at), remedy=remedy)


def located(document: Document, error: KvplanError | WorkloadError) -> KvplanError:
    """The error with the place of the setting that it names by a dotted path (``workload.classes.0.weight``)."""
    kind = type(error) if isinstance(error, KvplanError) else InputError
    steps: tuple[str | int, ...] = ()
    here = document.data
    path = error.where or ""
    for name in path.split("."):
        if isinstance(here, dict) and name in here:
            steps, here = (*steps, name), here[name]
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            steps, here = (*steps, int(name)), here[int(name)]
        else:
            break
    if path and not steps and path.split(".")[0] not in ("engine", "workload", "parallelism", "step_time"):
        return kind(error.what, where=error.where, remedy=error.remedy)  # a file of its own: a trace, a config.json
    what = error.what if not path or path in error.what else f"{path}: {error.what}"
    return kind(what, where=document.place(steps), remedy=error.remedy)


def _make_paths_absolute(document: Document, folder: Path) -> None:
    """Paths start at the scenario's folder; those of the command line at the current one."""
    todo: list[tuple[tuple[str | int, ...], object]] = [((), document.data)]
    while todo:
        steps, value = todo.pop()
        if isinstance(value, dict):
            todo += [((*steps, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            todo += [((*steps, i), item) for i, item in enumerate(value)]
        elif isinstance(value, str) and steps and _holds_path(steps, value):
            base = Path() if document.place(steps).startswith(("--set", "--over")) else folder
            absolute = (base / Path(value).expanduser()).resolve()
            if str(steps[-1]).endswith("path") or absolute.suffix in _FILES or absolute.exists():
                document.part(steps[:-1])[steps[-1]] = str(absolute)


def _holds_path(steps: tuple[str | int, ...], value: str) -> bool:
    """Whether a value names a file: every ``path``, and a model or a calibration that is not a catalogue name."""
    last = str(steps[-1]).rpartition(".")[2]
    if last == "path":
        return "workload" in str(steps)
    return last in ("model", "calibration") and ("/" in value or value.endswith(_FILES))
