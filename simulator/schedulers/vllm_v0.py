"""vLLM v0's scheduling pass (SCHEDULERS.md 9.1): prefill first without mixing, recompute or swap.

Read in ``vllm/core/scheduler.py`` and ``block_manager.py``: v0.1.0 of June 2023 (stored in IrisMagicBox/vllm-v0.1.0)
and v0.4 of mid-2024 (Snowflake-Labs/vllm @06609d96), whose order of a pass this is. v0.1.0 still put prompts into the
decodes' step; prefill-only steps came in the autumn of 2023.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.allocators.swapping_kv import Room
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.mixed_pass import MixedPass
from simulator.schedulers.plan import Plan
from simulator.schedulers.swapping import Swapping

PREFILLING, DECODING = RequestState.PREFILLING, RequestState.DECODING
PREEMPTED = RequestState.PREEMPTED
NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, TOKEN_BUDGET, PREEMPTION, HELD = (int(reason) for reason in HeadWait)
STAYS_BLOCKED = (NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY)  # whoever waits so, waits until somebody ends


class VllmV0(Swapping):
    """vLLM v0 over a ``SequenceKv``; first come first served is its only order.

    Default mode: whole prompts are admitted while budget, sequences and the watermark allow it, and never while
    somebody is ``swapped`` out; the step then computes nothing else, so the decoders stand still. Otherwise every
    decoder gets its token, in order of arrival, and the last to have arrived is preempted where a block is short.

    With ``enable_chunked_prefill`` one token budget goes to running requests first, then to swapped ones, then to
    new prompts, whose blocks are all taken at once. So it does in release 2023-06, where prompts are never cut, and
    never admitted by a pass that preempts or while somebody is swapped out.
    """

    __slots__ = ("chunked", "mixed", "pass_ps", "prompt_limit")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        if config.scheduling_policy != "fcfs":
            raise InputError(
                f"vLLM v0 serves first come first served, not by {config.scheduling_policy}",
                where="engine.scheduling_policy",
                remedy="set scheduling_policy: fcfs",
            )
        super().__init__(config, kv)
        self.chunked = config.enable_chunked_prefill
        self.mixed = self.chunked or self.policy.release == "2023-06"
        budget = config.max_num_batched_tokens
        self.prompt_limit = config.max_model_len if self.chunked else min(config.max_model_len, budget)
        self.pass_ps = 0  # start of the step that the last pass planned

    # -- the pass ---------------------------------------------------------------------------------------------

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if not plan.stable:
            plan.clear()
        plan.head_wait = NOBODY_WAITS
        self.pass_ps = now_ps
        if self.mixed:
            self._mixed(step, now_ps)
            return plan
        if self.waiting:
            if self.swapped:
                plan.head_wait = KV_MEMORY
            else:
                self._admit(now_ps, self.config.max_num_batched_tokens, self.sequences())
        if plan.chunks:
            self._settle(step, decoding=False)
        else:
            self._decode(step, now_ps)
        return plan

    def _admit(self, now_ps: int, budget: int, sequences: int) -> None:
        """Admits from the head of the queue; only with chunked prefill is a prompt cut to the budget left.

        Args:
            budget: tokens left in this step.
            sequences: sequences that count against ``max_num_seqs`` already.
        """
        plan, kv, waiting = self.plan, self.kv, self.waiting
        admitted: list[tuple[Request, int]] = []
        while waiting:
            request = waiting.head()
            known = request.prompt_tokens + request.generated
            room = kv.room(known)
            if known > self.prompt_limit or room is Room.NEVER:
                waiting.pop()
                plan.dropped.append((request, self._ignored(known, room)))
                continue
            chunk = min(known, budget) if self.chunked else known
            # The reason that stays while decoders grow comes first, so that a leap may stand for its steps.
            if sequences + request.sequences > self.running_limit:
                plan.head_wait = MAX_NUM_SEQS
                break
            if room is Room.LATER:
                plan.head_wait = KV_MEMORY
                break
            if chunk > budget or not chunk:
                plan.head_wait = TOKEN_BUDGET
                break
            waiting.pop()
            kv.allocate(request, known)
            admitted.append((request, chunk))
            budget -= chunk
            sequences += request.sequences
        for request, _ in admitted:
            self._enter(request, now_ps)
        plan.chunks.extend(admitted)

    def _ignored(self, known: int, room: Room) -> str:
        """Why the server gives a prompt up (``FINISHED_IGNORED``), in its own order of tests."""
        if known > self.prompt_limit:
            return f"ignored: prompt of {known} tokens exceeds the limit of {self.prompt_limit} for one step"
        return (
            f"ignored: prompt of {known} tokens needs {self.kv.blocks(known)} KV blocks besides a watermark of "
            f"{self.kv.watermark_blocks}, the pool has {self.kv.usable_blocks}"
        )

    def _enter(self, request: Request, now_ps: int) -> None:
        """A waiting request runs from now on."""
        self.admissions = request.seq = self.admissions + 1
        request.state = PREFILLING
        request.admitted_ps = now_ps
        if request.preemptions:
            self.plan.irregular = True
        else:
            request.scheduled_ps = now_ps
        self.running[request.seq] = request
        if request.sequences > 1:
            self.groups[request.seq] = request
        self.plan.admitted.append(request)

    def _decode(self, step: int, now_ps: int) -> None:
        """A token for every decoder, then swap in; nobody is swapped in by a pass that preempts."""
        plan, decoders = self.plan, self.decoders
        if not self.kv.serve(step):
            self._one_by_one(step, now_ps)
        if plan.preempted:
            plan.head_wait = PREEMPTION
        elif self.swapped:
            sequences = self.sequences()
            self._swap_in(step, now_ps, self.config.max_num_batched_tokens - sequences, sequences)
        if decoders.late_count:
            plan.late = decoders.caught_up()
            plan.irregular = True
        self._close(step)

    def _close(self, step: int) -> None:
        """Sums up a pass with decoders; a pass of nothing else may hold for many steps."""
        plan = self.plan
        odd = plan.irregular or plan.preempted or plan.dropped or plan.chunks or self.prefilling or plan.skipped
        if odd or self.groups or not plan.stable:
            self._settle(step, decoding=True)
            return
        head_wait = plan.head_wait
        self.decode_only()
        plan.regular = plan.decodes
        plan.head_wait = head_wait
        plan.stable = head_wait in STAYS_BLOCKED

    def _mixed(self, step: int, now_ps: int) -> None:
        """Running requests, then swapped ones, then new prompts share one token budget."""
        plan, waiting = self.plan, self.waiting
        budget = self.config.max_num_batched_tokens
        if self.prefilling or self.lagging or not self.kv.serve(step):
            given, sequences = MixedPass(self, step, now_ps).run()
        else:
            given = sequences = self.sequences()
        budget -= given
        if self.swapped and not plan.preempted:
            back = self._swap_in(step, now_ps, budget, sequences)
            budget -= back
            sequences += back
        if self.policy.release == "2023-06" and (plan.preempted or self.swapped):
            plan.head_wait = PREEMPTION if plan.preempted else KV_MEMORY if waiting else NOBODY_WAITS
            self._close(step)
            return
        # Whoever this pass preempted is queued only after it.
        again = [waiting.pop() for request in plan.preempted if request.state is PREEMPTED]
        self._admit(now_ps, budget, sequences)
        for request in reversed(again):
            waiting.put_back(request)
        if plan.preempted:
            plan.head_wait = PREEMPTION
        self._close(step)

    def _one_by_one(self, step: int, now_ps: int) -> None:
        """Decoders in order of arrival; where a block is short the last of them goes, itself if need be."""
        kv = self.kv
        self.plan.stable = False
        queue = sorted(self.running.values(), key=lambda request: (request.arrival_ps, request.row))
        served, left = 0, len(queue)
        while served < left:
            request = queue[served]
            while not kv.can_grow(request):
                left -= 1
                self.give_way(queue[left], step, now_ps)
                if left == served:
                    return
            kv.grow(request, step)
            served += 1

    # -- the end of a pass and of a step ----------------------------------------------------------------------

    def _settle(self, step: int, *, decoding: bool) -> None:
        """Fills in the batch of a pass that is not of decoders alone; without ``decoding`` they stand still."""
        plan, decoders = self.plan, self.decoders
        plan.stable = False
        decodes = decoders.count - len(plan.skipped) if decoding else 0
        stored = decoders.stored_tokens + decodes
        context = stored if decoding else 0
        for request in plan.skipped:
            context -= request.computed_at(step)
        batch = plan.batch
        plan.decodes = decodes
        more, more_context, more_stored = self._more_of_groups(step, decoding=decoding)
        stored += more_stored
        context += more_context
        batch.decodes = decodes + more
        batch.decode_context = context
        plan.regular = decodes - len(plan.resumed) - sum(count for count, _ in plan.late)
        tokens = rows = decodes + more
        for request, chunk in plan.chunks:
            request.computed = computed = request.computed + chunk
            tokens += chunk
            context += computed
            batch.prefills.append((chunk, computed))
            complete = computed == request.prompt_tokens + request.generated
            if complete:
                plan.completing.append(request)
                stored += computed
                if request.generated:
                    plan.irregular = True
            if request.seq in self.prefilling or not complete:
                self.carry_over(request, chunk)
        batch.tokens = tokens
        batch.context = context
        batch.requests = rows + len(plan.chunks)
        batch.sampled = rows + len(plan.completing)
        plan.stored_tokens = stored + self.stored_prefill_tokens

    def _more_of_groups(self, step: int, *, decoding: bool) -> tuple[int, int, int]:
        """What the second and further sequences of groups add: (tokens, context, stored tokens of their tables).

        A group has one table until its sequences part, with the first token that they store.
        """
        tokens = context = stored = 0
        skipped = {request.row for request in self.plan.skipped} if self.groups else set()
        for request in self.groups.values():
            if request.state is not DECODING:
                continue
            more, computed = request.sequences - 1, request.computed_at(step)
            if decoding and request.row not in skipped:
                tokens += more
                context += more * (computed + 1)
                stored += more * (computed + 1)
            elif computed > request.prompt_tokens:
                stored += more * computed
        return tokens, context, stored

    def advance(self, step: int) -> None:
        """The step has run; one that only prefilled moves nobody else on."""
        super().advance(step)
        if self.plan.chunks and not self.mixed:
            self.decoders.pause(self.running.values(), self.pass_ps)
            self.kv.pause()
        elif self.groups:
            self.kv.fork_beams({request.row for request in self.plan.skipped})

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """As ever; and notes when those who begin to decode got their last token."""
        for request in self.plan.completing:
            request.last_token_ps = now_ps
        ended = super().complete(next_step, now_ps)
        if self.groups:
            for request in ended:
                self.groups.pop(request.seq, None)
        return ended
