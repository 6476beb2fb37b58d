"""A paged KV cache that counts blocks and names none.

Without caching or sharing nothing depends on which block a token lies in, so numbers suffice. ``PagedKv`` is the
twin with real block ids and tables; a differential test holds the two together.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import Holder
from simulator.run_log import PoolFacts


class CountingKv:
    """Block counts under vLLM v1's rules (SCHEDULERS.md 1 and 3).

    A decoder with c stored tokens needs a block in the step that stores token c + 1 exactly when c is a multiple of
    the block size. So decoders fall into as many *phases* as a block has slots: phase = number of the step that
    needs a block, modulo the block size; ``phases`` counts decoders by phase.

    Invariant (``check``): 0 <= ``free_units`` <= usable blocks; no phase count is negative.
    """

    caching = False
    ordered = False
    growth_may_admit = False
    evicted_blocks = 0
    saved_units = 0

    __slots__ = (
        "block_size",
        "decoders",
        "free_units",
        "max_model_len",
        "phases",
        "pool",
        "reserve_full_sequence",
        "usable_blocks",
        "watermark_blocks",
    )

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        *,
        watermark: float = 0.0,
        reserve_full_sequence: bool = True,
        bytes_per_token: int = 0,
        null_block: bool = True,
    ) -> None:
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.usable_blocks = num_gpu_blocks - null_block  # block 0 is vLLM's null block
        self.free_units = self.usable_blocks
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.reserve_full_sequence = reserve_full_sequence
        self.phases = [0] * block_size
        self.decoders = 0
        self.pool = PoolFacts("paged", block_size, num_gpu_blocks, self.usable_blocks * block_size, bytes_per_token)

    @property
    def surely_servable_tokens(self) -> int:
        return self.usable_blocks * self.block_size

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        blocks = -(-min(final_tokens, self.max_model_len) // self.block_size)
        if blocks <= self.usable_blocks:
            return None
        return (
            f"needs {blocks} KV blocks of {self.block_size} tokens at its end ({final_tokens} tokens), "
            f"the pool has {self.usable_blocks}"
        )

    def hit(self, holder: Holder, known_tokens: int) -> int:
        return 0

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        limit, size = self.max_model_len, self.block_size
        blocks = -(-min(first_tokens, limit) // size)
        check = -(-min(known_tokens, limit) // size) if self.reserve_full_sequence else blocks
        if others_run:
            check += self.watermark_blocks
            if blocks + self.watermark_blocks > check:
                check = blocks + self.watermark_blocks
        if check > self.free_units:
            return False
        self.free_units -= blocks
        holder.held = blocks
        return True

    def units_for(self, holder: Holder, tokens: int) -> int:
        blocks = -(-min(tokens, self.max_model_len) // self.block_size) - holder.held
        return blocks if blocks > 0 else 0

    def extend(self, holder: Holder, tokens: int) -> bool:
        blocks = self.units_for(holder, tokens)
        if blocks > self.free_units:
            return False
        self.free_units -= blocks
        holder.held += blocks
        return True

    def store(self, holder: Holder, tokens: int) -> None:
        """Nothing to do: content is not kept."""

    def release(self, holder: Holder) -> None:
        self.free_units += holder.held
        holder.held = 0

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        holder.phase = phase = (step - tokens) % self.block_size
        self.phases[phase] += 1
        self.decoders += 1

    def leave(self, holder: Holder, tokens: int) -> None:
        self.phases[holder.phase] -= 1
        self.decoders -= 1
        holder.held = -(-tokens // self.block_size)

    def grow(self, holder: Holder, step: int) -> bool:
        if holder.phase != step % self.block_size:
            return True
        if self.free_units < 1:
            return False
        self.free_units -= 1
        return True

    def demand(self, step: int) -> int:
        return self.phases[step % self.block_size]

    def serve(self, step: int) -> bool:
        free = self.free_units - self.phases[step % self.block_size]
        if free < 0:
            return False
        self.free_units = free
        return True

    def horizon(self, step: int, most: int) -> int:
        decoders, free, size = self.decoders, self.free_units, self.block_size
        if not decoders:
            return most
        rounds = free // decoders  # in block_size steps every decoder needs one block
        steps = rounds * size
        if steps >= most:
            return most
        free -= rounds * decoders
        phases = self.phases
        while steps < most:  # ends within a round, which would need more than is left
            free -= phases[(step + steps) % size]
            if free < 0:
                return steps
            steps += 1
        return most

    def advance(self, step: int, steps: int) -> list[int]:
        size, phases = self.block_size, self.phases
        at = step % size
        if at + steps <= size:
            growth = phases[at : at + steps]
            self.free_units -= sum(growth)
            return growth
        growth = phases[at:] + phases[:at]  # one round
        rounds, rest = divmod(steps, size)
        self.free_units -= rounds * self.decoders + sum(growth[:rest])
        return growth if rounds else growth[:rest]

    def check(self) -> None:
        assert 0 <= self.free_units <= self.usable_blocks
        assert min(self.phases) >= 0
        assert sum(self.phases) == self.decoders
