"""What the numbers say, in words: the answer in two sentences, and why."""

from __future__ import annotations

from typing import Any

from reports.numbers import at, milliseconds, percent, short, times, whole
from reports.tables import is_admission, limit_name, runs_of

Result = dict[str, Any]

SAME_WITHIN = 1.02
"""Throughputs that differ by less are called the same."""

_BINDS = {
    "kv_memory": "KV memory binds: the next request waited for room in the pool {share} of the time",
    "max_num_seqs": "max_num_seqs binds: the next request waited for a place in the batch {share} of the time",
    "token_budget": "the token budget binds: the next request waited for max_num_batched_tokens {share} of the time",
    "compute": "compute binds: steps are as long as their arithmetic takes",
    "bandwidth": "memory bandwidth binds: steps are as long as reading weights and KV takes",
    "arrivals": "the arrivals bind: hardly a request waited to be admitted, so there is room for more load",
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
    binds = binding_words(run)
    second = binds[0].upper() + binds[1:]
    if at(run, "slo.met") is not None:
        met = "met" if run["slo"]["met"] else "missed"
        second += f"; the SLO is {met}, with {percent(run['slo']['attainment'])} of the requests within its limits"
    return first, second + "."


def _subject(run: Result) -> str:
    model, gpu = run.get("model_id") or "The server", run.get("gpu")
    return f"{model} on {gpu}" if gpu else str(model)


def binding_words(run: Result) -> str:
    """Which limit binds, and for how much of the time somebody waited for it."""
    limit = str(run["binding_limit"])
    share = percent(at(run, f"wait_shares.{limit}"), 0)
    return _BINDS.get(limit, f"{limit} binds").format(share=share)


def _compared(runs: dict[str, Result]) -> tuple[str, str]:
    ranked = sorted(runs, key=lambda name: (-runs[name]["output_throughput"], runs[name]["p99_ttft_ms"] or 0.0))
    best, worst = ranked[0], ranked[-1]
    one, other = runs[best], runs[worst]
    ours, theirs = one["output_throughput"], other["output_throughput"]
    ttft = (
        f"p99 of the time to first token is {milliseconds(one['p99_ttft_ms'])} against "
        f"{milliseconds(other['p99_ttft_ms'])}"
    )
    if ours <= SAME_WITHIN * theirs:
        first = f"With {best} and with {worst} the server delivers about {short(ours)} output tokens/s; {ttft}."
    else:
        first = (
            f"With {best} the server delivers {short(ours)} output tokens/s against {short(theirs)} with {worst} "
            f"({times(ours, theirs)} as much), and {ttft}."
        )
    held = [percent(at(run, "kv.token_share_of_held"), 0) for run in (one, other)]
    second = (
        f"With {best} {short(one['mean_running'])} requests run at once against {short(other['mean_running'])}, and "
        f"{held[0]} of the KV memory that they hold has tokens in it against {held[1]}; "
        f"{_limits(best, one['binding_limit'], worst, other['binding_limit'])}."
    )
    return first, second


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
    found = [words[0].upper() + words[1:] + "."]
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
            f"{short(run['mean_running'])} ran and {short(run['mean_waiting'])} waited at a time."
        )
    if run["saturated"]:
        found.append("The backlog grew for as long as requests arrived: the load is more than the server delivers.")
    else:
        found.append("The backlog did not grow while requests arrived: the server keeps up with the load.")
    return found
