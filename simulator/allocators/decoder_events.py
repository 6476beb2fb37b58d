"""In which steps the blocks of decoding requests change, where several KV groups hold them."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.allocators.group_rules import GroupRules
from simulator.allocators.kv_cache import Holder


class DecoderEvents:
    """The decoders of a cache by the steps in which something happens to their blocks.

    A decoder that stores s tokens before a step takes a block of a group in the steps with s a multiple of that group's
    block size; its blocks are cached when they fill; its windows give up a block when they have passed one. Each of
    these comes back every ``period`` steps, the least common multiple of the block sizes, so a decoder stands under
    these few residues of the step's number. In its first steps it is asked in any case: the chunk computed before may
    have moved its windows by more than a token.

    Invariant: ``taking`` counts, per group, each decoder once, under the residue of the steps that take a block.
    """

    def __init__(self, groups: Sequence[GroupRules], period: int, lag: int, *, caching: bool) -> None:
        self.groups = groups
        self.period = period
        self.lag = lag
        self.caching = caching
        self.taking = [[0] * rules.block_size for rules in groups]
        self.decoders: dict[int, Holder] = {}  # row -> holder
        self._due: list[dict[int, Holder]] = [{} for _ in range(period)]
        self._fresh: dict[int, Holder] = {}

    def __len__(self) -> int:
        return len(self.decoders)

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        """The holder stores ``tokens`` tokens before ``step`` and one more in every step from there on."""
        holder.phase = step - tokens
        self.decoders[holder.row] = self._fresh[holder.row] = holder
        for rules, taking in zip(self.groups, self.taking, strict=True):
            taking[holder.phase % rules.block_size] += 1
        for residue in self._residues(holder.phase):
            self._due[residue][holder.row] = holder

    def leave(self, holder: Holder) -> None:
        del self.decoders[holder.row]
        self._fresh.pop(holder.row, None)
        for rules, taking in zip(self.groups, self.taking, strict=True):
            taking[holder.phase % rules.block_size] -= 1
        for residue in self._residues(holder.phase):
            del self._due[residue][holder.row]

    def demand(self, step: int) -> int:
        """Blocks that all decoders take in a step."""
        return sum(taking[step % len(taking)] for taking in self.taking)

    def due(self, step: int) -> list[Holder]:
        """To whom something may happen in this step, in the order of running; called once a step."""
        holders = self._due[step % self.period]
        if self._fresh:
            holders = holders | self._fresh
            for row in [row for row, holder in self._fresh.items() if holder.joined_step + self.lag <= step]:
                del self._fresh[row]
        return sorted(holders.values(), key=lambda holder: holder.seq)

    def _residues(self, phase: int) -> set[int]:
        """Steps, modulo ``period``, with an event of a decoder that stores step - phase tokens before a step."""
        found: set[int] = set()
        for rules in self.groups:
            size = rules.block_size
            offsets = [0]
            if self.caching:
                offsets.append(self.lag - 1)
            if rules.window_tokens is not None:
                offsets.append(rules.window_tokens - 1 + self.lag)
            for offset in offsets:
                found.update(range((phase + offset) % size, self.period, size))
        return found
