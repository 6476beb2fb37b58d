"""Which system's rules a replica follows: one frozen dataclass a policy; the union is the registry.

What every engine is told (``max_num_seqs``, the token budget, ...) stands in ``EngineConfig``; here stands what only
one of them knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class VllmV1Policy:
    """vLLM v1 (SCHEDULERS.md 1-5, 8): its knobs are those of ``EngineConfig``."""

    kind: Literal["vllm-v1"] = "vllm-v1"


@dataclass(frozen=True)
class RequestLevelPolicy:
    """FasterTransformer (SCHEDULERS.md 9.4): a batch runs until its longest member ends."""

    kind: Literal["request-level"] = "request-level"


@dataclass(frozen=True)
class IterationLevelPolicy:
    """Orca (SCHEDULERS.md 9.4): whole prompts join the running batch at any step."""

    kind: Literal["iteration-level"] = "iteration-level"


@dataclass(frozen=True)
class VllmV0Policy:
    """vLLM v0 (SCHEDULERS.md 9.1).

    ``preemption_mode`` auto: swap for groups of several sequences, else recompute. ``swap_blocks``: blocks of the CPU
    pool; ``swap_ps_per_block``: picoseconds to move one block over PCIe, one way. ``watermark``: share of the
    blocks that admission leaves free. ``beam_diversity``: probability that a beam of a search continues its own text;
    else its parent is any of the beams (see ``allocators/beam_tables.py``); ``beam_seed`` starts these draws.
    ``release`` 2023-06 is v0.1, the paper's: whole prompts join the decodes' step; later a step of prompts computes
    nothing else.
    """

    preemption_mode: Literal["auto", "recompute", "swap"] = "auto"
    swap_blocks: int = 0
    swap_ps_per_block: int = 0
    watermark: float = 0.01
    release: Literal["2024", "2023-06"] = "2024"
    beam_diversity: float = 0.0
    beam_seed: int = 0
    kind: Literal["vllm-v0"] = "vllm-v0"


@dataclass(frozen=True)
class TrtLlmPolicy:
    """TensorRT-LLM (SCHEDULERS.md 9.2)."""

    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization", "static_batch"] = "guaranteed_no_evict"
    context_chunking_policy: Literal["first_come_first_served", "equal_progress"] = "first_come_first_served"
    kind: Literal["trtllm"] = "trtllm"


@dataclass(frozen=True)
class SglangPolicy:
    """SGLang (SCHEDULERS.md 9.3)."""

    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    schedule_conservativeness: float = 1.0
    max_prefill_tokens: int = 16384
    ignore_eos: bool = False
    kind: Literal["sglang"] = "sglang"


Policy = VllmV1Policy | RequestLevelPolicy | IterationLevelPolicy | VllmV0Policy | TrtLlmPolicy | SglangPolicy
