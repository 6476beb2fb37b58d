"""A replica's contiguous KV cache: a run of slots per request, reserved at admission, that never grows."""

from __future__ import annotations

from simulator.allocators.contiguous import Reservation, reservation_slots
from simulator.allocators.extents import Extent, Fit, extent_pool, power_of_two_at_least
from simulator.allocators.kv_cache import Holder
from simulator.run_log import PoolFacts


class ContiguousKv:
    """``KvCache`` over real extents. ``holder.extent`` is the run, ``holder.held`` its length in slots.

    A request that was admitted is never refused growth and never preempted for memory; a buddy pool holds a
    power of two of slots for it, so ``held`` may exceed the reservation.

    Invariant: every holder's extent is one that the pool handed out, and the held slots are those not free.
    """

    caching = False
    ordered = False
    growth_may_admit = False
    evicted_blocks = 0
    saved_units = 0

    def __init__(
        self,
        num_slots: int,
        max_model_len: int,
        reservation: Reservation = "max",
        fit: Fit = "first",
        bytes_per_token: int = 0,
    ) -> None:
        self.pool = PoolFacts("contiguous", 1, num_slots, num_slots, bytes_per_token)
        self.extents = extent_pool(num_slots, fit)
        self.max_model_len = max_model_len
        self.reservation: Reservation = reservation
        self.fit: Fit = fit
        self._held: dict[int, Extent] = {}  # row -> its extent

    @property
    def free_units(self) -> int:
        return self.extents.free_slots

    @property
    def largest_free_run(self) -> int:
        """The longest reservation that could be admitted now: what is free beyond it is external waste."""
        return self.extents.largest_free_run

    @property
    def surely_servable_tokens(self) -> int:
        return 0

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        # The cache never stores the last token, so the output is one token more than what is stored of it.
        output_tokens = final_tokens - prompt_tokens + 1
        wanted = reservation_slots(self.reservation, prompt_tokens, output_tokens, self.max_model_len)
        held = power_of_two_at_least(wanted) if self.fit == "buddy" else wanted
        longest = self.extents.largest_when_empty
        if held <= longest:
            return None
        rounding = f", which the buddy allocator rounds up to {held:,}" if held > wanted else ""
        run = f", {longest:,} of them in one buddy block" if longest < self.pool.total_slots else ""
        return (
            f"the request reserves {wanted:,} slots in a row ({self.reservation} reservation, "
            f"{prompt_tokens:,} prompt tokens, max_model_len {self.max_model_len:,}){rounding}; "
            f"the pool has {self.pool.total_slots:,} slots{run}"
        )

    def hit(self, holder: Holder, known_tokens: int) -> int:
        return 0

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        wanted = reservation_slots(self.reservation, holder.prompt_tokens, holder.output_tokens, self.max_model_len)
        extent = self.extents.allocate(wanted)
        if extent is None:
            return False
        holder.extent, holder.held = extent, extent.length
        self._held[holder.row] = extent
        return True

    def units_for(self, holder: Holder, tokens: int) -> int:
        return 0

    def extend(self, holder: Holder, tokens: int) -> bool:
        if tokens > holder.held:
            raise ValueError(
                f"request {holder.row} would store {tokens} tokens in a reservation of {holder.held} slots"
            )
        return True

    def store(self, holder: Holder, tokens: int) -> None:
        """Nothing to do: content is not kept."""

    def release(self, holder: Holder) -> None:
        self.extents.release(self._held.pop(holder.row))
        holder.extent, holder.held = None, 0

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        """Nothing to do: the reservation covers all growth."""

    def leave(self, holder: Holder, tokens: int) -> None:
        """Nothing to do but to hold the growth to the reservation."""
        self.extend(holder, tokens)

    def grow(self, holder: Holder, step: int) -> bool:
        return True

    def demand(self, step: int) -> int:
        return 0

    def serve(self, step: int) -> bool:
        return True

    def horizon(self, step: int, most: int) -> int:
        return most

    def advance(self, step: int, steps: int) -> list[int]:
        """Nothing to do, and nothing taken: the reservation covers all growth."""
        return []

    def check(self) -> None:
        self.extents.check()
        held = sum(extent.length for extent in self._held.values())
        used = self.pool.total_slots - self.extents.free_slots
        assert held == used, f"{held} slots have an owner, {used} are used"
