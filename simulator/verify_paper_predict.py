"""Answers to the questions of the paper's table, from our simulation alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulator.catalog import find_gpu, find_model
from simulator.errors import KvplanError
from simulator.memory_budget import budget
from simulator.memory_settings import MemorySettings
from simulator.specs import Parallelism
from simulator.step_time.base import Batch
from simulator.verify_paper_lab import Lab, Load, Window, system_of
from simulator.verify_paper_questions import (
    PAGED,
    BatchQuestion,
    BlockSizeQuestion,
    LatencyQuestion,
    LengthQuestion,
    MaxRateQuestion,
    MemoryQuestion,
    NotAsked,
    Question,
    RatioQuestion,
    Sampling,
    SavingQuestion,
    ShareQuestion,
    SwapTimeQuestion,
    question_of,
)
from simulator.verify_paper_systems import Server, Vllm
from simulator.verify_paper_targets import Asked
from workloads.workload import PS_PER_S

GIB = 1 << 30
TRACE_S = 3600.0
SHORT_TRACE_S = 900.0
"""One hour, and a quarter of it for OPT-175B "due to the cost limit" (section 6.1)."""
ENOUGH_REQUESTS, AT_LEAST_S = 7_500, 180.0
"""Of an hour with more requests than this, its beginning is simulated: chance is small by then."""

SPLIT_RATE_RPS, SPLIT_TRACE_S, SPLIT_FROM_S = 4.0, 900.0, 300.0
"""Fig. 2 in the authors' scripts (experiments/fig2.sh, plot_fig2.py): 4 req/s, 900 s, measured from 300 s on."""
BATCH_FROM = 1 / 6
"""Fig. 13 in the authors' scripts (plot_fig13.py): measured from 600 s to 3,600 s of the trace."""
SAVING_RATE_RPS, SAVING_TRACE_S, SAVING_FROM_S = 20.0, 300.0, 100.0
"""Fig. 15 in the authors' scripts (experiments/fig15.sh, plot_fig15.py): 20 req/s for 900 s, measured from 300 s on;
here the first third of that, which holds thousands of requests."""
SWAPPED_TOKENS = 256
"""Fig. 19a in the authors' scripts (benchmark_swap.py)."""
BLOCK_SIZE_RATE_RPS, BLOCK_SIZE_TRACE_S = {"ShareGPT": 2.01, "Alpaca": 30.1}, 600.0
"""Fig. 18b and 19b in the authors' scripts (experiments/fig18-b.sh, fig19-b.sh); the paper states no rates."""

ONE = Sampling()
LENGTH_SAMPLE = 100_000
UTILIZATION_2023 = 0.9
"""vLLM's ``--gpu-memory-utilization`` then."""

GROWTH = 1.08
"""Ratio of the rates that are tried until one lies on each side of the limit."""
REFINEMENTS = 1
MOST_TRIES = 60


@dataclass(frozen=True)
class Prediction:
    """Our number for a row, or why there is none."""

    value: float | None
    reason: str | None = None


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
    if isinstance(question, ShareQuestion):
        window = _window(question.system, question.server, question.dataset, lab)
        return 100 * float(getattr(window.shares, question.part))
    if isinstance(question, BatchQuestion):
        system = system_of(question.system, question.server, question.dataset)
        load = _trace(question, question.rate_rps)
        return lab.window(system, question.server, load, BATCH_FROM * load.duration_s, load.duration_s).batched
    if isinstance(question, LatencyQuestion):
        load = _trace(question, question.rate_rps, question.sampling)
        system = system_of(question.system, question.server, question.dataset, load.prefix_tokens)
        return lab.latency_s(system, question.server, load)
    if isinstance(question, MaxRateQuestion):
        return max_rate_rps(question, lab)
    if isinstance(question, RatioQuestion):
        server, dataset, prefix = question.server, question.dataset, question.prefix_tokens
        paged, other = (
            max_rate_rps(MaxRateQuestion(server, name, dataset, question.latency_s, prefix), lab)
            for name in (PAGED, question.against)
        )
        return paged / other
    if isinstance(question, SavingQuestion):
        return _saving(question, lab)
    if isinstance(question, SwapTimeQuestion):
        return _swap_time_ms(question, lab)
    return _block_size(question, lab)


def _trace(
    question: BatchQuestion | LatencyQuestion | MaxRateQuestion, rate_rps: float, sampling: Sampling = ONE
) -> Load:
    """The load of one of the paper's traces."""
    whole_s = SHORT_TRACE_S if question.server.model == "opt-175b" else TRACE_S
    duration_s = min(whole_s, max(AT_LEAST_S, ENOUGH_REQUESTS / (rate_rps * sampling.sequences)))
    prefix_tokens = 0 if isinstance(question, BatchQuestion) else question.prefix_tokens
    return Load(question.dataset, rate_rps, duration_s, sampling.sequences, sampling.beam, prefix_tokens)


def max_rate_rps(question: MaxRateQuestion, lab: Lab) -> float:
    """The rate at which normalised latency first reaches the limit, linear between two simulated rates."""
    prefix_tokens = question.prefix_tokens
    system = system_of(question.system, question.server, question.dataset, prefix_tokens)

    def latency_s(rate_rps: float) -> float:
        return lab.latency_s(system, question.server, _trace(question, rate_rps))

    guess_rps = lab.capacity_rps(system, question.server, question.dataset, prefix_tokens)
    low, high = _bracket(latency_s, question.latency_s, guess_rps)
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
    window = lab.window(Vllm(mixed=False), question.server, load, SAVING_FROM_S, SAVING_TRACE_S)
    return 100 * window.saved


def _block_size(question: BlockSizeQuestion, lab: Lab) -> float:
    server = question.server
    load = Load(question.dataset, BLOCK_SIZE_RATE_RPS[question.dataset], BLOCK_SIZE_TRACE_S)
    system = Vllm(question.block_size, question.preemption_mode)
    return lab.latency_s(system, server, load)


def _swap_time_ms(question: SwapTimeQuestion, lab: Lab) -> float:
    """Fig. 19a: 256 tokens over PCIe and back, or computed again as one prompt."""
    server, tokens = question.server, SWAPPED_TOKENS
    if question.what == "recompute":
        batch = Batch(tokens=tokens, requests=1, sampled=1, context=tokens, prefills=[(tokens, tokens)])
        return 1000 * server.step_time(lab.step_overhead_ms).segment(batch).duration_ps / PS_PER_S
    one_way_ps = -(-tokens // question.block_size) * server.swap_ps_per_block(question.block_size)
    return 1000 * one_way_ps * (2 if question.what == "both" else 1) / PS_PER_S


OnRow = Callable[[], None]


def predict(
    asked: Iterable[Asked],
    lab: Lab,
    wanted: Callable[[Question], bool] | None = None,
    on_row: OnRow = lambda: None,
) -> list[Prediction]:
    """Our answers to rows that have none. ``wanted``: the questions to answer; the others get no number."""
    found = []
    for row in asked:
        on_row()
        question = question_of(row)
        if isinstance(question, NotAsked):
            found.append(Prediction(None, question.reason))
        elif wanted is not None and not wanted(question):
            found.append(Prediction(None, "left out"))
        else:
            try:
                found.append(Prediction(answer(question, lab)))
            except (UnansweredError, KvplanError) as error:
                found.append(Prediction(None, str(error)))
    return found
