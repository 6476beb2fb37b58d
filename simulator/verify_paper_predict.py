"""Answers to the questions of the paper's table, from our simulation alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from simulator.catalog import find_gpu, find_model
from simulator.memory_budget import budget
from simulator.memory_settings import MemorySettings
from simulator.specs import Parallelism
from simulator.verify_paper_lab import Lab, Load, Window, system_of
from simulator.verify_paper_questions import (
    PAGED,
    BatchQuestion,
    BlockSizeQuestion,
    LatencyQuestion,
    LengthQuestion,
    MaxRateQuestion,
    MemoryQuestion,
    Question,
    RatioQuestion,
    Sampling,
    SavingQuestion,
    ShareQuestion,
)
from simulator.verify_paper_systems import SWAP_SPACE_GIB, Server, System, Vllm
from workloads.workload import PS_PER_S

GIB = 1 << 30
TRACE_S = 3600.0
SHORT_TRACE_S = 900.0
"""One hour, and a quarter of it for OPT-175B "due to the cost limit" (section 6.1)."""
ENOUGH_REQUESTS = 20_000
"""Of an hour with more requests than this, its beginning is simulated: chance is small by then."""

SPLIT_RATE_RPS, SPLIT_TRACE_S, SPLIT_FROM_S = 4.0, 900.0, 300.0
"""Fig. 2 in the authors' scripts (experiments/fig2.sh, plot_fig2.py): 4 req/s, 900 s, measured from 300 s on."""
BATCH_FROM = 1 / 6
"""Fig. 13 in the authors' scripts (plot_fig13.py): measured from 600 s to 3,600 s of the trace."""
SAVING_RATE_RPS, SAVING_TRACE_S, SAVING_FROM_S = 20.0, 900.0, 300.0
"""Fig. 15 in the authors' scripts (experiments/fig15.sh, plot_fig15.py)."""
BLOCK_SIZE_RATE_RPS, BLOCK_SIZE_TRACE_S = {"ShareGPT": 2.01, "Alpaca": 30.1}, 600.0
"""Fig. 18b and 19b in the authors' scripts (experiments/fig18-b.sh, fig19-b.sh); the paper states no rates."""

ONE = Sampling()
LENGTH_SAMPLE = 100_000
UTILIZATION_2023 = 0.9
"""vLLM's ``--gpu-memory-utilization`` then."""

GROWTH = 1.08
"""Ratio of the rates that are tried until one lies on each side of the limit."""
REFINEMENTS = 2
MOST_TRIES = 60


class UnansweredError(Exception):
    """A question that this version cannot answer; the text says why."""


def answer(question: Question, lab: Lab) -> float:
    """Our number for a question.

    Raises:
        UnansweredError: what it needs is not in this version.
    """
    if isinstance(question, MemoryQuestion):
        return _memory(question)
    if isinstance(question, LengthQuestion):
        prompt, output = lab.lengths(question.dataset, LENGTH_SAMPLE)
        return float((prompt if question.side == "prompt" else output).mean())
    if isinstance(question, LatencyQuestion | SavingQuestion) and question.sampling.sequences > 1:
        raise UnansweredError("requests of several sequences are not in this version")
    if isinstance(question, ShareQuestion):
        window = _window(question.system, question.server, question.dataset, lab)
        return 100 * float(getattr(window.shares, question.part))
    if isinstance(question, BatchQuestion):
        system = system_of(question.system, question.server, question.dataset)
        load = _trace(question.server, question.dataset, question.rate_rps)
        return lab.window(system, question.server, load, BATCH_FROM * load.duration_s, load.duration_s).batched
    if isinstance(question, LatencyQuestion):
        system = system_of(question.system, question.server, question.dataset)
        load = _trace(question.server, question.dataset, question.rate_rps, question.sampling)
        return lab.latency_s(system, question.server, load)
    if isinstance(question, MaxRateQuestion):
        return max_rate_rps(question, lab)
    if isinstance(question, RatioQuestion):
        paged, other = (
            max_rate_rps(MaxRateQuestion(question.server, name, question.dataset, question.latency_s), lab)
            for name in (PAGED, question.against)
        )
        return paged / other
    if isinstance(question, SavingQuestion):
        return _saving(question, lab)
    return _block_size(question, lab)


def _trace(server: Server, dataset: str, rate_rps: float, sampling: Sampling = ONE) -> Load:
    """The load of one of the paper's traces on a server."""
    whole_s = SHORT_TRACE_S if server.model == "opt-175b" else TRACE_S
    duration_s = min(whole_s, ENOUGH_REQUESTS / (rate_rps * sampling.sequences))
    return Load(dataset, rate_rps, duration_s, sampling.sequences, sampling.beam)


def max_rate_rps(question: MaxRateQuestion, lab: Lab) -> float:
    """The rate at which normalised latency first reaches the limit, linear between two simulated rates."""
    system = system_of(question.system, question.server, question.dataset)

    def latency_s(rate_rps: float) -> float:
        return lab.latency_s(system, question.server, _trace(question.server, question.dataset, rate_rps))

    low, high = _bracket(latency_s, question.latency_s, lab.capacity_rps(system, question.server, question.dataset))
    below, above = latency_s(low), latency_s(high)
    for _ in range(REFINEMENTS):
        middle = (low * high) ** 0.5
        reached = latency_s(middle)
        if reached < question.latency_s:
            low, below = middle, reached
        else:
            high, above = middle, reached
    return low + (high - low) * (question.latency_s - below) / (above - below)


def _bracket(latency_s: Callable[[float], float], limit_s: float, guess_rps: float) -> tuple[float, float]:
    """Two rates, one ``GROWTH`` apart, with latencies on both sides of the limit."""
    rate = guess_rps
    step = 1 / GROWTH if latency_s(rate) >= limit_s else GROWTH
    for _ in range(MOST_TRIES):
        following = rate * step
        if (latency_s(following) >= limit_s) == (step > 1):
            return min(rate, following), max(rate, following)
        rate = following
    raise UnansweredError(f"no rate brings the latency to {limit_s:g} s a token")


def _window(name: str, server: Server, dataset: str, lab: Lab) -> Window:
    load = Load(dataset, SPLIT_RATE_RPS, SPLIT_TRACE_S)
    return lab.window(system_of(name, server, dataset), server, load, SPLIT_FROM_S, SPLIT_TRACE_S)


def _memory(question: MemoryQuestion) -> float:
    """Table 1 by our memory table, in GiB (the paper's "GB": 12 of them hold 15.7K tokens of 800 KiB)."""
    server = question.server
    model, gpu = find_model(server.model), find_gpu(server.gpu)
    parallelism = Parallelism(tensor_parallel_size=server.gpus)
    settings = MemorySettings(gpu_memory_utilization=UTILIZATION_2023, graphs_in_budget=False, enforce_eager=True)
    found = budget(model, gpu, parallelism, settings)
    if question.what == "total_gpu_memory_GB":
        return server.gpus * gpu.memory_bytes / GIB
    if question.what == "param_size_GB":
        return server.gpus * found.weight_bytes_per_gpu / 1e9  # here its GB are 10^9: 13 billion parameters of 2 bytes
    if question.what == "kv_cache_memory_GB":
        return server.gpus * found.kv_pool_bytes_per_gpu / GIB
    if question.what == "max_kv_slots":
        return found.num_gpu_blocks * found.block_size
    return model.kv_bytes_per_token()


def _saving(question: SavingQuestion, lab: Lab) -> float:
    sampling = question.sampling
    load = Load(question.dataset, SAVING_RATE_RPS, SAVING_TRACE_S, sampling.sequences, sampling.beam)
    window = lab.window(Vllm(), question.server, load, SAVING_FROM_S, SAVING_TRACE_S)
    return 100 * window.saved


def _block_size(question: BlockSizeQuestion, lab: Lab) -> float:
    server = question.server
    load = Load(question.dataset, BLOCK_SIZE_RATE_RPS[question.dataset], BLOCK_SIZE_TRACE_S)
    return lab.latency_s(vllm_swapping(server, question.block_size, question.preemption_mode), server, load)


def vllm_swapping(server: Server, block_size: int, preemption_mode: Literal["recompute", "swap"]) -> System:
    """vLLM with a block size; swapped blocks cross PCIe at its data sheet's rate times the calibration's share."""
    if preemption_mode == "recompute":
        return Vllm(block_size, "recompute")
    block_bytes = block_size * find_model(server.model).kv_bytes_per_token() // server.gpus
    pcie = find_gpu(server.gpu).pcie_bytes_per_s
    return Vllm(
        block_size,
        "swap",
        swap_blocks=SWAP_SPACE_GIB * GIB // block_bytes,
        swap_ps_per_block=round(block_bytes / pcie * PS_PER_S),
    )
