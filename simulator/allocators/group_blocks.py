"""The blocks of several KV groups in one pool: taken, given up, cached, let go."""

from __future__ import annotations

from simulator.allocators.block_pool import BlockPool, FreeListPolicy
from simulator.allocators.cached_blocks import CachedBlocks
from simulator.allocators.group_rules import GroupRules
from simulator.allocators.group_table import GroupTable
from simulator.allocators.kv_cache import Holder
from simulator.allocators.prefix_lookup import NULL_BLOCK


class GroupBlocks:
    """What ``GroupedKv`` does to blocks, once it is decided. ``holder.extent`` is a ``GroupTable``.

    Invariant (``check``): the pool's references are the tables of the holders; the map of cached content and the
    hashes on the blocks say the same; no block beyond ``settled`` carries a hash.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        groups: tuple[GroupRules, ...],
        alignment_tokens: int,
        max_model_len: int,
        policy: FreeListPolicy,
    ) -> None:
        self.groups = groups
        self.alignment_tokens = alignment_tokens
        self.max_model_len = max_model_len
        self.blocks = BlockPool(num_gpu_blocks, policy)
        self.evicted_blocks = 0
        self._cached = CachedBlocks()
        self._references = 0  # non-null table entries, all tables together
        self._holders: dict[int, Holder] = {}  # row -> holder

    @property
    def saved_units(self) -> int:
        return self._references - (self.blocks.usable_blocks - self.blocks.free_blocks)

    def _pass_out(self, holder: Holder, done_tokens: int) -> None:
        """Gives up the blocks that the windows have passed."""
        extent: GroupTable = holder.extent
        for group, rules in enumerate(self.groups):
            passed = extent.pass_out(group, rules.skipped_blocks(done_tokens))
            if passed:
                self.blocks.drop(passed)
                self._references -= len(passed)
                extent.held -= len(passed)

    def _pop(self, holder: Holder, tokens: int) -> None:
        """Takes the blocks that ``tokens`` tokens lack; they are there."""
        extent: GroupTable = holder.extent
        tokens = min(tokens, self.max_model_len)
        for rules, table in zip(self.groups, extent.blocks, strict=True):
            need = rules.blocks(tokens) - len(table)
            if need > 0:
                taken, evicted = self.blocks.take(need)
                table.extend(taken)
                self._references += need
                self.evicted_blocks += len(evicted)
                for block, content in evicted:
                    self._cached.remove(content, block)
                extent.held += need
        holder.held = extent.held

    def _insert(self, holder: Holder, tokens: int) -> None:
        """Caches the blocks that the first ``tokens`` tokens fill."""
        extent: GroupTable = holder.extent
        if extent.chain is None:
            return
        if len(self.groups) > 1:
            tokens -= tokens % self.alignment_tokens
        for group, rules in enumerate(self.groups):
            start, end = extent.settled[group], tokens // rules.block_size
            if end <= start:
                continue
            for index in rules.kept(start, end, holder.prompt_tokens, extent.junction_tokens):
                block = extent.blocks[group][index]
                if block != NULL_BLOCK:
                    content = (group, extent.chain.hash((index + 1) * rules.block_size))
                    self.blocks.stamp(block, content)
                    self._cached.add(content, block)
            extent.settled[group] = end

    def _drop(self, holder: Holder) -> None:
        """Gives back all that a holder points at, group by group."""
        extent: GroupTable = holder.extent
        for group in range(len(self.groups)):
            held = extent.real(group)
            self.blocks.drop(held)
            self._references -= len(held)
        del self._holders[holder.row]
        holder.extent, holder.held = None, 0

    def check(self) -> None:
        tables: list[list[int]] = []
        for row, holder in self._holders.items():
            extent: GroupTable = holder.extent
            real = [extent.real(group) for group in range(len(self.groups))]
            tables.append([block for of_group in real for block in of_group])
            assert extent.held == len(tables[-1]), f"request {row} holds {extent.held}"
            for rules, table, of_group, settled in zip(self.groups, extent.blocks, real, extent.settled, strict=True):
                assert rules.window_tokens is not None or of_group == table, f"a hole in the table of {row}"
                assert table[len(table) - len(of_group) :] == of_group, f"a hole amid the table of {row}"
                assert settled <= len(table)
                beyond = [self.blocks.hash_of[block] for block in table[settled:]]
                assert not any(beyond), f"request {row} has cached blocks that are not full"
        self.blocks.check(tables)
        self._cached.check(self.blocks.hash_of)
        assert self._references == sum(map(len, tables))
        assert self.saved_units >= 0
