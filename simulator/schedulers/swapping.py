"""Preemption in vLLM v0: by recompute, or by swapping out to the CPU's memory and in again."""

from __future__ import annotations

from typing import cast

from simulator.allocators.kv_cache import KvCache
from simulator.allocators.sequence_kv import SequenceKv
from simulator.errors import DoesNotFitError, InputError
from simulator.request import Request, RequestState
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.first_come import FirstCome
from simulator.schedulers.pausing_decoders import PausingDecoders
from simulator.schedulers.policies import VllmV0Policy

DECODING, SWAPPED = RequestState.DECODING, RequestState.SWAPPED


class Swapping(FirstCome):
    """Running requests that give way, and come back.

    A preempted request of one sequence is recomputed, unless ``preemption_mode`` is swap. When the CPU's pool is full
    the real server ends with an error; here such a request is recomputed, and the plan's ``swap_fallbacks`` counts it.

    Invariant (``check``): that of ``Scheduler``; ``swapped`` are the SWAPPED requests, whose blocks are those that the
    CPU's pool holds; ``groups`` are the running requests of several sequences.
    """

    __slots__ = ("groups", "policy", "swapped")

    decoders: PausingDecoders
    kv: SequenceKv

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        if not isinstance(kv, SequenceKv):
            raise InputError(
                "vLLM v0 pages its KV cache; it cannot run over a contiguous one",
                where="engine.allocator",
                remedy="set allocator: {kind: paged}",
            )
        super().__init__(config, kv)
        self.policy = cast(VllmV0Policy, config.policy)
        self.decoders = PausingDecoders()
        self.swapped: dict[int, Request] = {}  # by row
        self.groups: dict[int, Request] = {}  # by admission number

    def sequences(self) -> int:
        """Sequences of all running requests."""
        return len(self.running) + sum(request.sequences - 1 for request in self.groups.values())

    def give_way(self, request: Request, step: int, now_ps: int) -> None:
        """Takes the KV of a running request that this pass has not served, by the policy's mode."""
        self.groups.pop(request.seq, None)
        if request.state is not DECODING:  # it has sampled nothing since it was admitted
            self.preempt(request, step, now_ps, 0)
            return
        last_token_ps = self._last_token_ps(request, step, now_ps)
        if self.decoders.late.get(last_token_ps):
            self.decoders.forget_late(last_token_ps)
        swaps = self._swaps(request, step)
        if swaps:
            self._swap_out(request, step, now_ps)
        else:
            self.preempt(request, step, now_ps, 0)
        request.last_token_ps = last_token_ps

    def _swaps(self, request: Request, step: int) -> bool:
        """Whether a preempted decoder is swapped out.

        Raises:
            DoesNotFitError: a group, which cannot be recomputed, finds no room in the CPU's pool (the real server
                ends with an error too), or is told to.
        """
        mode, group = self.policy.preemption_mode, request.sequences > 1
        if mode == "recompute" or (mode == "auto" and not group):
            if not group:
                return False
        elif self.kv.can_swap_out(request, request.computed_at(step)):
            return True
        if not group:
            self.plan.swap_fallbacks += 1
            self.plan.irregular = True
            return False
        what = f"a request of {request.sequences} sequences is preempted; vLLM v0 can only swap it out, and "
        if mode == "recompute":
            raise DoesNotFitError(
                f"{what}preemption_mode is recompute",
                where="engine.preemption_mode",
                remedy="set preemption_mode: auto",
            )
        raise DoesNotFitError(
            f"{what}{self.kv.cpu_free} of {self.kv.cpu_blocks} blocks of the CPU's pool are free",
            where="engine.swap_space",
            remedy=f"raise swap_space until it holds {self.kv.usable_blocks} blocks, as many as the GPU",
        )

    def _last_token_ps(self, request: Request, step: int, now_ps: int) -> int:
        """When a decoder's last token came: with its prefill, or with the last step that decoded."""
        if step == request.joined_step or request.seq in self.lagging:
            return request.last_token_ps
        return next(iter(self.decoders.late), now_ps)

    def _swap_out(self, request: Request, step: int, now_ps: int) -> None:
        kv, plan = self.kv, self.plan
        kv.leave(request, request.computed_at(step))
        self.decoders.leave(request, step)
        self.lagging.pop(request.seq, None)
        del self.running[request.seq]
        kv.swap_out(request)
        request.state = SWAPPED
        request.preemptions += 1
        request.preempted_ps = now_ps
        self.swapped[request.row] = request
        plan.preempted.append(request)
        plan.irregular = True
        plan.swapped_out_blocks += request.held
        plan.delay_ps += request.held * self.policy.swap_ps_per_block

    def _swap_in(self, step: int, now_ps: int, budget: int, sequences: int) -> int:
        """Brings swapped requests back in order of arrival while they fit; they decode in this very step.

        Returns how many sequences came back, of a budget of as many tokens.
        """
        kv, plan, back = self.kv, self.plan, 0
        for request in sorted(self.swapped.values(), key=lambda request: (request.arrival_ps, request.row)):
            n = request.sequences
            if not kv.can_swap_in(request) or back + n > budget or sequences + back + n > self.running_limit:
                break
            del self.swapped[request.row]
            plan.swapped_in_blocks += request.held
            plan.delay_ps += request.held * self.policy.swap_ps_per_block
            kv.swap_in(request)
            self.admissions = request.seq = self.admissions + 1
            request.admitted_ps = now_ps
            self.running[request.seq] = request
            if n > 1:
                self.groups[request.seq] = request
            self.decoders.join(request, step)
            kv.join(request, request.computed, step)
            kv.grow(request, step)
            plan.admitted.append(request)
            plan.resumed.append(request)
            plan.irregular = True
            back += n
        return back

    def away(self) -> list[Request]:
        return list(self.swapped.values())

    def check(self, step: int) -> None:
        super().check(step)
        assert all(request.state is SWAPPED for request in self.swapped.values())
        assert all(self.running[seq] is request and request.sequences > 1 for seq, request in self.groups.items())
        held = sum(request.held for request in self.swapped.values())
        assert held + self.kv.cpu_free == self.kv.cpu_blocks
