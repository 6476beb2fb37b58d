"""The KV cache of vLLM v0: counted blocks, a watermark, a CPU pool, and requests of several sequences."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum
from random import Random
from typing import cast

from simulator.allocators.beam_tables import BeamTables, draw_parents
from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.kv_cache import Holder


class Room(IntEnum):
    """vLLM v0's answer to a waiting prompt (``AllocStatus``)."""

    OK = 0
    LATER = 1
    NEVER = 2


class SequenceKv(CountingKv):
    """Block counts under vLLM v0's rules (SCHEDULERS.md 9.1; ``vllm/core/block_manager.py`` of 2023-24).

    A prompt is admitted while the watermark stays free. A request may decode only while at least one block a
    sequence is free, whether it needs one or not (``can_append_slots``): so the last free block is never taken for
    granted. ``cpu_free`` counts the blocks of the CPU's pool.

    All decoders of a replica stand still during a step that only prefills. ``paused`` counts these steps: phases
    are those of the decode clock, step number minus ``paused``.

    A request of n sequences shares the prompt's blocks; with their first token, each sequence takes a block of its
    own or a copy of the prompt's last, partly filled one (copy-on-write; the last to write keeps the original). Until
    then there is one table. ``saved_units`` is the sum of the sequences' tables less the blocks held.

    Invariant (``check``): that of ``CountingKv``, and 0 <= ``cpu_free`` <= ``cpu_blocks``.
    """

    saved_units: int  # type: ignore[misc]

    __slots__ = (
        "_name",
        "_parents",
        "beam_diversity",
        "beam_seed",
        "chunked",
        "cpu_blocks",
        "cpu_free",
        "groups",
        "paused",
        "saved_units",
        "undivided",
    )

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        *,
        watermark: float = 0.01,
        swap_blocks: int = 0,
        chunked: bool = False,
        beam_diversity: float = 0.0,
        beam_seed: int = 0,
        name: Callable[[int], str] = str,
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
        self.saved_units = 0
        self.beam_diversity = beam_diversity
        self.beam_seed = beam_seed
        self._name = name  # of a row: a beam search draws from a stream of its own
        self._parents: dict[int, Random] = {}
        self.groups: dict[int, Holder] = {}  # decoders of several sequences, by row
        self.undivided: dict[int, Holder] = {}  # of these, parallel samples that still share all blocks

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

    def group_unservable(self, prompt_tokens: int, final_tokens: int, sequences: int) -> str | None:
        """The same for a request of several sequences: swapped out at its end, it must still be swapped in."""
        size, shared = self.block_size, prompt_tokens // self.block_size
        wanted = shared + sequences * (self.blocks(min(final_tokens, self.max_model_len)) - shared)
        spare = self.watermark_blocks + sequences
        if wanted + spare > self.usable_blocks:
            return (
                f"{sequences} sequences need {wanted} KV blocks of {size} tokens at their end and {spare} to spare "
                f"(watermark and growth), the pool has {self.usable_blocks}"
            )
        return None

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

    # -- the CPU's pool ---------------------------------------------------------------------------------------

    def can_swap_out(self, holder: Holder, tokens: int) -> bool:
        """Whether the CPU's pool takes the blocks of a decoder that stores ``tokens`` tokens."""
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
        """The coming step decodes nobody."""
        self.paused += 1

    def can_grow(self, holder: Holder) -> bool:
        """vLLM's simple test: a free block for each sequence, needed or not."""
        return self.free_units >= holder.sequences

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        if holder.sequences == 1:
            super().join(holder, tokens, step - self.paused)
            return
        self.groups[holder.row] = holder
        if holder.beam:
            if holder.extent is None:
                holder.extent = BeamTables(holder.sequences, tokens, self.block_size)
                self._parents[holder.row] = Random(f"beam parents {self.beam_seed} {self._name(holder.row)}")
            self.saved_units += holder.extent.saved
            return
        holder.phase = phase = (step - self.paused - tokens) % self.block_size
        self.phases[phase] += holder.sequences
        self.decoders += holder.sequences
        if tokens > holder.prompt_tokens:
            self.saved_units += self._saved_by(holder)
        else:
            self.undivided[holder.row] = holder

    def leave(self, holder: Holder, tokens: int) -> None:
        if holder.sequences == 1:
            super().leave(holder, tokens)
            return
        holder.held = self.held(holder, tokens)
        del self.groups[holder.row]
        if holder.beam:
            self.saved_units -= holder.extent.saved
            return
        self.phases[holder.phase] -= holder.sequences
        self.decoders -= holder.sequences
        if self.undivided.pop(holder.row, None) is None:
            self.saved_units -= self._saved_by(holder)

    def release(self, holder: Holder) -> None:
        super().release(holder)
        if holder.extent is not None:
            holder.extent = None
            del self._parents[holder.row]

    def held(self, holder: Holder, tokens: int) -> int:
        """Blocks that a decoder with ``tokens`` stored tokens a sequence holds, a shared one counted once.

        Parallel samples share the full blocks of the prompt: floor(P/B) + n (ceil(tokens/B) - floor(P/B)).
        """
        if holder.extent is not None:
            return cast(BeamTables, holder.extent).held
        if holder.sequences == 1 or tokens <= holder.prompt_tokens:
            return self.blocks(tokens)
        shared = holder.prompt_tokens // self.block_size
        return shared + holder.sequences * (self.blocks(tokens) - shared)

    def _saved_by(self, holder: Holder) -> int:
        return (holder.sequences - 1) * (holder.prompt_tokens // self.block_size)

    def _group_need(self, holder: Holder, step: int) -> int:
        """Blocks that a group takes in a step besides what its phase says (a beam search has no phase)."""
        if holder.beam:
            return cast(BeamTables, holder.extent).need()
        if holder.row in self.undivided and holder.prompt_tokens % self.block_size:
            return holder.sequences - 1  # the prompt's last block is copied by all but the last to write
        return 0

    def _divide(self, holder: Holder) -> None:
        """The group has stored a token a sequence."""
        if holder.beam:
            tables = cast(BeamTables, holder.extent)
            self.saved_units -= tables.saved
            tables.append()
            self.saved_units += tables.saved
        elif self.undivided.pop(holder.row, None) is not None:
            self.saved_units += self._saved_by(holder)

    def fork_beams(self, skipped: Collection[int]) -> None:
        """A step has run: each beam search but those of ``skipped`` rows goes on from the beams that survive."""
        for row, holder in self.groups.items():
            if holder.beam and row not in skipped and holder.extent.parted:
                tables = cast(BeamTables, holder.extent)
                self.saved_units -= tables.saved
                parents = draw_parents(holder.sequences, self.beam_diversity, self._parents[row])
                self.free_units += tables.fork(parents)
                self.saved_units += tables.saved

    def grow(self, holder: Holder, step: int) -> bool:
        """Serves a decoder for which ``can_grow`` holds."""
        if holder.sequences == 1:
            return super().grow(holder, step - self.paused)
        need = self._group_need(holder, step)
        if not holder.beam and holder.phase == (step - self.paused) % self.block_size:
            need += holder.sequences
        if need > self.free_units:
            return False
        self.free_units -= need
        self._divide(holder)
        return True

    def demand(self, step: int) -> int:
        groups = sum(self._group_need(holder, step) for holder in self.groups.values())
        return super().demand(step - self.paused) + groups

    def serve(self, step: int) -> bool:
        """Serves all decoders where each is sure to pass ``can_grow``, whatever their order."""
        need = self.phases[(step - self.paused) % self.block_size]
        if not self.groups:
            if self.decoders and self.free_units <= need:
                return False
            self.free_units -= need
            return True
        need = self.demand(step)
        if self.free_units - need < max(holder.sequences for holder in self.groups.values()):
            return False
        self.free_units -= need
        for holder in self.groups.values():
            self._divide(holder)
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
        assert self.undivided.keys() <= self.groups.keys()
        saved = 0
        for row, holder in self.groups.items():
            if holder.beam:
                holder.extent.check()
                saved += holder.extent.saved
            elif row not in self.undivided:
                saved += self._saved_by(holder)
        assert saved == self.saved_units
