"""The whole search, in phases; within a phase all searches run side by side, and no phase depends on their order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.candidates import Candidate, Patches
from simulator.planner.capacity.dialogue import Dialogue
from simulator.planner.capacity.facts import facts_of
from simulator.planner.capacity.knobs import knob_row, try_knobs
from simulator.planner.capacity.plan import Answered, Planner, Sized
from simulator.planner.capacity.rates import RateGrid

WAVE = 4
"""Deployments whose size is confirmed at a time, cheapest first; not the number of cores, on which nothing depends."""
CONFIRMED = 4
"""At least so many are confirmed, for the table."""
_LEADERS = 3
HEADROOM = (1.2, 1.5)
CURVE = (0.25, 0.5, 0.75, 1.1)
"""Shares of the knee at which the winner is looked at for its curve alone."""


@dataclass
class Rented:
    """A deployment of a size, judged at the asked rate.

    Attributes:
        replicas: None where no number of them serves the rate.
        confirmed: whether the deployment as a whole was simulated at the rate.
        at_rate: that probe.
        most_replicas: as many as it may have.
    """

    sized: Sized
    replicas: int | None
    confirmed: bool = False
    meets: bool = False
    at_rate: Answered | None = None
    answered: list[Answered] = field(default_factory=list)
    whole: Sized | None = None
    most_replicas: int = 1

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the deployment."""
        return None if self.replicas is None else self.sized.facts.usd_per_hour(self.replicas)

    @property
    def gpus(self) -> int | None:
        """GPUs of the deployment."""
        return None if self.replicas is None else self.replicas * self.sized.facts.gpus_per_replica

    def dearness(self) -> tuple[float, float]:
        """At the knee: what a request a second costs an hour, and the GPUs that it takes."""
        knee, price = self.sized.knee_rps_per_replica, self.sized.facts.usd_per_hour(1)
        if not knee:
            return math.inf, math.inf
        return (math.inf if price is None else price / knee), self.sized.facts.gpus_per_replica / knee

    def order(self) -> tuple[float, float, int]:
        """Cheapest first, then fewest GPUs, then as listed."""
        price, gpus = self.usd_per_hour, self.gpus
        return (
            math.inf if price is None else price,
            math.inf if gpus is None else gpus,
            self.sized.facts.candidate.index,
        )


@dataclass
class Found:
    """All that a search found."""

    rate_rps: float | None
    grid: RateGrid
    rented: list[Rented]
    winner: Rented | None = None
    within_budget: Sized | None = None
    headroom: list[tuple[float, Answered, int | None, list[Answered]]] = field(default_factory=list)
    knobs: list[tuple[dict[str, Any], Sized]] = field(default_factory=list)
    budgeted: list[Sized] = field(default_factory=list)


@dataclass(frozen=True)
class CapacitySearch:
    """What is asked, and who answers."""

    patches: Patches
    settings: CapacitySettings
    dialogue: Dialogue
    on_phase: Callable[[str], None] = lambda phase: None

    def run(self, candidates: list[Candidate]) -> Found:
        """Searches. Raises KvplanError only where the executor itself fails."""
        self.on_phase("bounds")
        facts = facts_of(candidates, self.patches, self.settings)
        rate = self.settings.rate_rps or next((f.own_rate_rps for f in facts if f.own_rate_rps), None)
        planner = Planner(self.patches, self.settings, RateGrid(rate or 1.0))
        self.on_phase("knees")
        sized: list[Sized] = self.dialogue.hold([planner.size(one) for one in facts])
        rented = [self._guessed(planner, one, rate) for one in sized]
        found = Found(rate, planner.grid, rented)
        if rate is not None:
            self.on_phase("confirming")
            self._confirm(planner, rented, rate)
        found.winner = self._winner(found)
        self.on_phase("headroom and knobs")
        if self.settings.budget_usd_per_hour is not None:
            self._within_budget(planner, found, sized)
        if found.winner is not None:
            self._around_winner(planner, found)
        return found

    def _guessed(self, planner: Planner, sized: Sized, rate: float | None) -> Rented:
        fixed = sized.facts.candidate.replicas
        if sized.status != "ok":
            return Rented(sized, fixed)
        most = fixed or max(1, self.settings.max_gpus // sized.facts.gpus_per_replica)
        if fixed is not None:
            meets = rate is not None and sized.knee_rps is not None and sized.knee_rps >= rate
            return Rented(sized, fixed, meets=meets, most_replicas=most)
        if rate is None:
            return Rented(sized, 1, most_replicas=most)
        allowed = self._allowed(sized, planner.guessed_replicas(sized, rate))
        return Rented(sized, allowed, most_replicas=most)

    def _allowed(self, sized: Sized, replicas: int | None) -> int | None:
        """None where the deployment would have more GPUs than are allowed."""
        too_many = replicas is not None and replicas * sized.facts.gpus_per_replica > self.settings.max_gpus
        return None if too_many else replicas

    def _confirm(self, planner: Planner, rented: list[Rented], rate: float) -> None:
        """Simulates whole deployments at the rate, cheapest first, until no other can be cheaper."""
        fixed = [one for one in rented if one.sized.status == "ok" and one.sized.facts.candidate.replicas and one.meets]
        self._look_at_fixed(planner, fixed, rate)
        open_ones = [one for one in rented if one.sized.status == "ok" and not one.sized.facts.candidate.replicas]
        open_ones.sort(key=Rented.order)
        done: list[Rented] = [one for one in fixed if one.meets]
        while open_ones:
            best = min((one.order()[:2] for one in done if one.meets), default=(math.inf, math.inf))
            may_win = [one for one in open_ones if self._least_order(planner, one, rate) < best]
            if len(done) < CONFIRMED:
                may_win = may_win or open_ones[: CONFIRMED - len(done)]
            wave = may_win[:WAVE]
            if not wave:
                return
            results = self.dialogue.hold([planner.replicas_for(one.sized, rate, "confirm") for one in wave])
            for one, (replicas, answered) in zip(wave, results, strict=True):
                open_ones.remove(one)
                one.replicas, one.answered, one.confirmed = replicas, answered, True
                one.meets = replicas is not None
                one.at_rate = next((found for found in answered if found.ask.replicas == replicas), None)
                done.append(one)

    def _look_at_fixed(self, planner: Planner, fixed: list[Rented], rate: float) -> None:
        def look(one: Rented) -> Any:
            assert one.replicas is not None
            found = yield from planner.look(one.sized, one.replicas, rate, "confirm")
            return found

        for one, found in zip(fixed, self.dialogue.hold([look(one) for one in fixed]), strict=True):
            one.at_rate, one.answered, one.confirmed = found, [found], True
            one.meets = not found.missed(self.settings)

    def _least_order(self, planner: Planner, one: Rented, rate: float) -> tuple[float, float]:
        """The least that a deployment of this kind can cost."""
        least = self._allowed(one.sized, planner.least_replicas(one.sized, rate))
        if least is None:
            return math.inf, math.inf
        price = one.sized.facts.usd_per_hour(least)
        return math.inf if price is None else price, least * one.sized.facts.gpus_per_replica

    def _winner(self, found: Found) -> Rented | None:
        """The cheapest that serves the rate; without a rate, the one with the cheapest tokens at its knee."""
        budget = self.settings.budget_usd_per_hour
        if found.rate_rps is not None:
            serving = [one for one in found.rented if one.meets and one.confirmed]
            if budget is not None:
                serving = [one for one in serving if one.usd_per_hour is not None and one.usd_per_hour <= budget]
            return min(serving, key=Rented.order, default=None)
        able = [one for one in found.rented if one.sized.knee_rps is not None and one.replicas is not None]
        winner = min(able, key=lambda one: (one.dearness(), one.order()), default=None)
        if winner is not None:
            winner.at_rate = winner.sized.at_knee
        return winner

    def _within_budget(self, planner: Planner, found: Found, sized: list[Sized]) -> None:
        """The highest rate that the budget buys: the most promising few by one replica's knee, simulated whole."""
        budget = self.settings.budget_usd_per_hour
        assert budget is not None
        promising = []
        for one in sized:
            price, knee = one.facts.usd_per_hour(1) if one.status == "ok" else None, one.knee_rps_per_replica
            if not price or not knee:
                continue
            most = min(math.floor(budget / price + 1e-9), self.settings.max_gpus // one.facts.gpus_per_replica)
            fixed = one.facts.candidate.replicas
            replicas = most if fixed is None else (fixed if fixed <= most else 0)
            if replicas:
                promising.append((-replicas * knee, one.facts.candidate.index, replicas, one))
        promising.sort(key=lambda entry: entry[:2])
        leaders = promising[:_LEADERS]
        searches = [planner.knee_of(one, replicas, -rate, "confirm") for rate, _, replicas, one in leaders]
        found.budgeted = self.dialogue.hold(searches)
        able = [one for one in found.budgeted if one.knee_rps is not None]
        found.within_budget = max(able, key=lambda one: (one.knee_rps or 0.0, -one.facts.candidate.index), default=None)

    def _around_winner(self, planner: Planner, found: Found) -> None:
        """The winner's own knee, what more load does to it, and which knob would move its limit."""
        winner = found.winner
        assert winner is not None and winner.replicas is not None
        sized, replicas = winner.sized, winner.replicas
        base = found.rate_rps or sized.knee_rps
        assert base is not None
        searches: dict[Any, Any] = {
            factor: self._headroom(planner, sized, replicas, base * factor) for factor in HEADROOM
        }
        tries = try_knobs(planner, sized)
        searches |= tries
        searches["curve"] = self._curve(planner, sized)
        if replicas != sized.replicas or planner.outlasts(sized, replicas, base):
            hint = max(base, (sized.knee_rps_per_replica or 0.0) * replicas)
            searches["whole"] = planner.knee_of(sized, replicas, hint, "knee")
        results = dict(zip(searches, self.dialogue.hold(list(searches.values())), strict=True))
        found.headroom = [(factor, *results[factor]) for factor in HEADROOM]
        found.knobs = [(knob_row(knob, sized, results[knob]), results[knob]) for knob in tries]
        sized.answered += results["curve"]
        winner.whole = results.get("whole", sized)

    def _curve(self, planner: Planner, sized: Sized) -> Any:
        """More of the winner's curve: below its knee, and one rate beyond."""
        assert sized.knee_rps is not None
        curve = []
        for share in CURVE:
            rate = planner.grid.rate_rps(planner.grid.highest_at_most(sized.knee_rps * share))
            if all(found.ask.rate_rps != rate for found in sized.answered):
                found = yield from planner.look(sized, sized.replicas, rate, "knee")
                curve.append(found)
        return curve

    def _headroom(self, planner: Planner, sized: Sized, replicas: int, rate: float) -> Any:
        rate = float(f"{rate:.6g}")
        answered = yield from planner.look(sized, replicas, rate, "headroom")
        if not answered.missed(self.settings):
            return answered, replicas, []
        needed, more = yield from planner.replicas_for(sized, rate, "headroom")
        return answered, needed, more
