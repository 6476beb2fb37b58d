"""A replica's paged KV cache with prefix caching and several KV groups, by vLLM v1's rules, on real block ids.

SCHEDULERS.md 1, 2, 3 (B4) and 8. Plain and exact; where no order can matter, faster caches answer the same.
"""

from __future__ import annotations

from math import lcm

from simulator.allocators.block_pool import FreeListPolicy
from simulator.allocators.content import TokenContent
from simulator.allocators.decoder_events import DecoderEvents
from simulator.allocators.group_blocks import GroupBlocks
from simulator.allocators.group_rules import GroupRules
from simulator.allocators.group_shape import KvGroupShape, check_shapes
from simulator.allocators.group_table import GroupTable
from simulator.allocators.kv_cache import Holder
from simulator.allocators.prefix_hashes import PrefixHashes
from simulator.allocators.prefix_lookup import NULL_BLOCK, Found, PrefixLookup
from simulator.run_log import PoolFacts


class GroupedKv(GroupBlocks):
    """``KvCache`` over one block pool that all groups share.

    A block is a block of whichever group took it, and holds that group's ``block_size`` tokens of that group's
    layers. So "slots" (``pool.total_slots``) are blocks times the first group's block size: they measure the pool,
    not how many tokens fit.

    Blocks are cached when a pass schedules the tokens that fill them. With asynchronous scheduling (``lag`` 1) the
    newest token of a decoder is not known yet when the next step is scheduled, so blocks are cached a step later, or
    when the scheduler tells that tokens have become known (``store``).

    A window group gives up blocks that its window has passed before it asks for new ones; as in vLLM these stay given
    up when the asking then fails.
    """

    ordered = True

    def __init__(
        self,
        num_gpu_blocks: int,
        groups: tuple[KvGroupShape, ...],
        max_model_len: int,
        content: TokenContent,
        *,
        caching: bool,
        retention_interval: int | None,
        watermark: float,
        reserve_full_sequence: bool,
        batched_tokens: int,
        lag: int,
        bytes_per_token: int,
        policy: FreeListPolicy,
    ) -> None:
        sizes = [shape.block_size for shape in groups]
        alignment_tokens = lcm(*sizes)
        check_shapes(groups, alignment_tokens, retention_interval, caching=caching)
        rules = tuple(
            GroupRules.of(shape, alignment_tokens, retention_interval, max_model_len, batched_tokens * (1 + lag))
            for shape in groups
        )
        super().__init__(num_gpu_blocks, rules, alignment_tokens, max_model_len, policy)
        self.caching = caching
        self.lag = lag
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.reserve_full_sequence = reserve_full_sequence
        self.windowed = any(shape.window_tokens is not None for shape in groups)
        self.growth_may_admit = caching or self.windowed
        usable = self.blocks.usable_blocks
        self.pool = PoolFacts("paged", sizes[0], num_gpu_blocks, usable * sizes[0], bytes_per_token)
        self._hashes = PrefixHashes(content)
        self._lookup = PrefixLookup(self.groups, self._cached)
        self._found: tuple[int, Found] | None = None  # (row, what it found), while nothing has changed since
        self._decoders = DecoderEvents(self.groups, self.alignment_tokens, lag, caching=caching)

    # -- what it is asked ------------------------------------------------------------------------------------

    @property
    def free_units(self) -> int:
        return self.blocks.free_blocks

    @property
    def surely_servable_tokens(self) -> int:
        """Exact for one group that keeps all; else each request must be asked."""
        if len(self.groups) > 1 or self.windowed:
            return 0
        return self.blocks.usable_blocks * self.groups[0].block_size

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        tokens = min(final_tokens, self.max_model_len)
        needs = [rules.admission_need(tokens) for rules in self.groups]
        if sum(needs) <= self.blocks.usable_blocks:
            return None
        parts = "" if len(needs) == 1 else f" ({' + '.join(map(str, needs))} in its {len(needs)} KV groups)"
        return (
            f"needs {sum(needs)} KV blocks{parts} at its end ({final_tokens} tokens), "
            f"the pool has {self.blocks.usable_blocks}"
        )

    def table(self, holder: Holder, group: int = 0) -> list[int]:
        """The block ids that a holder has in a group, null ones included."""
        extent: GroupTable = holder.extent
        return list(extent.blocks[group])

    # -- admission -------------------------------------------------------------------------------------------

    def hit(self, holder: Holder, known_tokens: int) -> int:
        found = self._lookup.nothing()
        if self.caching and known_tokens > 1:
            # The last token is computed in any case: its logits are wanted.
            found = self._lookup.find(self._hashes.chain(holder.row), known_tokens - 1)
        self._found = (holder.row, found)
        return found.tokens

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        if self._found is None or self._found[0] != holder.row:
            self.hit(holder, known_tokens)
        assert self._found is not None
        found = self._found[1]
        room = self.free_units - (self.watermark_blocks if others_run else 0)
        if self.reserve_full_sequence and self._admission_need(found, known_tokens, whole=True) > room:
            return False
        if self._admission_need(found, first_tokens, whole=False) > room:
            return False
        self._found = None
        tables: list[list[int]] = []
        for rules, hits in zip(self.groups, found.blocks, strict=True):
            skipped = rules.skipped_blocks(found.tokens)
            kept = hits[skipped:]
            touched = [block for block in kept if block != NULL_BLOCK]
            self.blocks.touch(touched)
            self._references += len(touched)
            tables.append([NULL_BLOCK] * skipped + kept)
        chain = self._hashes.chain(holder.row) if self.caching else None
        holder.extent = GroupTable(tables, chain, found.junction_tokens)
        self._holders[holder.row] = holder
        self._pop(holder, first_tokens)
        self._insert(holder, first_tokens)
        return True

    def _admission_need(self, found: Found, tokens: int, whole: bool) -> int:
        """Blocks that leave the free queue: new ones, and hits that nobody holds."""
        need = 0
        tokens = min(tokens, self.max_model_len)
        for rules, hits in zip(self.groups, found.blocks, strict=True):
            skipped = rules.skipped_blocks(found.tokens)
            wanted = rules.admission_need(tokens) if whole else rules.blocks(tokens)
            need += max(0, wanted - max(skipped, len(hits)))
            need += sum(block != NULL_BLOCK and not self.blocks.ref_count[block] for block in hits[skipped:])
        return need

    # -- running requests ------------------------------------------------------------------------------------

    def units_for(self, holder: Holder, tokens: int) -> int:
        """At most so many; what a window gives up first is not counted against it."""
        extent: GroupTable = holder.extent
        tokens = min(tokens, self.max_model_len)
        pairs = zip(self.groups, extent.blocks, strict=True)
        return sum(max(0, rules.blocks(tokens) - len(table)) for rules, table in pairs)

    def extend(self, holder: Holder, tokens: int) -> bool:
        return self._make_room(holder, holder.computed - holder.in_flight, tokens, tokens)

    def _make_room(self, holder: Holder, done_tokens: int, tokens: int, known_tokens: int) -> bool:
        """Room for ``tokens`` tokens, of which the first ``known_tokens`` have names; ``done_tokens`` are computed."""
        self._found = None
        if self.windowed:
            self._pass_out(holder, done_tokens)
        if self.units_for(holder, tokens) > self.free_units:
            return False
        self._pop(holder, tokens)
        self._insert(holder, known_tokens)
        return True

    def store(self, holder: Holder, tokens: int) -> None:
        self._found = None
        self._insert(holder, tokens)

    def release(self, holder: Holder) -> None:
        self._found = None
        self._drop(holder)

    # -- decoders --------------------------------------------------------------------------------------------

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        self._decoders.join(holder, tokens, step)

    def leave(self, holder: Holder, tokens: int) -> None:
        extent: GroupTable = holder.extent
        for rules, table in zip(self.groups, extent.blocks, strict=True):
            if len(table) != rules.blocks(tokens):
                raise ValueError(
                    f"request {holder.row} leaves with {tokens} tokens in {len(table)} blocks of {rules.block_size}: "
                    "a step was not served, or served twice"
                )
        self._decoders.leave(holder)

    def grow(self, holder: Holder, step: int) -> bool:
        stored = holder.computed + step - holder.joined_step
        in_flight = 0
        if self.lag:
            in_flight = holder.in_flight if step == holder.joined_step else self.lag
        return self._make_room(holder, stored - in_flight, stored + 1, stored + 1 - self.lag)

    def demand(self, step: int) -> int:
        """Blocks that windows give up in this step are not counted against it."""
        return self._decoders.demand(step)

    def serve(self, step: int) -> bool:
        if self._decoders.demand(step) > self.blocks.free_blocks:
            return False
        for holder in self._decoders.due(step):
            self.grow(holder, step)
        return True

    def horizon(self, step: int, most: int) -> int:
        """Exact for one group that keeps all; else careful, and a block size at most: growth has no period then."""
        if not self._decoders:
            return most
        if self.windowed and self.saved_units and self._windows_share():
            return 0  # what sharing saves may change in the next step
        free, size = self.free_units, self.pool.block_size
        periodic = len(self.groups) == 1 and not self.windowed
        steps = free // len(self._decoders) * size if periodic else 0
        most = min(most, steps + size)
        free -= steps // size * len(self._decoders)
        while steps < most:
            free -= self._decoders.demand(step + steps)
            if free < 0:
                return steps
            steps += 1
        return most

    def _windows_share(self) -> bool:
        """Whether a window, which will move on, holds a block that somebody else holds too."""
        windows = [group for group, rules in enumerate(self.groups) if rules.window_tokens is not None]
        return any(
            self.blocks.ref_count[block] > 1
            for holder in self._decoders.decoders.values()
            for group in windows
            for block in holder.extent.real(group)
        )

    def advance(self, step: int, steps: int) -> list[int]:
        """Serves them one by one; the number of blocks that each took, less what its windows gave up."""
        taken = []
        for now in range(step, step + steps):
            free = self.free_units
            if not self.serve(now):
                raise ValueError(f"{steps} steps from step {step} on need more blocks than are free")
            taken.append(free - self.free_units)
        if steps > self.pool.block_size and (len(self.groups) > 1 or self.windowed):
            raise ValueError(f"{steps} steps at once: with windows or several groups growth has no period to report")
        return taken[: self.pool.block_size]

    def check(self) -> None:
        super().check()
        assert self._decoders.decoders.keys() <= self._holders.keys(), "a decoder holds nothing"
