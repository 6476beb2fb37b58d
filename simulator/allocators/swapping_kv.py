"""The KV cache of vLLM v0 for requests of one sequence: counted blocks, a watermark and a pool in the CPU's memory."""

from __future__ import annotations

from enum import IntEnum

from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.kv_cache import Holder


class Room(IntEnum):
    """vLLM v0's answer to a waiting prompt (``AllocStatus``)."""

    OK = 0
    LATER = 1
    NEVER = 2


class SwappingKv(CountingKv):
    """Block counts under vLLM v0's rules (SCHEDULERS.md 9.1; ``vllm/core/block_manager.py`` of 2023-24).

    A prompt is admitted while the watermark stays free. A request may decode only while at least one block a
    sequence is free, whether it needs one or not (``can_append_slots``): so the last free block is never taken for
    granted. ``cpu_free`` counts the blocks of the CPU's pool.

    All decoders of a replica stand still during a step that only prefills. ``paused`` counts these steps: phases
    are those of the decode clock, step number minus ``paused``.

    Invariant (``check``): that of ``CountingKv``, and 0 <= ``cpu_free`` <= ``cpu_blocks``.
    """

    __slots__ = ("chunked", "cpu_blocks", "cpu_free", "paused")

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        *,
        watermark: float = 0.01,
        swap_blocks: int = 0,
        chunked: bool = False,
        bytes_per_token: int = 0,
        null_block: bool = False,
    ) -> None:
        super().__init__(
            num_gpu_blocks,
            block_size,
            max_model_len,
            watermark=watermark,
            bytes_per_token=bytes_per_token,
            null_block=null_block,
        )
        self.cpu_blocks = self.cpu_free = swap_blocks
        self.chunked = chunked
        self.paused = 0

    # -- what can be served at all ----------------------------------------------------------------------------

    @property
    def surely_servable_tokens(self) -> int:
        return 0

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        """Why a request might never end: preempted at its end, it must still pass the watermark (or be swapped in).

        A chunked prefill needs a free block in every step besides its own.
        """
        wanted, size = self.blocks(min(final_tokens, self.max_model_len)), self.block_size
        spare = max(self.watermark_blocks, 1 if self.chunked else 0)
        if self.cpu_blocks:
            spare = self.watermark_blocks + 1
        if wanted + spare <= self.usable_blocks:
            return None
        return (
            f"needs {wanted} KV blocks of {size} tokens at its end ({final_tokens} tokens) and {spare} to spare "
            f"(watermark and growth), the pool has {self.usable_blocks}"
        )

    # -- admission --------------------------------------------------------------------------------------------

    def blocks(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens of one sequence."""
        return -(-tokens // self.block_size)

    def room(self, tokens: int) -> Room:
        """Whether a prompt of ``tokens`` tokens can be admitted now, later or never."""
        wanted = self.blocks(tokens) + self.watermark_blocks
        if wanted > self.usable_blocks:
            return Room.NEVER
        return Room.OK if wanted <= self.free_units else Room.LATER

    def allocate(self, holder: Holder, tokens: int) -> None:
        """Gives a waiting request the blocks of its whole prompt; ``room`` said OK."""
        holder.held = blocks = self.blocks(tokens)
        self.free_units -= blocks

    def held(self, holder: Holder, tokens: int) -> int:
        """Blocks that a decoder with ``tokens`` stored tokens a sequence holds."""
        return self.blocks(tokens)

    # -- the CPU's pool ---------------------------------------------------------------------------------------

    def can_swap_out(self, holder: Holder, tokens: int) -> bool:
        """Whether the CPU's pool takes the blocks of a decoder that stores ``tokens`` tokens a sequence."""
        return self.held(holder, tokens) <= self.cpu_free

    def swap_out(self, holder: Holder) -> None:
        """Moves the blocks of a request, which no longer decodes, to the CPU."""
        self.cpu_free -= holder.held
        self.free_units += holder.held

    def can_swap_in(self, holder: Holder) -> bool:
        """Whether the request's blocks, and one more a sequence, fit above the watermark."""
        return holder.held + holder.sequences + self.watermark_blocks <= self.free_units

    def swap_in(self, holder: Holder) -> None:
        """Moves the blocks back."""
        self.cpu_free += holder.held
        self.free_units -= holder.held

    # -- growth, in the decode clock --------------------------------------------------------------------------

    def pause(self) -> None:
        """A step decoded nobody."""
        self.paused += 1

    def can_grow(self, holder: Holder) -> bool:
        """vLLM's simple test: a free block for each sequence, needed or not."""
        return self.free_units >= holder.sequences

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        super().join(holder, tokens, step - self.paused)

    def grow(self, holder: Holder, step: int) -> bool:
        """Serves a decoder for which ``can_grow`` holds."""
        return super().grow(holder, step - self.paused)

    def demand(self, step: int) -> int:
        return super().demand(step - self.paused)

    def serve(self, step: int) -> bool:
        """Serves all decoders where each is sure to pass ``can_grow``, whatever their order."""
        need = self.phases[(step - self.paused) % self.block_size]
        if self.decoders and self.free_units <= need:
            return False
        self.free_units -= need
        return True

    def horizon(self, step: int, most: int) -> int:
        if not self.decoders:
            return most
        self.free_units -= 1  # one block must stay free, or the next pass asks one by one
        steps = super().horizon(step - self.paused, most)
        self.free_units += 1
        return steps

    def advance(self, step: int, steps: int) -> list[int]:
        return super().advance(step - self.paused, steps)

    def check(self) -> None:
        super().check()
        assert 0 <= self.cpu_free <= self.cpu_blocks
