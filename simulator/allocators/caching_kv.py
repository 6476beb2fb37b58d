"""A paged KV cache with prefix caching that names only the blocks which requests can share.

For one group that keeps every token, under vLLM v1's rules (SCHEDULERS.md 1-3). It answers as ``GroupedKv`` does, to
the last number, without touching private blocks one by one: a differential test holds the two together.
"""

from __future__ import annotations

from simulator.allocators.content import TokenContent
from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.free_content import FreeContent, PrivateRun
from simulator.allocators.kv_cache import Holder
from simulator.allocators.named_blocks import NamedBlocks
from simulator.allocators.named_table import NamedTable
from simulator.allocators.prefix_hashes import PrefixChain, PrefixHashes
from simulator.allocators.shared_content import SharedContent

ALL = 1 << 62  # of a row: every block is named


class CachingKv(CountingKv):
    """``CountingKv`` that knows, beyond how many blocks are free, what they still hold.

    A free block without content is like any other; the ``unhashed`` ones are reused first, then the oldest content
    (``FreeContent``). Before May 2026 (``blank_first`` False) they waited their turn like the others. Content is
    *private* from a row's first token on that no other row can have (``SharedContent``): only the row itself, when it
    was preempted, can hit it, and its blocks go in one piece. All other content is kept block by block.

    Decoders of private answers are brought up to date when they stop; answers that others name are cached step by
    step, in the order of the running list (then ``ordered``).

    Invariant (``check``): ``free_units`` = ``unhashed`` + the blocks of ``FreeContent``; a named block is free or has
    references, and the map of contents names exactly the named blocks. Private content exists once: a row that comes
    back and must compute a cached block again (the last one of an aligned prefix) is named from then on.
    """

    caching = True

    __slots__ = (
        "_found",
        "_free",
        "_hashes",
        "_head",
        "_named",
        "_shared",
        "_shared_answers",
        "_told",
        "blank_first",
        "evicted_blocks",
        "growth_may_admit",
        "lag",
        "ordered",
        "saved_units",
        "unhashed",
    )

    def __init__(
        self,
        num_gpu_blocks: int,
        block_size: int,
        max_model_len: int,
        content: TokenContent,
        *,
        watermark: float,
        reserve_full_sequence: bool,
        lag: int,
        bytes_per_token: int,
        null_block: bool = True,
        blank_first: bool = True,
    ) -> None:
        super().__init__(
            num_gpu_blocks,
            block_size,
            max_model_len,
            watermark=watermark,
            reserve_full_sequence=reserve_full_sequence,
            bytes_per_token=bytes_per_token,
            null_block=null_block,
        )
        self.lag = lag
        self.evicted_blocks = 0
        self.saved_units = 0
        self.blank_first = blank_first
        self.unhashed = self.free_units if blank_first else 0
        shared = SharedContent(content)
        self._shared = {row: tokens // block_size for row, tokens in shared.tokens.items() if tokens >= block_size}
        self._shared_answers = shared.answers
        self.ordered = self.growth_may_admit = bool(shared.answers)
        self._told: list[dict[int, Holder]] = [{} for _ in range(block_size)]  # decoders of shared answers, by phase
        self._free = FreeContent()
        self._named = NamedBlocks(block_size, self._free)
        if not blank_first:
            self._free.add_blank(self._named.new_name(), self.free_units)
        self._hashes = PrefixHashes(content)
        self._head: tuple[int, PrefixChain] | None = None  # who asked last: (row, its prefixes)
        # What the last look-up found, until something changes: (row, named blocks, private blocks, chain).
        self._found: tuple[int, list[int], int, PrefixChain | None] | None = None

    # -- admission -------------------------------------------------------------------------------------------

    def hit(self, holder: Holder, known_tokens: int) -> int:
        row, most = holder.row, (known_tokens - 1) // self.block_size
        shared = self._shared.get(row, 0)
        chain, blocks = None, []
        if shared:
            chain = self._chain(row)
            if most:
                blocks = self._named.leading(chain, min(shared, most))
        private = 0
        run = self._free.run(row)
        if run is not None and len(blocks) == run.start:
            private = min(run.end, most) - run.start
        self._found = (row, blocks, private, chain)
        return (len(blocks) + private) * self.block_size

    def _chain(self, row: int) -> PrefixChain:
        if self._head is None or self._head[0] != row:  # whoever stands at the head of the queue asks again and again
            self._head = (row, self._hashes.chain(row, self._shared[row] * self.block_size))
        return self._head[1]

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        if self._found is None or self._found[0] != holder.row:
            self.hit(holder, known_tokens)
        assert self._found is not None
        row, blocks, private, chain = self._found
        limit, size = self.max_model_len, self.block_size
        hits = len(blocks) + private
        # Hits that nobody holds leave the free queue too.
        unheld = private + self._named.unheld(blocks) if hits else 0
        held = -(-min(first_tokens, limit) // size)
        new = max(0, held - hits)
        need = new + unheld
        if self.reserve_full_sequence:
            need = max(need, max(0, -(-min(known_tokens, limit) // size) - hits) + unheld)
        if need + (self.watermark_blocks if others_run else 0) > self.free_units:
            return False
        self._found = None
        holder.extent = table = NamedTable(blocks, hits, self._shared.get(row, 0), chain)
        if hits:
            self._named.touch(blocks)
            self.saved_units = self._named.saved
            self.free_units -= unheld
        run = self._free.run(row)
        if run is not None:
            self._come_back(table, run, private)
        self._take(new)
        holder.held = max(held, hits)
        self._settle(table, first_tokens)
        return True

    def _come_back(self, table: NamedTable, run: PrivateRun, private: int) -> None:
        """A preempted row takes the first ``private`` blocks of its own content; at most one is left."""
        if private == run.end - run.start:
            self._free.take_run(run)
            return
        # The look-up stops one token short of an aligned prefix: its last block stays free and cached, and will be
        # computed again beside it. From here on this row has content twice, so all its blocks get names.
        assert private == run.end - run.start - 1, "a row comes back with fewer tokens than it had"
        left = self._free.single_out(run)
        self._shared[run.row] = table.shared = ALL
        self._head = None
        table.chain = self._chain(run.row)
        self._named.add(left, table.chain, run.end - 1, references=0)
        self._settle_named(table, run.end - 1)

    # -- blocks taken, filled and given back -----------------------------------------------------------------

    def _take(self, blocks: int) -> None:
        """Takes free blocks, which must be there."""
        self.free_units -= blocks
        self._reuse(blocks)

    def _reuse(self, blocks: int) -> None:
        """Blocks have been taken: first those without content, then the oldest content."""
        unhashed = self.unhashed - blocks
        if unhashed >= 0:
            self.unhashed = unhashed
            return
        self.unhashed = 0
        named, cached = self._free.pop(-unhashed)
        self.evicted_blocks += cached
        if named:
            self._named.forget(named)
        self._found = None

    def _settle(self, table: NamedTable, tokens: int) -> None:
        """Caches the blocks that the first ``tokens`` tokens fill."""
        end = tokens // self.block_size
        if end <= table.settled:
            return
        if len(table.blocks) < table.shared:
            self._settle_named(table, min(end, table.shared))
        table.settled = end

    def _settle_named(self, table: NamedTable, end: int) -> None:
        """Names the blocks before number ``end``."""
        assert table.chain is not None
        for index in range(len(table.blocks), end):
            block = self._named.new_name()
            self._named.add(block, table.chain, index, references=1)
            table.blocks.append(block)
        self._found = None

    def extend(self, holder: Holder, tokens: int) -> bool:
        blocks = self.units_for(holder, tokens)
        if blocks > self.free_units:
            return False
        self._take(blocks)
        holder.held += blocks
        self._settle(holder.extent, tokens)
        return True

    def store(self, holder: Holder, tokens: int) -> None:
        self._settle(holder.extent, tokens)

    def release(self, holder: Holder) -> None:
        table: NamedTable = holder.extent
        named = len(table.blocks)
        blank = holder.held - table.settled
        if self.blank_first:
            self.unhashed += blank
        else:
            self._free.add_blank(self._named.new_name(), blank)
        self.free_units += holder.held - named
        if table.settled > named:
            self._free.add_run(self._named.new_name(), PrivateRun(holder.row, named, table.settled))
        if named:
            self.free_units += self._named.drop(table.blocks)
            self.saved_units = self._named.saved
        self._found = None
        holder.extent, holder.held = None, 0

    # -- decoders --------------------------------------------------------------------------------------------

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        super().join(holder, tokens, step)
        if holder.row in self._shared_answers:
            self._told[holder.phase][holder.row] = holder

    def leave(self, holder: Holder, tokens: int) -> None:
        super().leave(holder, tokens)
        if holder.row in self._shared_answers:
            del self._told[holder.phase][holder.row]
        self._settle(holder.extent, tokens - self.lag)

    def grow(self, holder: Holder, step: int) -> bool:
        if holder.phase == step % self.block_size:
            if self.free_units < 1:
                return False
            self._take(1)
        if holder.row in self._shared_answers:
            self._settle(holder.extent, holder.computed + step - holder.joined_step + 1 - self.lag)
        return True

    def serve(self, step: int) -> bool:
        blocks = self.phases[step % self.block_size]
        if blocks > self.free_units:
            return False
        if blocks:
            self.free_units -= blocks
            if blocks <= self.unhashed:
                self.unhashed -= blocks
            else:
                self._reuse(blocks)
        if self.ordered:
            self._tell(step)
        return True

    def _tell(self, step: int) -> None:
        """Caches the blocks of shared answers that this step's tokens fill, in the order of the running list."""
        full = self._told[(step + 1 - self.lag) % self.block_size]
        for holder in sorted(full.values(), key=lambda holder: holder.seq):
            self._settle(holder.extent, holder.computed + step - holder.joined_step + 1 - self.lag)

    def advance(self, step: int, steps: int) -> list[int]:
        free = self.free_units
        growth = super().advance(step, steps)
        self._reuse(free - self.free_units)
        if self.ordered:
            for now in range(step, step + steps):
                self._tell(now)
        return growth

    def check(self) -> None:
        super().check()
        self._free.check()
        assert self.unhashed >= 0
        assert self.free_units == self.unhashed + self._free.blocks
        self._named.check()
        assert self.saved_units == self._named.saved
