"""Which limit binds, by name.

0. With prefill/decode disaggregation: were the links never idle (95 % of the time from the first transfer to the last),
   and did requests wait longer for their turn there than in all queues together? Then ``kv_transfer`` binds.
1. Did anybody wait? Per replica, the share of the run in which the head of the queue stayed behind after a pass, by
   cause: KV memory (passes that preempt count here: they preempt for want of memory), ``max_num_seqs``, the token
   budget (``prefill_schedule_interval`` counts here: it withholds the budget). When these shares add up to at
   least 5 %, the cause with the largest share binds; ties go to the first in this order.
2. Where that is the token budget and the step-time model says that such steps are bound by ``compute``, then
   ``compute`` binds: a larger budget would only make longer steps.
3. Nobody waited: an open loop is bound by its ``arrivals``. A closed loop, or arrivals all at once, whose
   replicas were never idle (95 % of the run) wait for nothing but the steps, so the step-time model is asked whether
   ``compute`` or ``bandwidth`` makes their length; without such a model it is ``arrivals``.

The model is asked at a grid of times, so that the answer does not depend on leaps; the more frequent answer counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from simulator.metrics_exact import ratio, sum_of_products
from simulator.metrics_occupancy import Occupancy, known_by
from simulator.metrics_timeline import timeline
from simulator.run_log import NOT_YET, HeadWait, RunLog

BindingLimit = Literal["kv_memory", "max_num_seqs", "token_budget", "compute", "bandwidth", "arrivals", "kv_transfer"]
StepHint = Callable[[int, int, int, int], Literal["compute", "bandwidth"]]
"""(tokens, requests, decodes, context) of a step -> what makes its length; see ``step_time.base.Batch``."""

WAIT_SHARE = 0.05
BUSY_SHARE = 0.95
_HINT_SAMPLES = 200
_CAUSES: dict[str, tuple[HeadWait, ...]] = {
    "kv_memory": (HeadWait.KV_MEMORY, HeadWait.PREEMPTION),
    "max_num_seqs": (HeadWait.MAX_NUM_SEQS,),
    "token_budget": (HeadWait.TOKEN_BUDGET, HeadWait.HELD),
}


def wait_shares(use: Occupancy) -> dict[str, float]:
    """Share of the replicas' time in which the head of the queue waited, by cause."""
    return {
        name: ratio(sum(map(use.head_wait_ps.__getitem__, causes)), use.replica_ps) for name, causes in _CAUSES.items()
    }


def binding_limit(log: RunLog, use: Occupancy, hint: StepHint | None = None) -> BindingLimit:
    """The limit that binds; the module states the rule."""
    if link_binds(log, use):
        return "kv_transfer"
    shares = wait_shares(use)
    largest = max(shares, key=lambda name: shares[name])
    if sum(shares.values()) >= WAIT_SHARE:
        if largest == "token_budget" and hint is not None and _asked(log, use, hint) == "compute":
            return "compute"
        return largest  # type: ignore[return-value]  # the keys of _CAUSES are among the names
    busy = ratio(use.busy_ps, use.replica_ps)
    arrivals = log.workload.arrival_ps
    pushed = log.workload.max_concurrency is not None or (
        len(arrivals) > 0 and int(arrivals.max()) == int(arrivals.min())
    )
    if pushed and busy >= BUSY_SHARE and hint is not None:
        return _asked(log, use, hint)
    return "arrivals"


def link_binds(log: RunLog, use: Occupancy) -> bool:
    """Whether KV waits for the links more than anything waits for anything else; latencies count as waiting here."""
    moved = log.handover_columns()
    begun = moved["reserved_ps"][moved["reserved_ps"] != NOT_YET]
    if not len(begun):
        return False
    done = known_by(moved["loaded_ps"], log.end_ps)
    wire = sum_of_products(moved["wire_ps"])
    span = log.prefill_replicas * (int(done.max()) - int(begun.min()))
    return use.transferring - wire > use.waiting and ratio(wire, span) >= BUSY_SHARE


def _asked(log: RunLog, use: Occupancy, hint: StepHint) -> Literal["compute", "bandwidth"]:
    state = timeline(log, _HINT_SAMPLES).state
    names = ("tokens", "running", "decodes", "context")
    steps = zip(*(state[name].tolist() for name in names), strict=True)
    replicas = max(use.replica_ps // max(use.duration_ps, 1), 1)  # that were up, in the mean
    answers = [hint(*(value // replicas for value in step)) for step in steps if step[0] >= replicas]
    return "compute" if 2 * answers.count("compute") > len(answers) else "bandwidth"
