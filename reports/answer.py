"""What the numbers say, in words: the answer in two sentences, and why."""

from __future__ import annotations

from typing import Any

from reports.numbers import at, few, milliseconds, percent, short, times, whole
from reports.tables import is_admission, limit_name, runs_of

Result = dict[str, Any]

SAME_WITHIN = 1.02
"""Throughputs that differ by less are called the same."""

QUEUE_SHARE = 0.1
"""A server whose requests wait for more than this share of their time is close to its limit."""

_BINDS = {
    "kv_memory": "KV memory binds: the next request waited for room in the pool {share} of the time",
    "max_num_seqs": "max_num_seqs binds: the next request waited for a place in the batch {share} of the time",
    "token_budget": "the token budget binds: the next request waited for max_num_batched_tokens {share} of the time",
    "compute": "compute binds: steps are as long as their arithmetic takes",
    "bandwidth": "memory bandwidth binds: steps are as long as reading weights and KV takes",
    "arrivals": "the arrivals bind: hardly a request waited to be admitted, so there is room for more load",
    "kv_transfer": "the links bind: KV on its way from prefill to decode waited for its turn, and they were never idle",
}


_STOPPED = {
    "deadlock": "in the end nothing could admit them",
    "livelock": "running requests preempted each other for ever",
    "max_steps": "the run was cut at its limit of steps",
}


def answer(result: Result) -> tuple[str, str]:
    """Two sentences that answer the scenario's question, from a whole ``result.json``."""
    runs = runs_of(result)
    if is_admission(list(runs.values())):
        return _admission_answer(runs)
    if len(runs) == 1:
        return _single(next(iter(runs.values())))
    return _compared(runs)


def _single(run: Result) -> tuple[str, str]:
    first = (
        f"{_subject(run)} served {whole(run['completed'])} of {whole(run['num_prompts'])} requests at "
        f"{short(run['request_throughput'])} requests/s ({short(run['output_throughput'])} output tokens/s), with a "
        f"time to first token of {milliseconds(run['median_ttft_ms'])} in the median and "
        f"{milliseconds(run['p99_ttft_ms'])} at p99."
    )
    second = _left_over(run) or capital(binding_words(run))
    if at(run, "slo.met") is not None:
        met = "met" if run["slo"]["met"] else "missed"
        second += f"; the SLO is {met}, with {percent(run['slo']['attainment'])} of the requests within its limits"
    return first, second + "."


def _left_over(run: Result) -> str:
    """Where requests never ended there is no room for more load, whatever bound those that did; empty elsewhere."""
    count = run.get("unfinished")
    if not count:
        return ""
    never = f"{whole(count)} {'request' if count == 1 else 'requests'} never ended"
    return f"{never}: {_STOPPED[run['status']]}" if run["status"] in _STOPPED else never


def _subject(run: Result) -> str:
    model, gpu = run.get("model_id") or "The server", run.get("gpu")
    return f"{model} on {gpu}" if gpu else str(model)


def binding_words(run: Result) -> str:
    """Which limit binds, and for how much of the time somebody waited for it."""
    limit = str(run["binding_limit"])
    share = percent(at(run, f"wait_shares.{limit}"), 0)
    return _BINDS.get(limit, f"{limit} binds").format(share=share)


def _compared(runs: dict[str, Result]) -> tuple[str, str]:
    best, worst = _best_and_worst(runs)
    one, other = runs[best], runs[worst]
    ours, theirs = one["output_throughput"], other["output_throughput"]
    ttft = (
        f"p99 of the time to first token is {milliseconds(one['p99_ttft_ms'])} against "
        f"{milliseconds(other['p99_ttft_ms'])}"
    )
    if max(ours, theirs) <= SAME_WITHIN * min(ours, theirs):
        first = f"With {best} and with {worst} the server delivers about {short(ours)} output tokens/s; {ttft}"
    elif _all_keep_up(runs):
        delivered = f"{short(ours)} and {short(theirs)} output tokens/s"
        first = f"With {best} and with {worst} the server delivers what is asked for ({delivered}); {ttft}"
    else:
        first = (
            f"With {best} the server delivers {short(ours)} output tokens/s against {short(theirs)} with {worst} "
            f"({times(ours, theirs)} as much), and {ttft}"
        )
    held = [percent(at(run, "kv.token_share_of_held"), 0) for run in (one, other)]
    filled = f", and {held[0]} of the KV memory that they hold has tokens in it against {held[1]}"
    second = (
        f"With {best} {few(one['mean_running'])} requests run at once against {few(other['mean_running'])}"
        f"{filled if held[0] != held[1] else ''}; "
        f"{_limits(best, one['binding_limit'], worst, other['binding_limit'])}."
    )
    return first + _slo_words(best, one, worst, other) + ".", second


def _best_and_worst(runs: dict[str, Result]) -> tuple[str, str]:
    """By output tokens a second; where all deliver (nearly) the same, by the SLO and by the time to first token."""
    delivered = [run["output_throughput"] for run in runs.values()]
    if max(delivered) <= SAME_WITHIN * min(delivered) or _all_keep_up(runs):
        ranked = sorted(runs, key=lambda name: (-_attained(runs[name]), runs[name]["p99_ttft_ms"] or 0.0))
    else:
        ranked = sorted(runs, key=lambda name: (-runs[name]["output_throughput"], runs[name]["p99_ttft_ms"] or 0.0))
    return ranked[0], ranked[-1]


def _attained(run: Result) -> float:
    """Share of the requests within the SLO, with one more where the SLO as a whole is met."""
    slo = run.get("slo") or {}
    return float(slo.get("met", 0)) + float(slo.get("attainment", 0.0))


def _all_keep_up(runs: dict[str, Result]) -> bool:
    """Whether each run serves what arrives: its throughput then says how fast requests came, not what it could do."""
    return not any(run["saturated"] or _is_closed_loop(run) or run["failed"] for run in runs.values())


def _is_closed_loop(run: Result) -> bool:
    return run.get("max_concurrency") is not None


def _slo_words(best: str, one: Result, worst: str, other: Result) -> str:
    met = [at(run, "slo.met") for run in (one, other)]
    if None in met:
        return ""
    if met[0] == met[1]:
        return ": both meet the SLO" if met[0] else ": both miss the SLO"
    names = (best, worst) if met[0] else (worst, best)
    return f": {names[0]} meets the SLO, {names[1]} misses it"


def capital(sentence: str) -> str:
    """With a capital letter, but not the name of a setting."""
    return sentence if "_" in sentence.split()[0] else sentence[0].upper() + sentence[1:]


def _limits(best: str, one: str, worst: str, other: str) -> str:
    if one == other:
        return f"the binding limit is {limit_name(one)} with both"
    return f"the binding limit is {limit_name(other)} with {worst} and {limit_name(one)} with {best}"


def _admission_answer(runs: dict[str, Result]) -> tuple[str, str]:
    ranked = sorted(runs, key=lambda name: -runs[name]["admitted"])
    best, worst = ranked[0], ranked[-1]
    one, other = runs[best], runs[worst]
    second = (
        f"Of the slots it allocates, {best} fills {percent(one['used_share'])} with tokens and wastes "
        f"{whole(one['wasted_slots'])}; this is a memory effect, not a speed benchmark."
    )
    if best == worst:
        return f"The pool admits {whole(one['admitted'])} of {whole(one['offered'])} requests.", second
    first = (
        f"The same pool admits {whole(one['admitted'])} requests with {best} against {whole(other['admitted'])} with "
        f"{worst}, {times(one['admitted'], other['admitted'])} as many."
    )
    return first, second


def reasons(run: Result) -> list[str]:
    """Why a run came out as it did: sentences, the most telling first."""
    if is_admission([run]):
        return []
    words = binding_words(run)
    found = [capital(words) + "."]
    kv = run["kv"]
    wasted = kv["reserved_share"] + kv["internal_fragmentation_share"] + kv["external_fragmentation_share"]
    found.append(
        f"Of the pool, averaged over time, {percent(kv['token_share'])} held tokens; {percent(kv['reserved_share'])} "
        f"was reserved for tokens to come, {percent(kv['internal_fragmentation_share'])} was held but never to be "
        f"used, {percent(kv['external_fragmentation_share'])} was free while a request waited for memory "
        f"({percent(wasted)} in all); the fullest moment used {percent(kv['peak_utilization'])}."
    )
    if run["mean_e2el_ms"]:
        share = run["mean_queue_ms"] / run["mean_e2el_ms"]
        found.append(
            f"A request took {milliseconds(run['mean_e2el_ms'])} on average, {percent(share, 0)} of it in the queue; "
            f"{few(run['mean_running'])} ran and {few(run['mean_waiting'])} waited at a time."
        )
    if _is_closed_loop(run):
        found.append(
            "The load is a closed loop: a client asks again only when it has its answer, so too much load shows as "
            "waiting, never as a backlog that grows."
        )
    elif run["saturated"]:
        found.append("The backlog grew for as long as requests arrived: the load is more than the server delivers.")
    elif run["mean_e2el_ms"] and run["mean_queue_ms"] > QUEUE_SHARE * run["mean_e2el_ms"]:
        found.append(
            "The backlog did not grow by more than chance explains, but requests spend much of their time in the "
            "queue: the server is close to its limit."
        )
    else:
        found.append("The backlog did not grow while requests arrived: the server keeps up with the load.")
    return found
