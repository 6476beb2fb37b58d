"""A capacity search against the full grid, and on one worker and two; ``make bench`` runs this.

By hand, a smaller one: python -m tests.bench.bench_capacity --requests 300 --candidates 8 --workers 1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.planner.capacity.ask import Asked, read_question
from simulator.planner.capacity.dialogue import Dialogue
from simulator.planner.capacity.facts import CandidateFacts, facts_of
from simulator.planner.capacity.plan import Ask
from simulator.planner.capacity.probe import Probe, ProbeOutcome
from simulator.planner.capacity.rates import RateGrid
from simulator.planner.capacity.rows import candidate_rows
from simulator.planner.capacity.search import CapacitySearch
from simulator.planner.capacity.verdicts import why_not
from simulator.planner.executors import make_executor
from simulator.planner.warm import warm_up

CANDIDATES = 30
REQUESTS = 2_000
RATE_RPS = 20.0
LEAST_RATIO = 10.0
SCENARIO = """\
name: bench
seed: 20
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {preset: vllm, max_model_len: 8192}
workload:
  num_requests: REQUESTS
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: lognormal, mean: 512, cv: 1.0, max: 4096}
  output_tokens: {kind: lognormal, mean: 256, cv: 1.0, max: 2048}
slo: {ttft_ms: {p99: 500}, tpot_ms: {p99: 50}}
capacity:
  gpus: [l4, l40s, a100-sxm-80gb, h100-sxm-80gb, h200-sxm-141gb]
  tensor_parallel_size: [1, 2]
  weight_dtype: [bfloat16, fp8, int4]
"""


@dataclass(frozen=True)
class Done:
    """One way to the answer.

    Attributes:
        winner: candidate and replicas.
        knees: requests/s of one replica, by candidate; None where no rate passes.
        requests: simulated for the winner and all knees.
        more: and for what a grid does not answer: headroom, knobs, the winner's curve.
    """

    winner: tuple[str, int] | None
    knees: dict[str, float | None]
    requests: int
    more: int
    probes: int
    seconds: float
    winner_by_knees: tuple[str, int] | None = None


class Counted:
    """A memory that keeps nothing on disk and counts what was simulated."""

    def __init__(self) -> None:
        self.requests = self.to_winner = 0

    def phase(self, name: str) -> None:
        if name == "headroom and knobs":
            self.to_winner = self.requests

    def read(self, key: str) -> ProbeOutcome | None:
        return None

    def save(self, key: str, outcome: ProbeOutcome) -> None:
        self.requests += int(outcome.facts.get("num_prompts") or 0)


def question(requests: int, candidates: int) -> Asked:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(SCENARIO.replace("REQUESTS", str(requests)), encoding="utf-8")
        asked = read_question(str(path), [], None)
    assert len(asked.candidates) == CANDIDATES
    # Spread over the GPUs, so that a smaller bench has both those that cannot serve and those that can.
    chosen = asked.candidates[:: max(1, CANDIDATES // candidates)][:candidates]
    return Asked(asked.patches, asked.settings, chosen, None)


def search(asked: Asked, workers: int) -> Done:
    """``kvplan capacity``'s own search, without its folder."""
    start = time.perf_counter()
    counted, executor = Counted(), make_executor("local", workers=workers, scheduler=None, quiet=True)
    try:
        dialogue = Dialogue(counted, executor)
        found = CapacitySearch(asked.patches, asked.settings, dialogue, counted.phase).run(asked.candidates)
    finally:
        executor.close()
    rows = candidate_rows(found, asked.settings)
    winner = None if found.winner is None else (rows[0]["candidate"], rows[0]["replicas"])
    knees = {one.sized.facts.candidate.name: one.sized.knee_rps for one in found.rented}
    more = counted.requests - counted.to_winner
    seconds = time.perf_counter() - start
    return Done(
        winner,
        knees,
        counted.to_winner,
        more,
        dialogue.run,
        seconds,
        by_knees([one.sized.facts for one in found.rented], knees),
    )


def full_grid(asked: Asked, workers: int) -> Done:
    """Every candidate at every rate of the grid from a tenth of its analytic ceiling up to it, one replica each.

    A rate counts as saturated where its own backlog grows.
    """
    start = time.perf_counter()
    grid = RateGrid(RATE_RPS)
    points: list[tuple[CandidateFacts, int]] = []
    for facts in facts_of(asked.candidates, asked.patches, asked.settings):
        if facts.bounds.ceiling_rps is not None:
            top = grid.highest_at_most(facts.bounds.ceiling_rps)
            points += [(facts, index) for index in range(grid.highest_at_most(facts.bounds.ceiling_rps / 10), top + 1)]
    executor = make_executor("local", workers=workers, scheduler=None, quiet=True)

    def jobs() -> Iterator[Probe]:
        for number, (facts, index) in enumerate(points):
            yield Ask(facts, asked.patches, "knee", 1, grid.rate_rps(index), asked.patches.requests).probe(number)

    outcomes: dict[int, ProbeOutcome] = {}
    try:
        for found in executor.run(jobs()):
            if found is not None:
                outcomes[found[0]] = found[1]
    finally:
        executor.close()
    knees: dict[str, float | None] = {}
    over: set[str] = set()
    for number, (facts, index) in enumerate(points):
        name, rate = facts.candidate.name, grid.rate_rps(index)
        knees.setdefault(name, None)
        if name not in over and not why_not(outcomes[number], rate, None, asked.settings):
            knees[name] = rate
        else:
            over.add(name)
    winner = by_knees(list({id(one): one for one, _ in points}.values()), knees)
    requests = sum(int(outcome.facts.get("num_prompts") or 0) for outcome in outcomes.values())
    return Done(winner, knees, requests, 0, len(points), time.perf_counter() - start, winner)


def by_knees(facts: list[CandidateFacts], knees: dict[str, float | None]) -> tuple[str, int] | None:
    """The cheapest candidate of which rate / knee, rounded up, replicas suffice, and how many."""
    prices = []
    for one in facts:
        if knee := knees.get(one.candidate.name):
            replicas = int(-(-RATE_RPS // knee))
            prices.append((one.usd_per_hour(replicas) or 0.0, replicas, one.candidate.index, one.candidate.name))
    best = min(prices, default=None)
    return None if best is None else (best[3], best[1])


def said(name: str, done: Done) -> str:
    requests = f"{done.requests:,} requests (+ {done.more:,})"
    return f"{name:24s} {done.probes:6,} probes  {requests:36s} {done.seconds:8.1f} s  {done.winner}"


def measured(requests: int, candidates: int, workers: tuple[int, ...], *, grid: bool = True) -> None:
    """Runs, prints and compares."""
    warm_up()
    asked = question(requests, candidates)
    print(f"\n{len(asked.candidates)} candidates, {requests:,} requests a probe")
    found = {count: search(asked, count) for count in workers}
    for count, done in found.items():
        print(said(f"search, {count} worker(s)", done))
    first, last = found[workers[0]], found[workers[-1]]
    assert all(
        (done.winner, done.knees, done.requests) == (first.winner, first.knees, first.requests)
        for done in found.values()
    )
    if len(workers) > 1:
        print(f"{first.seconds / last.seconds:.2f} x as fast on {workers[-1]} workers as on {workers[0]}")
    if not grid:
        return
    naive = full_grid(asked, workers[-1])
    print(said(f"full grid, {workers[-1]} worker(s)", naive))
    ratio = naive.requests / first.requests
    print(f"the search simulates {ratio:.1f} x fewer requests and takes {naive.seconds / last.seconds:.1f} x less time")
    print(f"by knees alone the search finds {first.winner_by_knees}, the grid {naive.winner_by_knees}")
    # Whole deployments are simulated by the search alone, for longer, and may need a replica more.
    assert naive.winner_by_knees == first.winner_by_knees
    assert ratio >= LEAST_RATIO or candidates < CANDIDATES


def bench_capacity_search_against_the_full_grid() -> None:
    measured(REQUESTS, CANDIDATES, (1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-grid", action="store_true", help="the search alone")
    options = parser.parse_args()
    measured(options.requests, options.candidates, tuple(options.workers), grid=not options.no_grid)


if __name__ == "__main__":
    main()
