"""The folder of a finished search: tables, the answer, and the scenario that reproduces the winner."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.answer import answer
from simulator.planner.capacity.candidates import Patches, put
from simulator.planner.capacity.rows import Row, candidate_rows, probe_rows
from simulator.planner.capacity.search import Found, Rented
from simulator.planner.fingerprint import fingerprint
from simulator.planner.kept_folder import write_durably
from simulator.planner.table import columns_of, write_csv
from simulator.provenance import provenance
from simulator.result_files import json_text
from simulator.run_scenario import Built, build
from simulator.scenario_resolved import plain, resolved_yaml
from simulator.serve_command import own_server, serve_commands


def write_folder(
    out: Path,
    found: Found,
    patches: Patches,
    settings: CapacitySettings,
    question: str | None,
    started: datetime,
    seconds: dict[str, float],
) -> tuple[dict[str, Any], list[Row]]:
    """Writes everything but the report; ``answer.json`` comes last. Returns it and the candidates' rows."""
    rows = candidate_rows(found, settings)
    write_csv(rows, columns_of(rows), out / "candidates.csv")
    probes = probe_rows(found, settings)
    write_csv(probes, columns_of(probes), out / "probes.csv")
    commands: dict[str, str] = {}
    if found.winner is not None:
        built = winning(found.winner, found, patches)
        write_durably(out / "winner.yaml", resolved_yaml(built.resolved))
        own, every = own_server(built.deployment), serve_commands(built.deployment)
        commands = {own: every[own], **every}
    write_durably(out / "scenario.yaml", _scenario_yaml(patches, settings, question))
    write_durably(out / "provenance.json", json_text(provenance(started, seconds) | {"kvplan_code": fingerprint()}))
    said = answer(patches.loaded.name, question, found, rows, settings, commands)
    text = json_text(said)
    write_durably(out / "answer.json", text)
    return said, rows


def winning(winner: Rented, found: Found, patches: Patches) -> Built:
    """The winner at its rate, as it was simulated, with the price that was taken."""
    at = winner.at_rate
    assert at is not None
    document = winner.sized.facts.candidate.document.copy()
    price = winner.sized.facts.usd_per_gpu_hour
    if price is not None:
        put(document, "cost.usd_per_gpu_hour", price)
    put(document, "name", f"{patches.loaded.name}-winner")
    scenario = patches.bound_document(document, at.ask.replicas, at.ask.rate_rps, at.ask.requests)
    return build(scenario)


def _scenario_yaml(patches: Patches, settings: CapacitySettings, question: str | None) -> str:
    """The file with the command line's wishes in it: ``kvplan capacity`` on it repeats the search."""
    whole = {**patches.loaded.document.data, "capacity": plain(settings)}
    head = f"# {question}\n" if question else ""
    return head + resolved_yaml(whole).replace("kvplan run", "kvplan capacity", 1)
