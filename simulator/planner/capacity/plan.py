"""The searches of one candidate: what it sustains, its knee, and how many replicas a rate needs."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field

from simulator.allocators.pools import ContiguousPool
from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.candidates import Patches
from simulator.planner.capacity.facts import CandidateFacts
from simulator.planner.capacity.knee import Knee, find_knee
from simulator.planner.capacity.probe import AT_ONCE_RPS, Probe, ProbeOutcome, Purpose
from simulator.planner.capacity.rates import RateGrid
from simulator.planner.capacity.replicas import fewest_replicas
from simulator.planner.capacity.verdicts import verdict, why_not

MOST_GROWTH = 4
"""A probe of several replicas has so many times the requests of a probe of one."""
EACH = 200
"""And so many for each replica, so that each is seen at work."""
STAYS = 10
"""A run lasts at least so many times as long as its requests stay."""
_MOST_TOGETHER = 100_000
_FILLS = 4
"""A saturation probe has requests enough to fill the batch so many times."""
_MOST_SATURATING = 20_000
MOST_GROWTH_ALONE = 10
"""But at most so many times the file's own number; one that fills the batch less often finds less, not more."""


@dataclass(frozen=True)
class Ask:
    """A question: this candidate, so many replicas, at that rate; ``requests`` None = as many as the file says."""

    facts: CandidateFacts
    patches: Patches
    purpose: Purpose
    replicas: int
    rate_rps: float
    requests: int | None

    def probe(self, index: int) -> Probe:
        """The job that answers it."""
        saturating = self.purpose == "saturation"
        scenario = self.patches.bound(
            self.facts.candidate, self.replicas, self.rate_rps, self.requests, pauses=not saturating
        )
        return Probe(index, scenario, self.facts.candidate.variant or None, saturating)


@dataclass(frozen=True)
class Answered:
    """A question and its outcome; ``stable_rps``: what that deployment sustains."""

    ask: Ask
    outcome: ProbeOutcome
    stable_rps: float | None

    def missed(self, settings: CapacitySettings) -> list[str]:
        """What it misses; empty where it passes."""
        return why_not(self.outcome, self.ask.rate_rps, self.stable_rps, settings)


@dataclass
class Sized:
    """A candidate after its own search.

    Attributes:
        status: ok, or why it is out: slo_unreachable, does_not_fit, bad_input, failed.
        replicas: of the deployment whose knee was searched: one, or as many as the file states.
        sustained_rps: what ONE replica sustains; None before that is known.
        knee_rps: of these replicas together; None where no rate passes.
        at_knee, beyond: the probes at the knee and at the lowest rate that fails.
        answered: every probe, in the order of asking.
        residence_s: how long a request stays at the knee, or all turns of a session together.
    """

    facts: CandidateFacts
    status: str
    reason: str | None
    replicas: int
    sustained_rps: float | None = None
    knee_rps: float | None = None
    at_knee: Answered | None = None
    beyond: Answered | None = None
    answered: list[Answered] = field(default_factory=list)
    residence_s: float | None = None

    @property
    def life_s(self) -> float:
        """How long a request is there, or a session with its pauses; 0 where that is not known."""
        return 0.0 if self.residence_s is None else self.residence_s + self.facts.pauses_s

    @property
    def knee_rps_per_replica(self) -> float | None:
        """The knee of one replica, taking replicas to share evenly."""
        return None if self.knee_rps is None else self.knee_rps / self.replicas

    def stable_rps(self, replicas: int) -> float | None:
        """What so many replicas sustain."""
        return None if self.sustained_rps is None else self.sustained_rps * replicas


@dataclass(frozen=True)
class Planner:
    """Makes the searches; holds what they have in common."""

    patches: Patches
    settings: CapacitySettings
    grid: RateGrid

    def size(
        self, facts: CandidateFacts, *, purpose: Purpose = "knee", hint_rps: float | None = None
    ) -> Generator[list[Ask], list[ProbeOutcome], Sized]:
        """What one candidate sustains, and its knee."""
        replicas = facts.candidate.replicas or 1
        sized = Sized(facts, facts.status, facts.reason, replicas)
        if facts.status != "ok":
            return sized
        saturating = Ask(facts, self.patches, "saturation", 1, AT_ONCE_RPS, self._saturating_requests(facts))
        (outcome,) = yield [saturating]
        sized.answered.append(Answered(saturating, outcome, None))
        if outcome.status != "ok":
            sized.status, sized.reason = outcome.status, outcome.error
            return sized
        sized.sustained_rps = outcome.facts["sustained_rps"]
        stable = sized.stable_rps(replicas)
        if not stable:
            sized.status, sized.reason = "slo_unreachable", "it finishes no request"
            return sized
        hint = None if hint_rps is None else self.grid.highest_at_most(hint_rps)
        knee = yield from self._search(sized, replicas, purpose, self.grid.highest_at_most(stable), hint)
        self._note_knee(sized, knee)
        return sized

    def knee_of(
        self, sized: Sized, replicas: int, hint_rps: float, purpose: Purpose
    ) -> Generator[list[Ask], list[ProbeOutcome], Sized]:
        """The knee of a deployment of another size of a candidate whose replica is known."""
        other = Sized(sized.facts, sized.status, None, replicas, sized.sustained_rps, residence_s=sized.residence_s)
        stable = other.stable_rps(replicas)
        assert stable is not None
        top = self.grid.highest_at_most(stable)
        knee = yield from self._search(other, replicas, purpose, top, self.grid.highest_at_most(hint_rps))
        self._note_knee(other, knee)
        return other

    def replicas_for(
        self, sized: Sized, rate_rps: float, purpose: Purpose
    ) -> Generator[list[Ask], list[ProbeOutcome], tuple[int | None, list[Answered]]]:
        """The fewest replicas that serve a rate, and the probes that say so."""
        answered: list[Answered] = []
        most = max(1, self.settings.max_gpus // sized.facts.gpus_per_replica)
        least, guess = self.least_replicas(sized, rate_rps), self.guessed_replicas(sized, rate_rps)
        if least is None or guess is None:
            return None, answered
        search = fewest_replicas(least, guess, most)
        try:
            count = next(search)
            while True:
                found = yield from self.look(sized, count, rate_rps, purpose)
                answered.append(found)
                count = search.send(verdict(found.outcome, rate_rps, found.stable_rps, self.settings))
        except StopIteration as end:
            return end.value, answered

    def least_replicas(self, sized: Sized, rate_rps: float) -> int | None:
        """Fewer would be saturated."""
        if sized.status != "ok" or not sized.sustained_rps:
            return None
        return max(1, math.ceil(rate_rps / sized.sustained_rps - 1e-9))

    def guessed_replicas(self, sized: Sized, rate_rps: float) -> int | None:
        """As many as the knee of one replica makes likely."""
        one = sized.knee_rps_per_replica
        return None if not one else max(1, math.ceil(rate_rps / one - 1e-9))

    def look(
        self, sized: Sized, replicas: int, rate_rps: float, purpose: Purpose
    ) -> Generator[list[Ask], list[ProbeOutcome], Answered]:
        """One probe."""
        ask = Ask(sized.facts, self.patches, purpose, replicas, rate_rps, self.requests(sized, replicas, rate_rps))
        (outcome,) = yield [ask]
        return Answered(ask, outcome, sized.stable_rps(replicas))

    def _search(
        self, sized: Sized, replicas: int, purpose: Purpose, top: int, hint: int | None
    ) -> Generator[list[Ask], list[ProbeOutcome], Knee]:
        search = find_knee(top, hint)
        try:
            index = next(search)
            while True:
                rate = self.grid.rate_rps(index)
                found = yield from self.look(sized, replicas, rate, purpose)
                sized.answered.append(found)
                if found.outcome.status not in ("ok", "bad_input"):
                    sized.status, sized.reason = found.outcome.status, found.outcome.error
                judged = verdict(found.outcome, rate, found.stable_rps, self.settings)
                index = search.send(judged)
        except StopIteration as end:
            knee: Knee = end.value
            return knee

    def _note_knee(self, sized: Sized, knee: Knee) -> None:
        by_rate = {found.ask.rate_rps: found for found in sized.answered if found.ask.purpose != "saturation"}
        sized.beyond = by_rate.get(self.grid.rate_rps(knee.failing))
        if knee.index is not None:
            sized.knee_rps = self.grid.rate_rps(knee.index)
            sized.at_knee = by_rate[sized.knee_rps]
            sized.residence_s = _residence_s(sized)
        elif sized.status == "ok":
            sized.status = "slo_unreachable"
            missed = sized.beyond.missed(self.settings) if sized.beyond else []
            sized.reason = "at no rate: " + "; ".join(missed)

    def requests(self, sized: Sized, replicas: int, rate_rps: float) -> int | None:
        """Of a probe: once it is known how long requests stay, so many that the run lasts ten times as long.

        A shorter one is mostly the filling of an empty system, whose latencies are those of a lower rate.
        """
        facts = sized.facts
        if not facts.can_grow:
            return self.patches.requests
        base = facts.requests * min(replicas, MOST_GROWTH)
        if replicas > 1:
            base = max(base, min(EACH * replicas, _MOST_TOGETHER))
        lasting = math.ceil(STAYS * sized.life_s * rate_rps * facts.turns)
        found = max(base, min(lasting, _MOST_TOGETHER))
        return self.patches.requests if found == facts.requests else found

    def outlasts(self, sized: Sized, replicas: int, rate_rps: float) -> bool:
        """Whether a probe at that rate is longer than those of the candidate's own search."""
        return (self.requests(sized, replicas, rate_rps) or 0) > sized.facts.requests

    def _saturating_requests(self, facts: CandidateFacts) -> int | None:
        """Enough to fill the batch several times, where the workload can have more."""
        if not facts.can_grow:
            return self.patches.requests
        assert facts.built is not None
        deployment = facts.built.deployment
        batch = deployment.engine.running_limit
        mean = float(facts.built.workload.prompt_tokens.mean() + facts.built.workload.output_tokens.mean())
        held = deployment.engine.max_model_len if isinstance(deployment.pool, ContiguousPool) else mean
        batch = min(batch, max(1, int(deployment.pool_slots / max(1.0, held))))
        most = min(_MOST_SATURATING, MOST_GROWTH_ALONE * facts.requests)
        return max(facts.requests, min(most, math.ceil(_FILLS * batch * facts.turns)))


def _residence_s(sized: Sized) -> float:
    """Little's law over the whole run, whose start and end are long where it is short: all stays / all arrivals."""
    assert sized.at_knee is not None and sized.facts.built is not None
    facts = sized.at_knee.outcome.facts
    arrivals = facts["num_prompts"] * float((sized.facts.built.workload.after < 0).mean())
    return float((facts["mean_running"] + facts["mean_waiting"]) * facts["duration"] / arrivals)
