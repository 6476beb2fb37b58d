"""What a capacity search is asked: the scenario, its ``capacity`` section and the command line, all checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from simulator.capacity_settings import CapacitySettings
from simulator.document import Document
from simulator.errors import InputError
from simulator.planner.capacity.candidates import Candidate, Patches, make_candidates
from simulator.planner.question import question_of
from simulator.run_scenario import build
from simulator.scenario import ScenarioFile, find_scenario, load_scenario
from simulator.scenario_specs import find_gpu_spec
from workloads.arrivals import AllAtOnce, ClosedLoop


@dataclass(frozen=True)
class Asked:
    """A question that makes sense."""

    patches: Patches
    settings: CapacitySettings
    candidates: list[Candidate]
    question: str | None


def read_question(
    name: str,
    sets: Iterable[str],
    seed: int | None,
    *,
    gpus: Sequence[str] = (),
    rate_rps: float | None = None,
    budget_usd_per_hour: float | None = None,
    requests: int | None = None,
) -> Asked:
    """Reads a scenario for ``kvplan capacity``; the options win over the file.

    Raises:
        InputError: at its place, for anything that no candidate could be run with.
    """
    loaded = load_scenario(name, sets, seed)
    settings, document = loaded.capacity or (CapacitySettings(), loaded.document)
    for option, value in (("--rate", rate_rps), ("--budget", budget_usd_per_hour)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"must be a number above 0, not {value:g}", where=option, remedy=f"give {option} 20")
    if gpus:
        settings = replace(settings, gpus=tuple(gpus), candidates=())
    settings = replace(
        settings,
        rate_rps=rate_rps or settings.rate_rps,
        budget_usd_per_hour=budget_usd_per_hour or settings.budget_usd_per_hour,
        requests_per_probe=requests or settings.requests_per_probe,
    )
    _check_names(settings, document, gpus)
    _check_scenario(loaded)
    candidates = make_candidates(loaded, settings, _places(settings, document))
    patches = Patches(loaded, settings.requests_per_probe)
    _check_first(candidates, patches)
    return Asked(patches, settings, candidates, question_of(find_scenario(name)))


def _check_names(settings: CapacitySettings, document: Document, gpus: Sequence[str]) -> None:
    """Every GPU is in the catalogue: a slip is no candidate."""
    for number, gpu in enumerate(settings.gpus):
        try:
            find_gpu_spec(gpu)
        except InputError as error:
            where = f"--gpus {gpu}" if gpus else document.place(("capacity", "gpus", number))
            raise InputError(error.what, where=where, remedy=error.remedy) from None
    for number, patch in enumerate(settings.candidates):
        named = patch.get("gpu")
        if isinstance(named, str):
            try:
                find_gpu_spec(named)
            except InputError as error:
                where = document.place(("capacity", "candidates", number, "gpu"))
                raise InputError(error.what, where=where, remedy=error.remedy) from None


def _check_scenario(loaded: ScenarioFile) -> None:
    """What has no rate, no clock, or a fleet of its own cannot be searched."""
    for scenario in loaded.variants.values() or [loaded.scenario]:
        settings, place = scenario.settings, scenario.document.place
        if settings.mode != "serve":
            remedy = "set mode: serve, or use kvplan run"
            raise InputError("mode admission has no clock to plan with", where=place(("mode",)), remedy=remedy)
        workload = settings.workload
        if isinstance(workload.arrivals, ClosedLoop) or workload.max_concurrency is not None:
            raise InputError(
                "a closed loop has no rate that could be raised",
                where=place(("workload",)),
                remedy="give arrivals: {kind: poisson, rate_rps: 10} and leave out max_concurrency",
            )
        if isinstance(workload.arrivals, AllAtOnce):
            raise InputError(
                "arrivals all at once have no rate that could be raised",
                where=place(("workload", "arrivals")),
                remedy="give arrivals: {kind: poisson, rate_rps: N}, N = requests / seconds that they may take",
            )
        for section in ("fleet", "disaggregation"):
            if scenario.document.data.get(section) is not None:
                raise InputError(
                    f"a capacity search sizes a fleet itself, and {section} states one",
                    where=scenario.document.key_place((section,)),
                    remedy=f"delete {section}, or use kvplan run and kvplan sweep",
                )


def _places(settings: CapacitySettings, document: Document) -> dict[str, str]:
    places = {"": document.key_place(("capacity",))}
    places |= {path: document.key_place(("capacity", "over", path)) for path in settings.over}
    for number, patch in enumerate(settings.candidates):
        places |= {path: document.key_place(("capacity", "candidates", number, path)) for path in patch}
    places |= {"gpu": document.key_place(("capacity", "gpus"))} if settings.gpus else {}
    return places


def _check_first(candidates: list[Candidate], patches: Patches) -> None:
    """A fault that every candidate has is the file's: it is told, at its place, before anything runs."""
    first: InputError | None = None
    for candidate in candidates:
        try:
            build(patches.bound(candidate, candidate.replicas or 1, None, patches.requests))
            return
        except InputError as error:
            first = first or error
        except Exception:
            return  # does not fit, or worse: a candidate's own
    if first is not None:
        raise first
