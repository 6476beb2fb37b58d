"""What a row of the paper's table asks of us, from its words alone: one frozen dataclass a kind of experiment.

Nothing here sees an answer. A row that no kind fits is not predicted, and says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from simulator.verify_paper_lengths import DATASETS
from simulator.verify_paper_systems import OPT_13B, SERVERS, Server
from simulator.verify_paper_targets import Asked

PAGED = "vLLM"
ORCAS = ("Orca (Max)", "Orca (Pow2)", "Orca (Oracle)")
SYSTEMS = ("FasterTransformer", *ORCAS, PAGED)
Part = Literal["tokens", "reserved", "internal", "other"]
_PARTS: dict[str, Part] = {
    "token_states": "tokens",
    "reservation": "reserved",
    "internal_frag": "internal",
    "external_frag_and_others": "other",
}
_MEMORY = ("total_gpu_memory_GB", "param_size_GB", "kv_cache_memory_GB", "max_kv_slots")
_RATE = re.compile(r"^(\d+(?:\.\d+)?)(?:\s*req/s)?$")


@dataclass(frozen=True)
class Sampling:
    """Sequences a request asks for, drawn independently or as the beams of a search."""

    sequences: int = 1
    beam: bool = False


@dataclass(frozen=True)
class MemoryQuestion:
    """A line of Table 1, or the KV bytes of a token."""

    server: Server
    what: str
    kind: Literal["memory"] = "memory"


@dataclass(frozen=True)
class LengthQuestion:
    """Mean length of a dataset's prompts or outputs (Fig. 11)."""

    dataset: str
    side: Literal["prompt", "output"]
    kind: Literal["length"] = "length"


@dataclass(frozen=True)
class ShareQuestion:
    """A part of the KV memory of an overloaded server (Fig. 2)."""

    server: Server
    system: str
    dataset: str
    part: Part
    kind: Literal["share"] = "share"


@dataclass(frozen=True)
class BatchQuestion:
    """Mean batched requests at a rate (Fig. 13)."""

    server: Server
    system: str
    dataset: str
    rate_rps: float
    kind: Literal["batch"] = "batch"


@dataclass(frozen=True)
class LatencyQuestion:
    """Normalised latency at a rate: a point of a curve (Fig. 12, 14)."""

    server: Server
    system: str
    dataset: str
    rate_rps: float
    sampling: Sampling = Sampling()
    prefix_tokens: int = 0
    kind: Literal["latency"] = "latency"


@dataclass(frozen=True)
class MaxRateQuestion:
    """The rate at which normalised latency reaches a limit."""

    server: Server
    system: str
    dataset: str
    latency_s: float
    prefix_tokens: int = 0
    kind: Literal["max_rate"] = "max_rate"


@dataclass(frozen=True)
class RatioQuestion:
    """How many times the rate of another system vLLM sustains."""

    server: Server
    against: str
    dataset: str
    latency_s: float = 0.2
    prefix_tokens: int = 0
    kind: Literal["ratio"] = "ratio"


@dataclass(frozen=True)
class SavingQuestion:
    """Share of the blocks that sharing within requests saves (Fig. 15)."""

    server: Server
    dataset: str
    sampling: Sampling
    kind: Literal["saving"] = "saving"


@dataclass(frozen=True)
class BlockSizeQuestion:
    """Normalised latency of vLLM by block size and way of preemption (Fig. 18b, 19b)."""

    server: Server
    dataset: str
    block_size: int
    preemption_mode: Literal["recompute", "swap"]
    kind: Literal["block_size"] = "block_size"


@dataclass(frozen=True)
class SwapTimeQuestion:
    """Milliseconds to swap or to recompute a request by block size (Fig. 19a)."""

    server: Server
    block_size: int
    what: Literal["recompute", "in", "out", "both"]
    kind: Literal["swap_time"] = "swap_time"


Question = (
    MemoryQuestion
    | LengthQuestion
    | ShareQuestion
    | BatchQuestion
    | LatencyQuestion
    | MaxRateQuestion
    | RatioQuestion
    | SavingQuestion
    | BlockSizeQuestion
    | SwapTimeQuestion
)


@dataclass(frozen=True)
class NotAsked:
    """A row that is not predicted, and why."""

    reason: str
    kind: Literal["not_asked"] = "not_asked"


_UNKNOWN = NotAsked("a model, dataset, system or rate that is not modelled")
_UNMEASURED = NotAsked("no experiment of ours measures this")


def question_of(asked: Asked) -> Question | NotAsked:
    """The experiment that would answer a row."""
    reader = _READERS.get(asked.metric)
    return reader(asked) if reader else _UNMEASURED


def _memory(asked: Asked) -> Question | NotAsked:
    server = _server(f"{asked.model_hw} {asked.system}")
    return MemoryQuestion(server, asked.metric) if server else NotAsked("a server that is not modelled")


def _length(asked: Asked) -> Question | NotAsked:
    dataset, side = _dataset(asked), asked.metric.split("_")[1]
    return LengthQuestion(dataset, "prompt" if side == "input" else "output") if dataset else _UNKNOWN


def _share(asked: Asked) -> Question | NotAsked:
    server, dataset, system = _server(asked.model_hw), _dataset(asked), asked.system
    if server is None or dataset is None or system not in (*ORCAS, PAGED):
        return _UNKNOWN
    return ShareQuestion(server, system, dataset, _PARTS[asked.metric])


def _batch(asked: Asked) -> Question | NotAsked:
    server, dataset, rate = _server(asked.model_hw), _dataset(asked), _RATE.match(asked.x)
    if server is None or dataset is None or rate is None or asked.system not in (*ORCAS, PAGED):
        return _UNKNOWN
    return BatchQuestion(server, asked.system, dataset, float(rate[1]))


def _latency(asked: Asked) -> Question | NotAsked:
    if "block size" in asked.model_hw:
        return _block_size(asked)
    server, dataset, rate = _server(asked.model_hw), _dataset(asked), _RATE.match(asked.x)
    if server is None or dataset is None or rate is None or asked.system not in SYSTEMS:
        return _UNKNOWN
    sampling, prefix = _sampling(asked.model_hw), _prefix_tokens(asked)
    return LatencyQuestion(server, asked.system, dataset, float(rate[1]), sampling, prefix)


def _block_size(asked: Asked) -> Question | NotAsked:
    meaning = dict(re.findall(r"(\w+)=(\w+)", asked.model_hw)).get(asked.system, "")
    size = float(asked.x) if _RATE.match(asked.x) else 0.0
    if meaning in ("ShareGPT", "Alpaca", "recompute", "swap") and size >= 1:
        dataset = meaning if meaning in DATASETS else "ShareGPT"
        return BlockSizeQuestion(OPT_13B, dataset, int(size), "swap" if meaning == "swap" else "recompute")
    return NotAsked("a line of a plot whose meaning is not known")


def _swap_time(asked: Asked) -> Question | NotAsked:
    ways: dict[str, Literal["recompute", "in", "out", "both"]]
    ways = {"recompute": "recompute", "swap in": "in", "swap out": "out", "in+out": "both"}
    meaning = dict(re.findall(r"(\w+)=([\w+ ]+)", asked.model_hw)).get(asked.system, "").strip()
    if "block size" not in asked.model_hw or meaning not in ways or not _RATE.match(asked.x) or float(asked.x) < 1:
        return NotAsked("a line of a plot whose meaning is not known")
    return SwapTimeQuestion(OPT_13B, int(float(asked.x)), ways[meaning])


def _max_rate(asked: Asked) -> Question | NotAsked:
    server, dataset, limit = _server(asked.model_hw), _dataset(asked), re.match(r"^(\d+(?:\.\d+)?) s/token$", asked.x)
    if server is None or dataset is None or limit is None or asked.system not in SYSTEMS:
        return _UNKNOWN
    return MaxRateQuestion(server, asked.system, dataset, float(limit[1]), _prefix_tokens(asked))


def _ratio(asked: Asked) -> Question | NotAsked:
    dataset, against = _dataset(asked), asked.x.removeprefix("vs ")
    if dataset not in DATASETS or against not in SYSTEMS or asked.model_hw not in ("all", "OPT-13B"):
        return _UNMEASURED
    return RatioQuestion(OPT_13B, against, dataset)


def _prefix_ratio(asked: Asked) -> Question | NotAsked:
    server, dataset, prefix = _server(asked.model_hw), _dataset(asked), _prefix_tokens(asked)
    against = asked.system.removeprefix(f"{PAGED} vs ")
    if server and dataset and prefix and against in ORCAS:
        return RatioQuestion(server, against, dataset, prefix_tokens=prefix)
    return _UNMEASURED


def _saving(asked: Asked) -> Question | NotAsked:
    server, dataset, sampling = _server(asked.model_hw), _dataset(asked), _sampling(asked.x)
    if server is None or dataset is None or sampling.sequences < 2:
        return NotAsked("a range over experiments that the paper does not list")
    return SavingQuestion(server, dataset, sampling)


def _server(words: str) -> Server | None:
    match = re.search(r"\b(OPT|LLaMA)-(\d+)B", words, re.IGNORECASE)
    return SERVERS.get(f"{match[1]}-{match[2]}b".lower()) if match else None


def _dataset(asked: Asked) -> str | None:
    """The dataset that the row names, beside its model or in a column of its own."""
    words = f"{asked.dataset} {asked.model_hw}"
    found = [name for name in DATASETS if name in words]
    if not found and _prefix_tokens(asked):
        return "WMT16"  # the only one of the paper's datasets whose requests share a prefix
    return found[0] if len(found) == 1 and "chat (" not in words and "chat prompt" not in words else None


def _prefix_tokens(asked: Asked) -> int:
    match = re.search(r"(\d+) (?:tok\b|shared tokens)", f"{asked.model_hw} {asked.x}")
    return int(match[1]) if match else 0


def _sampling(words: str) -> Sampling:
    if match := re.search(r"(?:parallel|\bn)=(\d+)", words):
        return Sampling(int(match[1]))
    if match := re.search(r"beam=(\d+)", words):
        return Sampling(int(match[1]), beam=True)
    return Sampling()


_READERS = {
    **dict.fromkeys((*_MEMORY, "kv_bytes_per_token"), _memory),
    "mean_input_tokens": _length,
    "mean_output_tokens": _length,
    **dict.fromkeys(_PARTS, _share),
    "avg_batched_requests": _batch,
    "normalized_latency": _latency,
    "max_rate_at_normalized_latency": _max_rate,
    "time": _swap_time,
    "sustained_rate_ratio": _ratio,
    "throughput_ratio": _prefix_ratio,
    "memory_saving_parallel_sampling": _saving,
    "memory_saving_beam": _saving,
}
"""Metric to reader."""
