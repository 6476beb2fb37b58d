"""The systems that the PagedAttention paper compares, and the servers it ran them on: settings, no numbers of results.

Settings come from the paper (its Table 1 and section 6.1) and from the scripts that its authors published for the
artifact evaluation (github.com/sosp-ae-39/sosp-ae-astra).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.catalog import find_gpu, find_model
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import IterationLevelPolicy, Policy, RequestLevelPolicy, VllmV0Policy, VllmV1Policy
from simulator.specs import Parallelism
from simulator.step_time.base import StepTimeModel
from simulator.step_time.config import RooflineConfig, build_step_time
from workloads.workload import PS_PER_S

GIB = 1 << 30
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
    """A model on its GPUs. ``slots``: KV slots by the paper's Table 1."""

    model: str
    gpu: str
    gpus: int
    slots: int
    max_model_len: int = 2048

    def block_bytes(self, block_size: int) -> int:
        """KV bytes of a block on each GPU."""
        return block_size * find_model(self.model).kv_bytes_per_token() // self.gpus

    def swap_ps_per_block(self, block_size: int) -> int:
        """A block over PCIe one way at the data sheet's rate; the start of each copy is left out."""
        return round(self.block_bytes(block_size) / find_gpu(self.gpu).pcie_bytes_per_s * PS_PER_S)

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
LLAMA_13B = Server("llama-13b", "a100-sxm-40gb", 1, 15_700)
"""Not in Table 1: weights and KV bytes a token are those of OPT-13B."""
SERVERS = {server.model: server for server in (OPT_13B, OPT_66B, OPT_175B, LLAMA_13B)}


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
    """The paper's vLLM: paged, preemption by recompute, or by swap for requests of several sequences.

    Its scheduler of 2023 put prompts into the step of the decodes (prefill-only steps came later), which is v0's mode
    with one token budget (``mixed``); the budget holds every prompt whole, but for what the decodes take of it. That
    mode admits newcomers while others are swapped out, which the paper's scheduler did not: where an overloaded server
    swaps, v0's mode of prefill-only steps, which does not either, is the nearer one.
    """

    block_size: int = BLOCK_SIZE
    preemption_mode: Literal["auto", "recompute", "swap"] = "auto"
    mixed: bool = True
    kind: Literal["vllm"] = "vllm"

    def engine(self, server: Server) -> EngineConfig:
        policy = VllmV0Policy(
            preemption_mode=self.preemption_mode,
            swap_blocks=SWAP_SPACE_GIB * GIB // server.block_bytes(self.block_size),
            swap_ps_per_block=server.swap_ps_per_block(self.block_size),
            watermark=WATERMARK,
        )
        return _config(policy, server, MAX_NUM_SEQS, MAX_BATCHED_TOKENS, mixed=self.mixed)

    def pool(self, server: Server) -> PoolConfig:
        return PagedPool(server.slots // self.block_size, self.block_size, null_block=False)


@dataclass(frozen=True)
class VllmSharingPrefixes:
    """vLLM whose requests share a prefix's blocks. v0 has no look-up of our own: v1's prefix cache stands for it."""

    kind: Literal["vllm-sharing"] = "vllm-sharing"

    def engine(self, server: Server) -> EngineConfig:
        config = _config(VllmV1Policy(), server, MAX_NUM_SEQS, MAX_BATCHED_TOKENS, mixed=True)
        return replace(config, enable_prefix_caching=True)

    def pool(self, server: Server) -> PoolConfig:
        return PagedPool(server.slots // BLOCK_SIZE + 1, BLOCK_SIZE)


System = Orca | FasterTransformer | Vllm | VllmSharingPrefixes


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
