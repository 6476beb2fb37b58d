"""The KV cache of vLLM v0 with requests of several sequences: shared blocks, copied before they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any, cast

from simulator.allocators.beam_tables import BeamTables, draw_parents
from simulator.allocators.kv_cache import Holder
from simulator.allocators.swapping_kv import SwappingKv


class SequenceKv(SwappingKv):
    """``SwappingKv`` for groups too (paper, section 4.4): counted parallel samples, tables for the beams of a search.

    A request of n sequences shares the prompt's blocks; with their first token, each sequence takes a block of its
    own or a copy of the prompt's last, partly filled one (copy-on-write; the last to write keeps the original). Until
    then there is one table. ``saved_units`` is the sum of the sequences' tables less the blocks held. A beam search
    draws its survivors from a stream of random numbers of its own, named by ``beam_seed`` and the request's ``name``.

    Invariant (``check``): that of ``SwappingKv``; ``saved_units`` is the sum over ``groups``, the decoders of several
    sequences; ``undivided`` are those of them that still have one table (parallel samples only).
    """

    saved_units: int

    __slots__ = ("_name", "_parents", "beam_diversity", "beam_seed", "groups", "saved_units", "undivided")

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        *,
        beam_diversity: float = 0.0,
        beam_seed: int = 0,
        name: Callable[[int], str] = str,
        **settings: Any,
    ) -> None:
        super().__init__(num_gpu_blocks, block_size, max_model_len, **settings)
        self.saved_units = 0
        self.beam_diversity = beam_diversity
        self.beam_seed = beam_seed
        self._name = name
        self._parents: dict[int, Random] = {}  # by row
        self.groups: dict[int, Holder] = {}  # by row
        self.undivided: dict[int, Holder] = {}

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

    # -- growth, in the decode clock --------------------------------------------------------------------------

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        if holder.sequences == 1:
            super().join(holder, tokens, step)
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
            return super().grow(holder, step)
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
        return super().demand(step) + groups

    def serve(self, step: int) -> bool:
        if not self.groups:
            return super().serve(step)
        need = self.demand(step)
        if self.free_units - need < max(holder.sequences for holder in self.groups.values()):
            return False
        self.free_units -= need
        for holder in self.groups.values():
            self._divide(holder)
        return True

    def check(self) -> None:
        super().check()
        assert self.undivided.keys() <= self.groups.keys()
        saved = 0
        for row, holder in self.groups.items():
            if holder.beam:
                holder.extent.check()
                saved += holder.extent.saved
            elif row not in self.undivided:
                saved += self._saved_by(holder)
        assert saved == self.saved_units
