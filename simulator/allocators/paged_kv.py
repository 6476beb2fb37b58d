"""A replica's paged KV cache with real block ids, by vLLM v1's rules without prefix caching.

It answers exactly as a cache that only counts blocks; the ids are for runs that record or share them.
"""

from __future__ import annotations

from simulator.allocators.block_pool import VLLM_V1, BlockPool, FreeListPolicy
from simulator.allocators.kv_cache import Holder
from simulator.allocators.paged import blocks_for
from simulator.run_log import PoolFacts


class PagedKv:
    """``KvCache`` over a block pool. ``holder.extent`` is its block table, ``holder.held`` the table's length.

    A decoder that stores c tokens needs a block in the step that stores token c + 1 iff its blocks are full,
    and then every ``block_size`` steps: ``holder.phase`` is that step modulo the block size. Of a decoder,
    ``held`` is the length when it joined; its table grows.

    Invariant: the pool's references are the tables of the holders; a holder that is no decoder has as many
    blocks as ``held`` says.
    """

    caching = False
    ordered = False
    growth_may_admit = False
    evicted_blocks = 0
    saved_units = 0

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        watermark: float = 0.0,
        reserve_full_sequence: bool = True,
        bytes_per_token: int = 0,
        policy: FreeListPolicy = VLLM_V1,
    ) -> None:
        self.blocks = BlockPool(num_gpu_blocks, policy)
        usable = self.blocks.usable_blocks
        self.pool = PoolFacts("paged", block_size, num_gpu_blocks, usable * block_size, bytes_per_token)
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.reserve_full_sequence = reserve_full_sequence
        self._holders: dict[int, Holder] = {}  # row -> holder
        # Decoders by phase, each in the order of joining: that is the order in which they get blocks.
        self._decoders: list[dict[int, Holder]] = [{} for _ in range(block_size)]

    @property
    def free_units(self) -> int:
        return self.blocks.free_blocks

    def table(self, holder: Holder) -> list[int]:
        """The block ids that a holder holds, in logical order."""
        return list(holder.extent)

    @property
    def surely_servable_tokens(self) -> int:
        return 0

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        wanted, usable = self._blocks_of(final_tokens), self.blocks.usable_blocks
        if wanted <= usable:
            return None
        null_block = ", the null block excluded" if usable < self.pool.num_blocks else ""
        return (
            f"the request stores {final_tokens:,} tokens in the end ({prompt_tokens:,} of them its prompt): "
            f"{wanted:,} blocks of {self.block_size}; the pool has {usable:,} usable blocks{null_block}"
        )

    def hit(self, holder: Holder, known_tokens: int) -> int:
        return 0

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        kept_free = self.watermark_blocks if others_run else 0
        room = self.blocks.free_blocks - kept_free
        if self.reserve_full_sequence and self._blocks_of(known_tokens) > room:
            return False
        wanted = self._blocks_of(first_tokens)
        if wanted > room:
            return False
        holder.extent, _ = self.blocks.take(wanted)
        holder.held = wanted
        self._holders[holder.row] = holder
        return True

    def units_for(self, holder: Holder, tokens: int) -> int:
        return max(0, self._blocks_of(tokens) - holder.held)

    def extend(self, holder: Holder, tokens: int) -> bool:
        need = self.units_for(holder, tokens)
        if need > self.blocks.free_blocks:
            return False
        holder.extent.extend(self.blocks.take(need)[0])
        holder.held += need
        return True

    def store(self, holder: Holder, tokens: int) -> None:
        """Nothing to do: content is not kept."""

    def release(self, holder: Holder) -> None:
        del self._holders[holder.row]
        self.blocks.drop(holder.extent)
        holder.extent, holder.held = None, 0

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        room = holder.held * self.block_size - tokens
        if not 0 <= room < self.block_size:
            raise ValueError(
                f"request {holder.row} cannot decode: {tokens} tokens do not end in the last of its "
                f"{holder.held} blocks of {self.block_size}"
            )
        holder.phase = (step + room) % self.block_size
        self._decoders[holder.phase][holder.row] = holder

    def leave(self, holder: Holder, tokens: int) -> None:
        if len(holder.extent) != blocks_for(tokens, self.block_size):
            raise ValueError(
                f"request {holder.row} leaves with {tokens} tokens in {len(holder.extent)} blocks "
                f"of {self.block_size}: a step was not advanced, or advanced twice"
            )
        del self._decoders[holder.phase][holder.row]
        holder.held = len(holder.extent)

    def grow(self, holder: Holder, step: int) -> bool:
        if holder.phase != step % self.block_size:
            return True
        if self.blocks.free_blocks < 1:
            return False
        holder.extent.extend(self.blocks.take()[0])
        return True

    def demand(self, step: int) -> int:
        return len(self._decoders[step % self.block_size])

    def serve(self, step: int) -> bool:
        if self.demand(step) > self.blocks.free_blocks:
            return False
        self.advance(step, 1)
        return True

    def horizon(self, step: int, most: int) -> int:
        per_period = sum(map(len, self._decoders))
        if per_period == 0:
            return most
        periods, left = divmod(self.blocks.free_blocks, per_period)
        steps = periods * self.block_size
        # Fewer blocks are left than one more period takes, so the loop ends inside that period.
        while steps < most and left >= (wanted := self.demand(step + steps)):
            left -= wanted
            steps += 1
        return min(steps, most)

    def advance(self, step: int, steps: int) -> list[int]:
        if steps > self.horizon(step, steps):
            raise ValueError(f"{steps} steps from step {step} on need more blocks than are free")
        for now in range(step, step + steps):
            for holder in self._decoders[now % self.block_size].values():
                holder.extent.extend(self.blocks.take()[0])
        return [self.demand(now) for now in range(step, step + min(steps, self.block_size))]

    def check(self) -> None:
        self.blocks.check(holder.extent for holder in self._holders.values())
        decoding = {row for group in self._decoders for row in group}
        assert decoding <= self._holders.keys(), "a decoder holds nothing"
        for row, holder in self._holders.items():
            assert row in decoding or holder.held == len(holder.extent), f"request {row} holds {holder.held}"

    def _blocks_of(self, tokens: int) -> int:
        return blocks_for(min(tokens, self.max_model_len), self.block_size)
