"""Orca's iteration-level scheduling (SCHEDULERS.md 9.4): requests join and leave the batch at every step.

A step computes a token for every running request and the whole prompts of those it admits. The paper's Max, Pow2
and Oracle differ in what the contiguous cache reserves, not here.
"""

from __future__ import annotations

from simulator.schedulers.first_come import KV_MEMORY, MAX_NUM_SEQS, NOBODY_WAITS, PREEMPTION, TOKEN_BUDGET, FirstCome
from simulator.schedulers.plan import Plan

STAYS_BLOCKED = (NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY)  # whoever waits so, waits until somebody ends


class IterationLevel(FirstCome):
    """Admits from the head of the queue while the cache has room for the request, fcfs, never past the head.

    Over a contiguous cache a request reserves all it will store, so nobody is ever preempted. Over a paged cache
    admission takes the blocks of the known tokens only and growth can run out: then the last admitted is preempted by
    recompute (its blocks are freed, its outputs kept, it waits at the front), and that pass admits nobody.

    Orca has no token budget. ``max_num_batched_tokens`` is read as a limit of the prompt tokens of one step: prompts
    are never cut, and the first of a step may be longer than the limit, so that a value as large as all prompts
    together means no limit. Decodes are not counted.
    """

    __slots__ = ()

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if not plan.stable:
            plan.clear()
        served = not self.decoders.count or self.kv.serve(step)
        if served and not self.waiting:
            self.decode_only()
            return plan
        plan.stable = False
        plan.head_wait = NOBODY_WAITS
        if served:
            self._admit(now_ps)
        else:
            self.make_room(step, now_ps)
            plan.head_wait = PREEMPTION
        self.settle(step)
        plan.stable = plan.head_wait in STAYS_BLOCKED and not plan.chunks
        return plan

    def _admit(self, now_ps: int) -> None:
        """Moves requests from the head of the queue to running while everything allows it."""
        plan, kv, waiting = self.plan, self.kv, self.waiting
        budget = self.config.max_num_batched_tokens
        while waiting:
            if len(self.running) >= self.running_limit:
                plan.head_wait = MAX_NUM_SEQS
                return
            request = waiting.head()
            known = request.prompt_tokens + request.generated
            if plan.chunks and known > budget:
                plan.head_wait = TOKEN_BUDGET
                return
            if not kv.admit(request, known, known, bool(self.running)):
                plan.head_wait = KV_MEMORY
                return
            plan.chunks.append((self.take_head(now_ps), known))
            budget -= known
