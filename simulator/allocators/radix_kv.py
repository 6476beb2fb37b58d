"""SGLang's KV cache: a pool of pages, of which a radix tree owns those that can be shared."""

from __future__ import annotations

from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import Holder
from simulator.allocators.radix_tree import Node, RadixTree
from simulator.allocators.sglang_kv import SglangKv
from simulator.allocators.token_spans import Spans, merged


class Lease:
    """What a request uses of the tree: its first ``tokens`` tokens, down to ``node``; ``locked`` once admitted."""

    __slots__ = ("locked", "node", "spans", "tokens")

    def __init__(self, spans: Spans) -> None:
        self.spans = spans  # all tokens that the request will ever have
        self.node: Node | None = None
        self.tokens = 0
        self.locked = False


class RadixKv(SglangKv):
    """Pages that the tree owns (locked by users, or evictable), pages private to a request, and free ones.

    ``free_units`` are the free pages and the evictable ones: whoever needs a page takes it from either. A holder's
    ``extent`` is its ``Lease``, ``held`` its private pages. What it computes becomes the tree's with ``store``: after
    each prefill or chunk, and at its end; of what others stored meanwhile its own copy is freed.

    When it decodes, the server makes a page free for every decoder, whether it needs one or not: so some leaves are
    evicted early. Evictions only depend on how much must be free, so those of k steps are those of k single steps.

    Invariant (``check``): locked + evictable + private + free pages = pool.
    """

    caching = True

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        max_model_len: int,
        content: TokenContent,
        *,
        spare_tokens: int,
        bytes_per_token: int = 0,
    ) -> None:
        super().__init__(
            num_pages, page_size, max_model_len, spare_tokens=spare_tokens, bytes_per_token=bytes_per_token
        )
        self.tree = RadixTree(page_size)
        self.private_pages = 0
        self.evicted_blocks = 0
        self.saved_units = 0
        self._content = content
        self._leased_pages = 0  # sum over admitted holders

    # -- the tree's part --------------------------------------------------------------------------------------

    def match(self, holder: Holder, most_tokens: int) -> int:
        """How many of a waiting request's first tokens are cached; they count as accessed."""
        lease = holder.extent
        if lease is None:
            lease = holder.extent = Lease(self.spans(holder))
        lease.tokens, lease.node = self.tree.match(lease.spans, most_tokens)
        return int(lease.tokens)

    def spans(self, holder: Holder) -> Spans:
        """The tokens of a request, prompt and answer."""
        return merged(self._content.segments(holder.row))

    def hit(self, holder: Holder, known_tokens: int) -> int:
        """Unlike with other caches a look leaves a trace: the match is accessed, and a node may be split."""
        return self.match(holder, known_tokens - 1)

    def pin(self, holder: Holder) -> None:
        """Locks what the last ``hit`` found, so that it does not count as free any more."""
        lease = holder.extent
        lease.locked = True
        self.free_units -= self.tree.lock(lease.node) // self.block_size
        self._leased_pages += lease.tokens // self.block_size
        self._note_saved()

    def unpin(self, holder: Holder) -> None:
        """Undoes ``pin``."""
        lease = holder.extent
        lease.locked = False
        self.free_units += self.tree.unlock(lease.node) // self.block_size
        self._leased_pages -= lease.tokens // self.block_size
        self._note_saved()

    def store(self, holder: Holder, tokens: int) -> None:
        """Gives the first ``tokens`` tokens of an admitted request, which it has computed, to the tree.

        The tree gets whole pages and a node that ends with the prompt; the lock moves to the end of what it got.
        """
        lease, tree, size = holder.extent, self.tree, self.block_size
        stored = tokens // size * size
        _, node = tree.insert(lease.spans, stored, lease.node, lease.tokens)
        prompt = holder.prompt_tokens // size * size
        if 0 < prompt < stored:
            tree.cut(node, stored, prompt)
        given = (stored - lease.tokens) // size
        # Pages of what was there already are freed, the others can be evicted from now on.
        self.free_units += given
        holder.held -= given
        self.private_pages -= given
        self.unpin(holder)
        lease.node, lease.tokens = node, stored
        self.pin(holder)

    def make_room(self, tokens: int) -> None:
        """Evicts until ``tokens`` tokens' worth of pages are free, or nothing is left to evict."""
        short = -(-tokens // self.block_size) - self.free_pages
        if short > 0:
            self.evicted_blocks += self.tree.evict(short * self.block_size) // self.block_size

    @property
    def free_pages(self) -> int:
        """Pages that nobody owns, the tree included."""
        return self.free_units - self.tree.evictable // self.block_size

    def _note_saved(self) -> None:
        self.saved_units = self._leased_pages - self.tree.locked // self.block_size

    # -- the private part -------------------------------------------------------------------------------------

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        self.pin(holder)
        if self.extend(holder, first_tokens):
            return True
        self.unpin(holder)
        return False

    def units_for(self, holder: Holder, tokens: int) -> int:
        owned: int = holder.held + holder.extent.tokens // self.block_size
        return max(0, -(-min(tokens, self.max_model_len) // self.block_size) - owned)

    def extend(self, holder: Holder, tokens: int) -> bool:
        pages = self.units_for(holder, tokens)
        if pages > self.free_units:
            return False
        self.make_room(pages * self.block_size)
        self.free_units -= pages
        self.private_pages += pages
        holder.held += pages
        return True

    def release(self, holder: Holder) -> None:
        self.free_units += holder.held
        self.private_pages -= holder.held
        holder.held = 0
        if holder.extent is not None:
            self.unpin(holder)
            holder.extent = None

    def leave(self, holder: Holder, tokens: int) -> None:
        super().leave(holder, tokens)
        holder.held -= holder.extent.tokens // self.block_size

    def grow(self, holder: Holder, step: int) -> bool:
        self.make_room(self.block_size)
        if not super().grow(holder, step):
            return False
        self.private_pages += holder.phase == (step - self.paused) % self.block_size
        return True

    def serve(self, step: int) -> bool:
        demand = self.demand(step)
        self.make_room(max(demand, self.decoders if demand <= self.free_units else 0) * self.block_size)
        if not super().serve(step):
            return False
        self.private_pages += demand
        return True

    def advance(self, step: int, steps: int) -> list[int]:
        free = self.free_pages
        before = self.free_units
        growth = super().advance(step, steps)
        taken = before - self.free_units
        self.private_pages += taken
        # What the last step wants free is the most: what those before it took, and a page for every decoder.
        wanted = taken - self.demand(step + steps - 1) + self.decoders
        if wanted > free:
            self.evicted_blocks += self.tree.evict((wanted - free) * self.block_size) // self.block_size
        return growth

    def check(self) -> None:
        super().check()
        self.tree.check()
        owned = (self.tree.locked + self.tree.evictable) // self.block_size
        assert self.free_pages >= 0
        assert owned + self.private_pages + self.free_pages == self.usable_blocks
        assert self.saved_units == self._leased_pages - self.tree.locked // self.block_size
