"""TensorRT-LLM's block reuse: a paged cache whose prompts' blocks can be found again by content."""

from __future__ import annotations

from simulator.allocators.caching_kv import CachingKv
from simulator.allocators.kv_cache import Holder
from simulator.allocators.prefix_hashes import PrefixHash


class ReusingKv(CachingKv):
    """``CachingKv`` that also tells a scheduler which new blocks are in the making.

    Whole blocks are reused, and the order in which free ones lose their content is vLLM's: TensorRT-LLM's own order
    (by priority, then by last use) and its copies of partly matching blocks are not modelled.
    """

    __slots__ = ()

    def hits_in_use(self, holder: Holder, known_tokens: int) -> int:
        """Blocks of a waiting request's hit that others hold now: they cost nothing."""
        self.hit(holder, known_tokens)
        assert self._found is not None
        blocks = self._found[1]
        return len(blocks) - self._named.unheld(blocks)

    def new_block(self, holder: Holder, cached_tokens: int, known_tokens: int) -> PrefixHash | None:
        """Names the first whole block behind the cached ones; None where there is none, or nobody else can have it."""
        end = (cached_tokens // self.block_size + 1) * self.block_size
        if end > min(known_tokens, self._shared.get(holder.row, 0) * self.block_size):
            return None
        return self._hashes.chain(holder.row).hash(end)
