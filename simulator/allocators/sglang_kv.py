"""SGLang's pool of KV pages without prefix caching: pages are counted, none is null."""

from __future__ import annotations

from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.kv_cache import Holder


class SglangKv(CountingKv):
    """Page counts on a decode clock, and SGLang's own idea of what fits.

    A step that only prefills stops the clock, so phases are those of the step's number less ``paused``.

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
        self.paused = 0

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

    def pause(self) -> None:
        """The step that just ran left out all decoders."""
        self.paused += 1

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        super().join(holder, tokens, step - self.paused)

    def grow(self, holder: Holder, step: int) -> bool:
        return super().grow(holder, step - self.paused)

    def demand(self, step: int) -> int:
        return super().demand(step - self.paused)

    def serve(self, step: int) -> bool:
        return super().serve(step - self.paused)

    def horizon(self, step: int, most: int) -> int:
        return super().horizon(step - self.paused, most)

    def advance(self, step: int, steps: int) -> list[int]:
        return super().advance(step - self.paused, steps)
