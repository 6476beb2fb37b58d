"""The systems that the PagedAttention paper compares, and the servers it ran them on: settings, no numbers of results.

Settings come from the paper (its Table 1 and section 6.1) and from the scripts that its authors published for the
artifact evaluation (github.com/sosp-ae-39/sosp-ae-astra).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.catalog import find_gpu, find_model
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import IterationLevelPolicy, Policy, RequestLevelPolicy, VllmV0Policy
from simulator.specs import Parallelism
from simulator.step_time.base import StepTimeModel
from simulator.step_time.config import RooflineConfig, build_step_time

NO_LIMIT = 1 << 20
MAX_BATCHED_TOKENS = 2560
"""vLLM's token budget of a step in 2023 (``--max-num-batched-tokens``'s default)."""
MAX_NUM_SEQS = 256
"""vLLM's limit of running sequences in 2023 (``--max-num-seqs``'s default)."""
BLOCK_SIZE = 16
SWAP_SPACE_GIB = 20
"""CPU memory for swapped blocks (``--swap-space``) in 2023."""
WATERMARK = 0.01


@dataclass(frozen=True)
class Server:
    """A model on its GPUs. ``slots``: KV slots by the paper's Table 1; None: as many as the memory table gives."""

    model: str
    gpu: str
    gpus: int
    slots: int
    max_model_len: int = 2048

    def step_time(self, step_overhead_ms: float | None = None) -> StepTimeModel:
        """The roofline in 16 bit with the shipped calibration, or with another host overhead a step."""
        return build_step_time(
            RooflineConfig(overhead_ms=step_overhead_ms),
            model=find_model(self.model),
            gpu=find_gpu(self.gpu),
            parallelism=Parallelism(tensor_parallel_size=self.gpus),
        )


OPT_13B = Server("opt-13b", "a100-sxm-40gb", 1, 15_700)
OPT_66B = Server("opt-66b", "a100-sxm-40gb", 4, 9_700)
OPT_175B = Server("opt-175b", "a100-sxm-80gb", 8, 60_100)
SERVERS = {server.model: server for server in (OPT_13B, OPT_66B, OPT_175B)}


@dataclass(frozen=True)
class Orca:
    """Iteration-level batches over a buddy allocator; ``reservation`` is what the three versions differ in."""

    reservation: Literal["max", "pow2", "oracle"]
    kind: Literal["orca"] = "orca"

    def engine(self, server: Server) -> EngineConfig:
        return _config(IterationLevelPolicy(), server, NO_LIMIT, NO_LIMIT)

    def pool(self, server: Server) -> PoolConfig:
        return ContiguousPool(server.slots, self.reservation, "buddy")


@dataclass(frozen=True)
class FasterTransformer:
    """Request-level batches of at most ``max_batch_size`` requests ("as large as possible for each experiment").

    The size binds, not the slots: each request holds what its batch was sized for.
    """

    max_batch_size: int
    kind: Literal["fastertransformer"] = "fastertransformer"

    def engine(self, server: Server) -> EngineConfig:
        return _config(RequestLevelPolicy(), server, self.max_batch_size, NO_LIMIT)

    def pool(self, server: Server) -> PoolConfig:
        return ContiguousPool(max(server.slots, self.max_batch_size * server.max_model_len), "max", "first")


@dataclass(frozen=True)
class Vllm:
    """The paper's vLLM: paged, preemption by recompute or by swap.

    Its scheduler of 2023 put prompts into the step of the decodes (prefill-only steps came later), which is v0's mode
    with one token budget; the budget holds every prompt whole, but for what the decodes take of it.
    """

    block_size: int = BLOCK_SIZE
    preemption_mode: Literal["auto", "recompute", "swap"] = "auto"
    swap_blocks: int = 0
    swap_ps_per_block: int = 0
    kind: Literal["vllm"] = "vllm"
    max_num_seqs: int = field(default=MAX_NUM_SEQS)

    def engine(self, server: Server) -> EngineConfig:
        policy = VllmV0Policy(
            preemption_mode=self.preemption_mode,
            swap_blocks=self.swap_blocks,
            swap_ps_per_block=self.swap_ps_per_block,
            watermark=WATERMARK,
        )
        return _config(policy, server, self.max_num_seqs, MAX_BATCHED_TOKENS, mixed=True)

    def pool(self, server: Server) -> PoolConfig:
        return PagedPool(server.slots // self.block_size, self.block_size, null_block=False)


System = Orca | FasterTransformer | Vllm


def _config(
    policy: Policy, server: Server, max_num_seqs: int, max_num_batched_tokens: int, *, mixed: bool = False
) -> EngineConfig:
    return EngineConfig(
        max_model_len=server.max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_chunked_prefill=mixed,
        policy=policy,
    )
