"""Rows of ``candidates.csv`` and ``probes.csv``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.metrics_slo import Slo
from simulator.planner.axes import value_text
from simulator.planner.capacity.facts import CandidateFacts
from simulator.planner.capacity.knobs import limit_of
from simulator.planner.capacity.plan import Answered
from simulator.planner.capacity.probe import LATENCIES, STATISTICS
from simulator.planner.capacity.rates import rate_text
from simulator.planner.capacity.search import Found, Rented

Row = dict[str, Any]
SECONDS_PER_HOUR = 3600
_HAVE_COLUMNS = (
    *("gpu", "parallelism.tensor_parallel_size", "parallelism.pipeline_parallel_size", "parallelism.replicas"),
    *("engine.weight_dtype", "engine.kv_cache_dtype"),
)


def limited_metrics(built_slo: Slo) -> list[str]:
    """Columns of the latencies that have a limit, and TTFT's and TPOT's p99 in any case."""
    names = [
        f"{'median' if statistic == 'p50' else statistic}_{metric}"
        for metric, limits in built_slo.items()
        for statistic in limits
    ]
    return list(dict.fromkeys(["p99_ttft_ms", "p99_tpot_ms", *names]))


def candidate_rows(found: Found, settings: CapacitySettings) -> list[Row]:
    """Best first: what serves the rate by price, then what could not be bought or is too slow, then what cannot run."""
    ranked = sorted(found.rented, key=lambda one: _rank(one, found, settings))
    slo = next((one.sized.facts.built.deployment.settings.slo for one in ranked if one.sized.facts.built), {})
    keys = list(dict.fromkeys(key for one in ranked for key in one.sized.facts.candidate.changes))
    more = [key for key in keys if key not in _HAVE_COLUMNS]
    rows = []
    for number, one in enumerate(ranked, 1):
        rows.append({"rank": number, **candidate_row(one, found, settings, more, slo)})
    return rows


def candidate_row(one: Rented, found: Found, settings: CapacitySettings, swept: Iterable[str], slo: Slo) -> Row:
    """A candidate; what is not known is None."""
    sized, facts = one.sized, one.sized.facts
    status, reason = status_of(one, found, settings)
    at = one.at_rate or sized.at_knee
    seen = at.outcome.facts if at is not None and at.outcome.status == "ok" else {}
    knee = _knee_rps(one)
    if knee is not None and one.confirmed and one.meets and found.rate_rps is not None:
        knee = max(knee, found.rate_rps)  # a fleet behind its router may bear more than its replicas alone
    served = found.rate_rps if found.rate_rps is not None and status in ("ok", "over_budget") else knee
    replicas = one.replicas
    changes = facts.candidate.changes
    return {
        "candidate": facts.candidate.name,
        "status": status,
        "reason": reason,
        **_hardware(facts),
        **{key: value_text(changes[key]) if key in changes else None for key in swept},
        "replicas": replicas,
        "gpus": one.gpus if facts.built else None,
        "usd_per_hour": one.usd_per_hour if facts.built else None,
        **_costs(one, served),
        "knee_rps": knee,
        "knee_rps_per_replica": sized.knee_rps_per_replica,
        "max_rps": sized.stable_rps(replicas or 1),
        "ceiling_rps": None if facts.bounds.ceiling_rps is None else facts.bounds.ceiling_rps * (replicas or 1),
        "meets_rate": None if found.rate_rps is None else status in ("ok", "over_budget"),
        "confirmed": one.confirmed,
        "binding_limit": limit_of(one.whole or sized) or limit_of(sized),
        "limit_text": _limit_text(one, settings),
        "headroom_rps": None if knee is None or found.rate_rps is None else knee - found.rate_rps,
        "tokens_per_s_per_user": _per_user(seen),
        "tokens_per_s_per_gpu": _per_gpu(one, served),
        **{name: seen.get(name) for name in limited_metrics(slo)},
        **(
            facts.memory()
            if facts.built
            else {"kv_pool_gib_per_gpu": None, "weight_gib_per_gpu": None, "max_concurrency": None}
        ),
        "probes": len(sized.answered) + len(one.answered),
    }


def status_of(one: Rented, found: Found, settings: CapacitySettings) -> tuple[str, str | None]:
    """(status, why) of a candidate's row."""
    sized = one.sized
    if sized.status != "ok":
        return sized.status, sized.reason
    budget, price, rate = settings.budget_usd_per_hour, one.usd_per_hour, found.rate_rps
    if rate is None:
        return "ok", None
    if one.replicas is None:
        most = settings.max_gpus // sized.facts.gpus_per_replica
        knee = sized.knee_rps_per_replica or 0.0
        return "too_slow", f"{most} replicas serve about {rate_text(most * knee)} of {rate_text(rate)} req/s"
    if not one.meets and (one.confirmed or sized.facts.candidate.replicas is not None):
        missed = one.at_rate.missed(settings) if one.at_rate is not None else []
        text = "; ".join(missed) or f"it serves {rate_text(sized.knee_rps or 0.0)} of {rate_text(rate)} req/s"
        return "too_slow", text
    if budget is not None and price is None:
        return "over_budget", "its price is not known: state capacity.usd_per_gpu_hour"
    if budget is not None and price is not None and price > budget:
        return "over_budget", f"{price:,.2f} USD/h, and the budget is {budget:,.2f}"
    return "ok", None


_ORDER = ("ok", "over_budget", "too_slow", "slo_unreachable", "does_not_fit", "bad_input", "failed")


def _rank(one: Rented, found: Found, settings: CapacitySettings) -> tuple[Any, ...]:
    status, _ = status_of(one, found, settings)
    if status == "too_slow":
        return _ORDER.index(status), -(one.sized.knee_rps_per_replica or 0.0), one.order()
    first = 0 if one is found.winner else 1
    if found.rate_rps is None and status == "ok":
        return _ORDER.index(status), first, one.dearness(), one.order()
    return _ORDER.index(status), first, one.order()


def _knee_rps(one: Rented) -> float | None:
    """Of the whole deployment: searched where it was, else that of one replica times their number."""
    if one.whole is not None and one.whole.knee_rps is not None:
        return one.whole.knee_rps
    if one.replicas is None or one.sized.knee_rps_per_replica is None:
        return one.sized.knee_rps
    return one.sized.knee_rps_per_replica * one.replicas


def _hardware(facts: CandidateFacts) -> Row:
    names = (
        *("gpu", "gpus_per_replica", "tensor_parallel_size", "pipeline_parallel_size"),
        *("weight_dtype", "kv_cache_dtype"),
    )
    if facts.built is None:
        changes = facts.candidate.changes
        said = {name.rpartition(".")[2]: value for name, value in changes.items() if name in _HAVE_COLUMNS}
        return {name: said.get(name) for name in names}
    deployment = facts.built.deployment
    engine, parallelism = deployment.settings.engine, deployment.parallelism
    return {
        "gpu": deployment.gpu.name if deployment.gpu else None,
        "gpus_per_replica": facts.gpus_per_replica,
        "tensor_parallel_size": parallelism.tensor_parallel_size,
        "pipeline_parallel_size": parallelism.pipeline_parallel_size,
        "weight_dtype": engine.weight_dtype or "auto",
        "kv_cache_dtype": deployment.memory.settings.kv_cache_dtype if deployment.memory else engine.kv_cache_dtype,
    }


def _tokens_per_s(one: Rented, rate_rps: float) -> tuple[float, float]:
    """(prompt and output, output alone) tokens a second at a steady rate, which counts a session once."""
    assert one.sized.facts.built is not None
    workload = one.sized.facts.built.workload
    requests_per_s = rate_rps * len(workload) / max(1, int((workload.after < 0).sum()))
    output = requests_per_s * float(workload.output_tokens.mean())
    return output + requests_per_s * float(workload.prompt_tokens.mean()), output


def _costs(one: Rented, rate_rps: float | None) -> Row:
    """Dollars for a million tokens at the steady rate: price / (rate * tokens of a request)."""
    price = one.usd_per_hour
    if price is None or not rate_rps or one.sized.facts.built is None:
        return {"usd_per_million_tokens": None, "usd_per_million_output_tokens": None}
    every, output = (tokens * SECONDS_PER_HOUR / 1e6 for tokens in _tokens_per_s(one, rate_rps))
    return {"usd_per_million_tokens": price / every, "usd_per_million_output_tokens": price / output}


def _per_user(seen: Row) -> float | None:
    median = seen.get("median_tpot_ms")
    return 1000.0 / median if median else None


def _per_gpu(one: Rented, rate_rps: float | None) -> float | None:
    """Output tokens a second and GPU at the steady rate."""
    if one.gpus is None or not rate_rps:
        return None
    return _tokens_per_s(one, rate_rps)[1] / one.gpus


def _limit_text(one: Rented, settings: CapacitySettings) -> str | None:
    """What goes wrong at the lowest rate that fails: of the whole deployment where that was searched."""
    sized = one.whole or one.sized
    of_each = (one.replicas or 1) > sized.replicas
    if sized.beyond is None:
        stable = sized.stable_rps(sized.replicas)
        return None if stable is None else f"{'each replica' if of_each else 'it'} sustains {rate_text(stable)}/s"
    missed = sized.beyond.missed(settings)
    rate = rate_text(sized.beyond.ask.rate_rps)
    return f"{'each replica, ' if of_each else ''}at {rate}/s: {'; '.join(missed)}" if missed else None


_PROBE_FACTS = (
    *("request_throughput", "output_throughput"),
    *(f"{statistic}_{metric}_ms" for metric in LATENCIES if metric != "queue" for statistic in STATISTICS),
    *("mean_running", "kv.peak_utilization", "binding_limit", "preemptions"),
)


def probe_rows(found: Found, settings: CapacitySettings) -> list[Row]:
    """Every probe that the answer rests on, each once for each purpose, in the order of asking."""
    rows: list[Row] = []
    for answered in all_answered(found):
        facts = answered.outcome.facts
        missed = [] if answered.ask.purpose == "saturation" else answered.missed(settings)
        ok = answered.outcome.status == "ok"
        rows.append(
            {
                "probe": len(rows),
                "candidate": answered.ask.facts.candidate.name,
                "purpose": answered.ask.purpose,
                "replicas": answered.ask.replicas,
                "rate_rps": None if answered.ask.purpose == "saturation" else answered.ask.rate_rps,
                "passed": None if answered.ask.purpose == "saturation" else not missed,
                "saturated": facts.get("saturated") if ok else None,
                "why_not": "; ".join(missed) or answered.outcome.error,
                "requests": facts.get("num_prompts"),
                "sustained_rps": facts.get("sustained_rps"),
                "goodput_share": (facts.get("slo") or {}).get("attainment"),
                **{name: facts.get(name) for name in _PROBE_FACTS},
            }
        )
    return rows


def all_answered(found: Found) -> list[Answered]:
    """The probes of all phases."""
    answered: list[Answered] = []
    for one in found.rented:
        answered += one.sized.answered + one.answered
    for sized in found.budgeted:
        answered += sized.answered
    for _, first, _, more in found.headroom:
        answered += [first, *more]
    for _, after in found.knobs:
        answered += after.answered
    if found.winner is not None and found.winner.whole not in (None, found.winner.sized):
        assert found.winner.whole is not None
        answered += found.winner.whole.answered
    return answered
