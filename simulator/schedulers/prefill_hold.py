"""vLLM's ``prefill_schedule_interval``: passes that hold prefills back while others decode (SCHEDULERS.md 3)."""

from __future__ import annotations

from simulator.request import Request
from simulator.schedulers.plan import Plan


class PrefillHold:
    """Counts passes that computed something; interval 1 never holds.

    For this rule a request is in prefill while more than one of its tokens is not computed: with one token left it
    looks like a decode, to vLLM too.
    """

    __slots__ = ("active", "backlog", "executed_steps", "interval", "last_prefill_step")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.active = interval > 1
        self.executed_steps = 0
        self.last_prefill_step = 0
        self.backlog = False

    def holds(self, decoders: int, prefilling: dict[int, Request]) -> bool:
        """Whether the coming pass leaves prefills out (asked only while ``active``)."""
        if self.backlog or self.executed_steps + 1 - self.last_prefill_step >= self.interval:
            return False
        return decoders > 0 or any(
            request.prompt_tokens + request.generated - request.computed == 1 for request in prefilling.values()
        )

    def ran(self, plan: Plan, tokens: int) -> None:
        """Notes a pass."""
        if tokens:
            self.executed_steps += 1
        if any(r.computed - n < r.prompt_tokens + r.generated - 1 for r, n in plan.chunks):
            self.last_prefill_step = self.executed_steps
