"""The candidates of a capacity search: every combination of the lists, and each patch that the file adds."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.document import Document
from simulator.errors import InputError, KvplanError
from simulator.planner.axes import value_text
from simulator.rank_memory import valid_tensor_parallel_sizes
from simulator.scenario import Scenario, ScenarioFile, bind_patched
from simulator.scenario_specs import find_model_spec

MOST = 2_000
"""More candidates are more often a slip than a wish."""
_SIZES = (1, 2, 4, 8)
_LISTS = {
    "tensor_parallel_size": "parallelism.tensor_parallel_size",
    "pipeline_parallel_size": "parallelism.pipeline_parallel_size",
    "weight_dtype": "engine.weight_dtype",
    "kv_cache_dtype": "engine.kv_cache_dtype",
}
_SHORT = {
    "gpu": "{}",
    "parallelism.tensor_parallel_size": "tp{}",
    "parallelism.pipeline_parallel_size": "pp{}",
    "parallelism.replicas": "x{}",
    "engine.weight_dtype": "w-{}",
    "engine.kv_cache_dtype": "kv-{}",
}
_ASIDE = ("capacity", "sweep", "variants", "name", "mode", "seed", "slo", "expect", "workload")


@dataclass(frozen=True)
class Candidate:
    """One kind of deployment.

    Attributes:
        name: short and unique.
        document: the scenario's, patched; not bound.
        changes: dotted key to value, in the order of the lists: what sets it apart.
        replicas: of the whole deployment; None = as many as the rate needs.
    """

    index: int
    name: str
    variant: str
    document: Document
    changes: dict[str, Any] = field(default_factory=dict)
    replicas: int | None = None


@dataclass(frozen=True)
class Patches:
    """How scenarios of a search are bound: a candidate with a size and a rate."""

    loaded: ScenarioFile
    requests: int | None

    def bound(
        self,
        candidate: Candidate,
        replicas: int,
        rate_rps: float | None,
        requests: int | None,
        *,
        pauses: bool = True,
    ) -> Scenario:
        """The scenario of a probe. Raises InputError."""
        document = candidate.document.copy()
        if not pauses:
            without_pauses(document)
        return self.bound_document(document, replicas, rate_rps, requests)

    def bound_document(
        self, document: Document, replicas: int, rate_rps: float | None, requests: int | None
    ) -> Scenario:
        """The same from a document, which this changes."""
        put(document, "parallelism.replicas", replicas)
        if rate_rps is not None:
            put(document, "workload.rate_rps", rate_rps)
        if requests is not None:
            _put_requests(document, requests)
        return bind_patched(document, self.loaded.folder)


def without_pauses(document: Document) -> None:
    """Sessions whose users do not think: what a server sustains does not depend on how long they do."""
    workload = document.data.get("workload")
    if not isinstance(workload, dict):
        return
    for part in (workload, *(workload.get("classes") or ())):
        if isinstance(part, dict) and isinstance(part.get("session"), dict):
            part["session"].pop("think", None)


def put(document: Document, path: str, value: Any, where: str = "capacity") -> None:
    """Sets a value in a document. Raises InputError where the way leads through something else."""
    document.put(path, Document(value, where, {}, {(): where}))


def _put_requests(document: Document, requests: int) -> None:
    workload = document.data.get("workload")
    if not isinstance(workload, dict):
        return  # binding says what is wrong
    if workload.get("trace") is not None:
        put(document, "workload.trace.limit", requests)
        return
    put(document, "workload.num_requests", requests)
    workload.pop("duration_s", None)


def make_candidates(loaded: ScenarioFile, settings: CapacitySettings, where: Mapping[str, str]) -> list[Candidate]:
    """All candidates, each once.

    Args:
        where: place of a key of the ``capacity`` section, for errors.
    Raises:
        InputError: too many, or a key that cannot differ between candidates.
    """
    found: dict[str, Candidate] = {}
    names: dict[str, int] = {}
    for variant, document in loaded.unbound.items():
        for changes in _all_changes(document, settings, where):
            patched = document.copy()
            for path, value in changes.items():
                put(patched, path, value, where.get(path, loaded.document.name))
            text = json.dumps([variant, patched.data], sort_keys=True, default=str)
            if text in found:
                continue
            if len(found) >= MOST:
                place = where.get("", "capacity")
                raise InputError(f"more than {MOST:,} candidates", where=place, remedy="give shorter lists")
            name = _name(variant, changes, patched)
            names[name] = names.get(name, 0) + 1
            if names[name] > 1:
                name = f"{name} #{names[name]}"
            sized = changes.get("parallelism.replicas")
            found[text] = Candidate(len(found), name, variant, patched, changes, sized)
    return list(found.values())


def _all_changes(document: Document, settings: CapacitySettings, where: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path in [*settings.over, *(key for patch in settings.candidates for key in patch)]:
        if any(path == key or path.startswith(key + ".") for key in _ASIDE):
            place = where.get(path, "capacity")
            raise InputError(f"{path} cannot differ between candidates", where=place, remedy="delete it")
    if settings.candidates:
        for patch in settings.candidates:
            fixed = dict(patch)
            for way in _combinations(document, settings, fixed, auto=False):
                yield {**way, **fixed}
        if not _lists(settings):
            return
    yield from _combinations(document, settings, {}, auto=not settings.candidates)


def _lists(settings: CapacitySettings) -> dict[str, tuple[Any, ...]]:
    """The lists that the section states, by dotted key."""
    lists: dict[str, tuple[Any, ...]] = {"gpu": settings.gpus} if settings.gpus else {}
    lists |= {path: tuple(getattr(settings, name)) for name, path in _LISTS.items() if getattr(settings, name)}
    lists |= {path: tuple(values) for path, values in settings.over.items()}
    return lists


def _combinations(
    document: Document, settings: CapacitySettings, fixed: Mapping[str, Any], *, auto: bool
) -> Iterator[dict[str, Any]]:
    lists = {} if fixed else _lists(settings)
    if settings.replicas != "auto" and "parallelism.replicas" not in fixed:
        lists["parallelism.replicas"] = settings.replicas
    size = "parallelism.tensor_parallel_size"
    stated = (document.data.get("parallelism") or {}) if isinstance(document.data.get("parallelism"), dict) else {}
    if auto and size not in lists and "tensor_parallel_size" not in stated:
        lists[size] = tuple(_sizes(document))
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _sizes(document: Document) -> list[int]:
    """Tensor-parallel sizes worth a look."""
    try:
        valid = valid_tensor_parallel_sizes(find_model_spec(document.data["model"]), max(_SIZES))
    except (KvplanError, KeyError, TypeError):
        return [1]  # binding says what is wrong with the model
    return [size for size in _SIZES if size in valid]


def _name(variant: str, changes: Mapping[str, Any], document: Document) -> str:
    parts = [variant] if variant else []
    gpu = changes.get("gpu", document.data.get("gpu"))
    parts += [] if "gpu" in changes else [gpu if isinstance(gpu, str) else "inline"]
    for path, value in changes.items():
        shape = _SHORT.get(path, path.rpartition(".")[2] + "-{}")
        parts.append(shape.format(value_text(value)))
    return " ".join(re.sub(r"[\s\"]+", "", str(part)) for part in parts if part)
