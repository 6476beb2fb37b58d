"""SGLang's pool of KV pages without prefix caching: pages are counted, none is null."""

from __future__ import annotations

from simulator.allocators.counting_kv import CountingKv


class SglangKv(CountingKv):
    """Page counts, and SGLang's own idea of what fits.

    Its admission wants a request's prompt, its whole output (as far as it looks ahead) and ``spare_tokens`` to be less
    than the pool, even an empty one. A request that asks for more is turned away here; the server itself would
    shorten its output, or abort it when it is the last one running and memory is full.
    """

    def __init__(
        self, num_pages: int, page_size: int, max_model_len: int, *, spare_tokens: int, bytes_per_token: int = 0
    ) -> None:
        super().__init__(
            num_pages,
            page_size,
            max_model_len,
            reserve_full_sequence=False,
            bytes_per_token=bytes_per_token,
            null_block=False,
        )
        self.spare_tokens = spare_tokens

    @property
    def surely_servable_tokens(self) -> int:
        return max(0, self.pool.total_slots - self.spare_tokens - 2)

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        if final_tokens <= self.surely_servable_tokens:
            return None
        wanted = final_tokens + 1 + self.spare_tokens
        return (
            f"prompt and output of {final_tokens + 1} tokens, with {self.spare_tokens} to spare, "
            f"are {wanted} and must be less than the pool's {self.pool.total_slots} tokens"
        )

    def make_room(self, tokens: int) -> None:
        """Makes ``tokens`` tokens' worth of pages free, as far as that costs no request anything."""
