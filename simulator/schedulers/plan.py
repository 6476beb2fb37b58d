"""What one scheduling pass decided."""

from __future__ import annotations

from simulator.request import Request
from simulator.run_log import HeadWait
from simulator.step_time.base import Batch


class Plan:
    """One pass. The scheduler reuses one object, so that a pass allocates little.

    Attributes:
        batch: what the step computes, for the step-time model.
        chunks: (request, tokens) of every scheduled prefill, in order; one request at most once.
        admitted: requests that moved from waiting to running, in order.
        preempted: requests that lost their KV, in order.
        skipped: decoders that get no token in this step.
        completing: requests whose prefill ends with this step, so that it samples their next token.
        decodes: decoders that get a token.
        regular: of these, the ones whose previous token came from the step just before.
        resumed: decoders that were skipped before and get a token again: their gap is logged.
        late: (count, time of the last token) of decoders that all stood still before and get a token again.
        head_wait: why the head of the queue stayed (a ``HeadWait`` as a plain number).
        dropped: (request, reason) of waiting requests that this pass gave up for ever.
        delay_ps: what the step takes longer than its batch does (blocks swapped over PCIe).
        swapped_out_blocks, swapped_in_blocks: blocks copied to and from the CPU's pool in this pass.
        swap_fallbacks: requests recomputed in this pass because the CPU's pool was full.
        irregular: somebody gets a token later than a step after the last one, or comes back after a preemption.
        stored_tokens: KV tokens of all running requests after the step.
        stable: nothing but the decoders' own growth and end, or an arrival, can change the next pass.
    """

    __slots__ = (
        "admitted",
        "batch",
        "chunks",
        "completing",
        "decodes",
        "delay_ps",
        "dropped",
        "head_wait",
        "irregular",
        "late",
        "preempted",
        "regular",
        "resumed",
        "skipped",
        "stable",
        "stored_tokens",
        "swap_fallbacks",
        "swapped_in_blocks",
        "swapped_out_blocks",
    )

    def __init__(self) -> None:
        self.batch = Batch()
        self.chunks: list[tuple[Request, int]] = []
        self.admitted: list[Request] = []
        self.preempted: list[Request] = []
        self.skipped: list[Request] = []
        self.completing: list[Request] = []
        self.resumed: list[Request] = []
        self.late: list[tuple[int, int]] = []
        self.dropped: list[tuple[Request, str]] = []
        self.delay_ps = 0
        self.swapped_out_blocks = 0
        self.swapped_in_blocks = 0
        self.swap_fallbacks = 0
        self.decodes = 0
        self.regular = 0
        self.stored_tokens = 0
        self.head_wait = int(HeadWait.NOBODY_WAITS)
        self.irregular = False
        self.stable = True

    def clear(self) -> None:
        """Ready for the next pass; a stable plan has nothing to clear."""
        self.chunks = []
        self.admitted = []
        self.preempted = []
        self.skipped = []
        self.completing = []
        self.resumed = []
        self.batch.prefills = []
        if self.late:
            self.late = []
        if self.dropped:
            self.dropped = []
        if self.swapped_out_blocks or self.swapped_in_blocks or self.swap_fallbacks or self.delay_ps:
            self.delay_ps = self.swapped_out_blocks = self.swapped_in_blocks = self.swap_fallbacks = 0
        self.irregular = False
        self.stable = True
