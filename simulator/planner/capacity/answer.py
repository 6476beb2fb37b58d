"""``answer.json``: what was asked, what to rent, and why."""

from __future__ import annotations

from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.facts import CandidateFacts
from simulator.planner.capacity.plan import STAYS, Answered, Sized
from simulator.planner.capacity.rates import STEP
from simulator.planner.capacity.rows import Row, all_answered, candidate_row, limited_metrics
from simulator.planner.capacity.search import Found, Rented
from simulator.planner.capacity.sentences import missing, rate_unit, sentences
from simulator.run_scenario import Built, Timed, memory_table

SCHEMA_VERSION = 1
_MEMORY_OF = 12


def answer(
    name: str, question: str | None, found: Found, rows: list[Row], settings: CapacitySettings, commands: dict[str, str]
) -> dict[str, Any]:
    """What ``answer.json`` says.

    Args:
        rows: of ``candidates.csv``, best first.
        commands: of the winner, by server; the first one is of the server that was simulated.
    """
    winner = rows[0] if found.winner is not None else None
    built = next((one.sized.facts.built for one in found.rented if one.sized.facts.built), None)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "question": question,
        "sentences": sentences(found, rows, settings),
        "rate_rps": found.rate_rps,
        "rate_unit": rate_unit(found),
        "budget_usd_per_hour": settings.budget_usd_per_hour,
        "slo": built.deployment.settings.slo if built else {},
        "classes": {c.name: c.slo for c in built.workload.classes if c.slo} if built else {},
        "goodput_share": settings.goodput_share,
        "grid": {"step": STEP, "anchor_rps": found.grid.anchor_rps},
        "winner": winner,
        "within_budget": _sized_row(found.within_budget, found, settings),
        "largest": _largest(rows),
        "headroom": [_headroom(*entry, settings=settings) for entry in found.headroom],
        "limits": _limits(found, rows),
        "memory": _memory(found, rows),
        "command": next(iter(commands.values()), None),
        "commands": commands,
        "notes": _notes(found, settings),
        "assumptions": _assumptions(found),
        "trust": _trust(found),
        "missing": [] if winner is not None else missing(found, rows, settings),
        "counts": _counts(found),
    }


def _sized_row(sized: Sized | None, found: Found, settings: CapacitySettings) -> Row | None:
    if sized is None or sized.facts.built is None:
        return None
    slo = sized.facts.built.deployment.settings.slo
    rented = Rented(sized, sized.replicas, confirmed=True, at_rate=sized.at_knee, whole=sized)
    bare = Found(None, found.grid, [])
    return candidate_row(rented, bare, settings, [], slo)


def _largest(rows: list[Row]) -> Row | None:
    """The candidate whose deployment bears the highest rate, and that rate."""
    able = [row for row in rows if row["knee_rps"] is not None and row["replicas"] is not None]
    best = max(able, key=lambda row: (row["knee_rps"], -row["rank"]), default=None)
    keys = ("candidate", "replicas", "gpus", "usd_per_hour", "knee_rps", "confirmed")
    return None if best is None else {key: best[key] for key in keys}


def _headroom(
    factor: float, answered: Answered, needed: int | None, more: list[Answered], *, settings: CapacitySettings
) -> dict[str, Any]:
    missed = answered.missed(settings)
    facts = answered.outcome.facts
    candidate = answered.ask.facts
    slo = candidate.built.deployment.settings.slo if candidate.built else {}
    return {
        "at": factor,
        "rate_rps": answered.ask.rate_rps,
        "passed": not missed,
        "why_not": "; ".join(missed) or None,
        "latencies": {name: facts.get(name) for name in limited_metrics(slo)},
        "binding_limit": facts.get("binding_limit"),
        "replicas_needed": needed,
        "usd_per_hour": None if needed is None else candidate.usd_per_hour(needed),
    }


def _limits(found: Found, rows: list[Row]) -> dict[str, Any] | None:
    if found.winner is None:
        return None
    return {
        "binding_limit": rows[0]["binding_limit"],
        "text": rows[0]["limit_text"],
        "knobs": [row for row, _ in found.knobs],
    }


def _memory(found: Found, rows: list[Row]) -> dict[str, Any]:
    """The memory of one GPU of the best candidates."""
    by_name = {one.sized.facts.candidate.name: one.sized.facts for one in found.rented}
    tables = {}
    for row in rows[:_MEMORY_OF]:
        facts = by_name[row["candidate"]]
        if facts.built is not None and facts.built.deployment.memory is not None:
            tables[row["candidate"]] = memory_table(facts.built.deployment.memory)
    return tables


def _notes(found: Found, settings: CapacitySettings) -> list[str]:
    notes = [
        "a rate passes when every limit is met, the backlog does not grow, and it is not above what the deployment "
        "sustains with requests always waiting",
        f"rates are looked at on a grid of {STEP - 1:.0%} steps; the knee is the highest below which all pass",
        "all candidates are sent the same requests at the same times, scaled to the rate",
        "cost a million tokens is at the steady rate, without the start and the end of a run",
    ]
    guessed = [one for one in found.rented if one.sized.status == "ok" and not one.confirmed and one.replicas]
    if guessed and found.rate_rps is not None:
        notes.append(
            f"{len(guessed)} deployments that cannot be cheaper were not simulated whole: their size is that of one "
            "replica's knee (confirmed: false)"
        )
    notes += _short_run(found)
    facts = _spoken_for(found)
    if facts is not None and facts.built is not None and not _has_slo(facts.built):
        notes.append("no SLO is stated: a rate passes when it can be kept up, however long requests wait")
    if settings.max_rejected_share and any(answered.outcome.facts.get("rejected") for answered in all_answered(found)):
        notes.append("some requests are longer than the context and are turned away; they count as failed")
    return notes


def _short_run(found: Found) -> list[str]:
    """Said where the workload ends (a trace) before its servers are as full as they get."""
    winner = found.winner
    if winner is None or winner.at_rate is None:
        return []
    sized, rate = winner.sized, winner.at_rate.ask.rate_rps
    sent_s = (winner.at_rate.outcome.facts["num_prompts"] or 0) / (rate * sized.facts.turns)
    if 2 * sent_s >= STAYS * sized.life_s:
        return []
    life = "a session" if sized.facts.pauses_s else "a request"
    return [
        f"the run is short: requests are sent for {sent_s:,.3g} s, and {life} stays for {sized.life_s:,.3g} s; servers "
        "that run for longer get fuller, and may miss a limit at this rate"
    ]


def _has_slo(built: Built) -> bool:
    return bool(built.deployment.settings.slo) or any(part.slo for part in built.workload.classes)


def _assumptions(found: Found) -> list[str]:
    facts = _spoken_for(found)
    if facts is None or facts.built is None:
        return []
    price = "" if facts.usd_per_gpu_hour is None else f"usd_per_gpu_hour = {facts.usd_per_gpu_hour:g}"
    named = [f"{price} for {facts.candidate.name} (state capacity.usd_per_gpu_hour for your own)"] if price else []
    return [*facts.built.assumptions, *named, *facts.built.workload.notes]


def _spoken_for(found: Found) -> CandidateFacts | None:
    if found.winner is not None:
        return found.winner.sized.facts
    return next((one.sized.facts for one in found.rented if one.sized.facts.built), None)


def _trust(found: Found) -> list[dict[str, str]]:
    """How far each latency can be trusted: what its step times rest on, and the interval of its mean."""
    facts = _spoken_for(found)
    if facts is None or facts.built is None:
        return []
    step_time = facts.built.deployment.step_time
    lines = []
    if isinstance(step_time, Timed):
        calibration = step_time.calibration
        lines.append(
            {
                "metric": "all latencies",
                "text": f"step times: roofline, calibration {calibration.name} (measured on: "
                f"{calibration.measured_on}); "
                "no error band has been measured for this GPU and model: measure one server and give "
                "step_time.calibration",
            }
        )
    else:
        lines.append({"metric": "all latencies", "text": "step times: as the scenario states them"})
    at = found.winner.at_rate if found.winner is not None else None
    intervals = (at.outcome.facts.get("confidence_95") or {}) if at is not None else {}
    for name in ("ttft", "tpot", "e2el"):
        interval = intervals.get(f"mean_{name}_ms")
        if interval:
            low, high = interval
            text = f"its mean lies in {low:,.1f} to {high:,.1f} ms (95 %, batch means of this run)"
            lines.append({"metric": name.upper(), "text": text})
    return lines


def _counts(found: Found) -> dict[str, int]:
    """Distinct probes, and their requests."""
    seen = {}
    for answered in all_answered(found):
        ask = answered.ask
        seen[(ask.facts.candidate.name, ask.purpose == "saturation", ask.replicas, ask.rate_rps, ask.requests)] = (
            answered.outcome.facts.get("num_prompts") or 0
        )
    return {"candidates": len(found.rented), "probes": len(seen), "simulated_requests": sum(seen.values())}
