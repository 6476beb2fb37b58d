"""Settings of a scheduler, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.errors import InputError
from simulator.schedulers.policies import Policy, VllmV1Policy


@dataclass(frozen=True)
class EngineConfig:
    """What vLLM 0.33's scheduler is told (SCHEDULERS.md 3 and 6); lengths in tokens.

    ``long_prefill_token_threshold`` 0 is off. ``watermark`` is a share of all blocks. ``on_unservable``: what can
    never be served is rejected at arrival with a reason (``reject``), or queued as the real server does
    (``faithful``: such a run may end in a dead-lock, which is recognised). ``version`` 2025 is vLLM 0.8-0.13 (the
    order of the free queue, and a chunk cap for a lone request too). ``policy`` says whose rules hold; vLLM's own
    knobs mean nothing to the others unless their policy says so.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefill_schedule_interval: int = 1
    max_num_active_seqs: int | None = None
    on_unservable: Literal["reject", "faithful"] = "reject"
    enable_prefix_caching: bool = False
    prefix_cache_retention_interval: int | None = 0
    async_scheduling: bool = False
    version: Literal["0.33", "2025"] = "0.33"
    policy: Policy = field(default_factory=VllmV1Policy)

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "prefill_schedule_interval"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1", where=f"engine.{name}", remedy=f"set {name}: 1 or more")
        budgets_decodes = self.policy.kind in ("vllm-v1", "vllm-v0")
        if budgets_decodes and self.max_num_batched_tokens < self.max_num_seqs:
            raise InputError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_num_seqs ({self.max_num_seqs}): "
                "a step could not give every running request its token",
                where="engine.max_num_batched_tokens",
                remedy=f"set max_num_seqs to {self.max_num_batched_tokens} or less, or raise max_num_batched_tokens",
            )

    @property
    def running_limit(self) -> int:
        """Requests that may run at once."""
        if self.max_num_active_seqs is None:
            return self.max_num_seqs
        return min(self.max_num_seqs, self.max_num_active_seqs)
