"""What a replica can serve at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request
from simulator.schedulers.config import EngineConfig
from workloads.workload import IntColumn

if TYPE_CHECKING:
    from simulator.allocators.sequence_kv import SequenceKv

IntOrColumn = TypeVar("IntOrColumn", int, IntColumn)


def prefilled_at_once(config: EngineConfig, prompt_tokens: IntOrColumn, final_tokens: IntOrColumn) -> IntOrColumn:
    """Tokens that one step may have to take whole; 0 where prompts are cut, or may exceed the budget.

    Who is preempted computes its outputs again with its prompt. TensorRT-LLM preempts under max_utilization alone.
    The first prompt of a step may be longer than the budget in Orca, and in SGLang with chunked prefill off.
    """
    policy = config.policy
    if config.enable_chunked_prefill or policy.kind in ("sglang", "iteration-level"):
        return final_tokens * 0
    if policy.kind == "trtllm" and policy.capacity_scheduler_policy != "max_utilization":
        return prompt_tokens
    return final_tokens


class Servable:
    """Turns away, at arrival, what could only wait for ever.

    Requests of at most ``surely_tokens`` final tokens need not be asked about.
    """

    __slots__ = ("_config", "_kv", "surely_tokens")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        self._config = config
        self._kv = kv
        self.surely_tokens = min(config.max_model_len - 1, kv.surely_servable_tokens)
        if not config.enable_chunked_prefill:
            self.surely_tokens = min(self.surely_tokens, config.max_num_batched_tokens)

    def reason_against(self, request: Request) -> str | None:
        """Why this request is turned away, in numbers; None when it is taken.

        A faithful server turns away only prompts that leave no room for output (vLLM's front end).
        """
        config = self._config
        if request.prompt_tokens >= config.max_model_len:
            return (
                f"prompt of {request.prompt_tokens} tokens leaves no room for output "
                f"in max_model_len {config.max_model_len}"
            )
        if config.on_unservable == "faithful":
            return None
        at_once = prefilled_at_once(config, request.prompt_tokens, request.final_tokens)
        if at_once > config.max_num_batched_tokens:
            return (
                f"{at_once} tokens may have to be prefilled at once, "
                f"max_num_batched_tokens is {config.max_num_batched_tokens} and chunked prefill is off"
            )
        if request.sequences > 1:
            return self._reason_against_group(request)
        return self._kv.unservable(request.prompt_tokens, request.final_tokens)

    def _reason_against_group(self, request: Request) -> str | None:
        """Only vLLM v0 serves requests of several sequences (``simulate`` refuses them elsewhere)."""
        sequences, limit = request.sequences, self._config.running_limit
        if sequences > limit:
            return f"{sequences} sequences, max_num_seqs is {limit}"
        kv = cast("SequenceKv", self._kv)
        return kv.group_unservable(request.prompt_tokens, request.final_tokens, sequences)


PATIENCE = 8
"""A live-lock is called after this many times the steps that any prefill can need."""


class Patience:
    """How long to wait for a sampled token before calling it a live-lock.

    Without the full-sequence rule requests can preempt each other for ever, on the real server too; only sampled
    tokens are progress, prefills are not. A run must end.
    """

    __slots__ = ("limit", "waited")

    def __init__(self, config: EngineConfig) -> None:
        length, budget = config.max_model_len, config.max_num_batched_tokens
        chunk = min(config.long_prefill_token_threshold or budget, budget)
        # Steps in which max_num_seqs prompts of max_model_len are surely computed, as long as all keep their KV.
        longest_prefill_steps = length // chunk + config.running_limit * (length // budget + 1) + 64
        self.limit = PATIENCE * longest_prefill_steps
        self.waited = 0

    def is_over(self) -> bool:
        """Notes a step that sampled nothing."""
        self.waited += 1
        return self.waited > self.limit
