"""Runs the paper's experiments, each once: a load on a system on a server, and what its plots measure of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from simulator.allocators.contiguous import Reservation
from simulator.cluster import simulate
from simulator.errors import InputError
from simulator.random_streams import Streams
from simulator.run_log import RunLog
from simulator.step_time.base import Batch, StepTimeModel
from simulator.verify_paper_lengths import DATASETS, CutLaw, LengthShape, fitted_law
from simulator.verify_paper_systems import FasterTransformer, Orca, Server, System, Vllm, VllmSharingPrefixes
from simulator.verify_paper_window import (
    MemoryShares,
    StepColumns,
    batched_requests,
    memory_shares,
    normalized_latency_s,
    sharing_saved,
)
from workloads.workload import PS_PER_S, IntColumn, Workload

WARMUP_S = 60.0
"""Requests that arrive earlier are left out of normalised latencies (``--warmup`` of the authors' plots)."""
SEED = 0
FLOOD_RPS, FLOOD_S = 150.0, 240.0
"""A load that none of these servers keeps up with."""

_MAX_BATCH_SIZE = {("opt-13b", "ShareGPT"): 5, ("opt-13b", "Alpaca"): 14, ("opt-66b", "ShareGPT"): 2}
_MAX_BATCH_SIZE |= {("opt-66b", "Alpaca"): 8, ("opt-175b", "ShareGPT"): 24, ("opt-175b", "Alpaca"): 80}
"""FasterTransformer's batch: what fitted the memory in the authors' scripts (benchmark/ft/run_13b.py and its like)."""


@dataclass(frozen=True)
class Load:
    """Requests of a dataset that arrive as a Poisson process for ``duration_s``."""

    dataset: str
    rate_rps: float
    duration_s: float
    sequences: int = 1
    beam: bool = False
    prefix_tokens: int = 0


@dataclass(frozen=True)
class Window:
    """What a window of a run gives: mean batch, the split of the memory, and what sharing saved of the blocks."""

    batched: float
    shares: MemoryShares
    saved: float


def system_of(name: str, server: Server, dataset: str, prefix_tokens: int = 0) -> System:
    """The system under its name in the paper, set up for an experiment.

    Raises:
        InputError: FasterTransformer, whose batch size for this experiment is not known.
    """
    if name == "FasterTransformer":
        if (server.model, dataset) not in _MAX_BATCH_SIZE:
            raise InputError(f"no batch size of {name} for {server.model} and {dataset}", remedy="leave the row out")
        return FasterTransformer(_MAX_BATCH_SIZE[server.model, dataset])
    reservations: dict[str, Reservation] = {"Orca (Max)": "max", "Orca (Pow2)": "pow2", "Orca (Oracle)": "oracle"}
    if name in reservations:
        return Orca(reservations[name])
    return VllmSharingPrefixes() if prefix_tokens else Vllm()


@dataclass
class Lab:
    """Invariant: the same experiment gives the same number, however often and in whatever order it is asked for.

    ``shapes`` are the lengths of each dataset; ``cv_factor`` multiplies their coefficients of variation, ``scale`` the
    duration of all traces (for tests); ``step_overhead_ms`` takes the place of the calibration's host overhead.
    """

    cv_factor: float = 1.0
    shapes: dict[str, LengthShape] = field(default_factory=lambda: dict(DATASETS))
    step_overhead_ms: float | None = None
    scale: float = 1.0
    seed: int = SEED
    _laws: dict[str, CutLaw] = field(default_factory=dict)
    _latencies: dict[tuple[System, Server, Load], float] = field(default_factory=dict)
    _capacities: dict[tuple[System, Server, str, int], float] = field(default_factory=dict)
    _windows: dict[tuple[System, Server, Load, float, float], Window] = field(default_factory=dict)

    def latency_s(self, system: System, server: Server, load: Load) -> float:
        """Normalised latency of a whole trace, the queue that is left at its end included."""
        key = (system, server, load)
        if key not in self._latencies:
            log = self._run(system, server, load)
            self._latencies[key] = normalized_latency_s(log, WARMUP_S * self.scale)
        return self._latencies[key]

    def window(self, system: System, server: Server, load: Load, from_s: float, to_s: float) -> Window:
        """Means over the steps that begin in a window of the trace; what comes after it is not simulated."""
        key = (system, server, load, from_s, to_s)
        if key not in self._windows:
            step_time = server.step_time(self.step_overhead_ms)
            enough_steps = math.ceil(to_s * self.scale * PS_PER_S / shortest_step_ps(step_time))
            log = self._run(system, server, load, max_steps=enough_steps)
            if log.status == "max_steps" and log.end_ps < round(to_s * self.scale * PS_PER_S):
                raise InputError(
                    f"{enough_steps} passes end before the window does",
                    where="window",
                    remedy="this is a fault of the simulator; please report it",
                )
            steps = StepColumns.of(log, from_s * self.scale, to_s * self.scale)
            reservation = system.reservation if isinstance(system, Orca) else None
            shares = memory_shares(log, steps, reservation)
            self._windows[key] = Window(batched_requests(steps), shares, sharing_saved(steps))
        return self._windows[key]

    def capacity_rps(self, system: System, server: Server, dataset: str, prefix_tokens: int = 0) -> float:
        """Requests that end per second while far more come than can be served: where to look for a limit."""
        key = (system, server, dataset, prefix_tokens)
        if key not in self._capacities:
            load = Load(dataset, FLOOD_RPS, FLOOD_S, prefix_tokens=prefix_tokens)
            steps = math.ceil(
                FLOOD_S * self.scale * PS_PER_S / shortest_step_ps(server.step_time(self.step_overhead_ms))
            )
            log = self._run(system, server, load, max_steps=steps)
            ends = log.request_columns()["finish_ps"]
            begin, end = (round(part * FLOOD_S * self.scale * PS_PER_S) for part in (0.25, 1.0))
            ended = int(((ends >= begin) & (ends < end)).sum())
            self._capacities[key] = max(ended, 1) * PS_PER_S / (end - begin)
        return self._capacities[key]

    def curve(self, system: System, server: Server, dataset: str) -> list[tuple[float, float]]:
        """Every (rate, normalised latency) that was simulated of plain requests, by rate."""
        points = {
            load.rate_rps: latency
            for (ran, on, load), latency in self._latencies.items()
            if (ran, on, load.dataset, load.sequences, load.prefix_tokens) == (system, server, dataset, 1, 0)
        }
        return sorted(points.items())

    def workload(self, load: Load, *, apart: bool = False) -> Workload:
        """The requests of a load. The same seed gives the same lengths in the same order at every rate.

        ``apart``: each sequence is a request of its own that comes with the others, for systems that share nothing.
        """
        streams, duration_s = Streams(self.seed), load.duration_s * self.scale
        expected = load.rate_rps * duration_s
        enough = math.ceil(expected + 10 * math.sqrt(expected) + 50)
        times_s = np.cumsum(streams("paper.arrivals").exponential(size=enough)) / load.rate_rps
        n = int(np.searchsorted(times_s, duration_s))
        prompt, output = self.lengths(load.dataset, n)
        arrival_ps: IntColumn = np.rint(times_s[:n] * PS_PER_S).astype(np.int64)
        if load.prefix_tokens:
            own = prompt.tolist()
            segments = [(("prefix", 0, load.prefix_tokens), (f"own:{row}", 0, own[row])) for row in range(n)]
            prompt = prompt + load.prefix_tokens
            return Workload.from_columns(arrival_ps, prompt, output, segments=segments)
        if load.sequences == 1:
            return Workload.from_columns(arrival_ps, prompt, output, requested_rate_rps=load.rate_rps)
        if apart:
            columns = [np.repeat(column, load.sequences) for column in (arrival_ps, prompt, output)]
            return Workload.from_columns(*columns, requested_rate_rps=load.rate_rps)
        return Workload.from_columns(
            arrival_ps,
            prompt,
            output,
            sequences=np.full(n, load.sequences),
            beam=np.full(n, load.beam),
            requested_rate_rps=load.rate_rps,
        )

    def lengths(self, dataset: str, n: int) -> tuple[IntColumn, IntColumn]:
        """Prompt and output tokens of the first ``n`` requests of a dataset."""
        if dataset not in self._laws:
            self._laws[dataset] = fitted_law(self.shape(dataset))
        streams = Streams(self.seed)
        return self._laws[dataset].draw(streams("paper.prompt_tokens"), streams("paper.output_tokens"), n)

    def shape(self, dataset: str) -> LengthShape:
        """The lengths of a dataset as this lab draws them."""
        return self.shapes[dataset].widened(self.cv_factor)

    def _run(self, system: System, server: Server, load: Load, max_steps: int | None = None) -> RunLog:
        return simulate(
            self.workload(load, apart=not isinstance(system, Vllm)),
            system.engine(server),
            system.pool(server),
            server.step_time(self.step_overhead_ms),
            max_steps=max_steps,
        )


def shortest_step_ps(step_time: StepTimeModel) -> int:
    """A step of one token of one request: no step is shorter."""
    batch = Batch(tokens=1, requests=1, sampled=1, context=1, decodes=1, decode_context=1)
    return step_time.segment(batch).duration_ps
