"""What happened in a run: facts only, no metric. Written by the engine, read by ``metrics``.

Tables are row-major arrays of 64-bit integers, so that a million requests stay small; the ``*_columns``
functions give NumPy views. Times are picoseconds of the simulated clock.

A run of k equal steps (a decode leap) is one row of ``segments``; a run with ``--stepwise`` has k rows of one
step. Both describe the same steps, and every metric must come out the same to the last bit, so compute from
what the rows *mean* (exact integers), never from how many rows there are.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.fleet_log import FleetLog
from workloads.workload import Workload

IntColumn = NDArray[np.int64]

RunStatus = Literal["ok", "deadlock", "livelock", "max_steps"]

NOT_YET = -(1 << 63)
"""An integer time that has not come: becomes an empty cell or None on output."""


class HeadWait(IntEnum):
    """Why the head of the waiting queue stayed there after a pass."""

    NOBODY_WAITS = 0
    MAX_NUM_SEQS = 1
    KV_MEMORY = 2
    TOKEN_BUDGET = 3
    PREEMPTION = 4  # a pass that preempts admits nobody
    HELD = 5  # prefill_schedule_interval


class Status(IntEnum):
    """How a request ended."""

    FINISHED = 0
    REJECTED = 1  # can never be served; see its reason
    UNFINISHED = 2  # the run ended first (dead-lock, step limit, time limit)


SEGMENT_COLUMNS = (
    "step",  # number of the first step in this replica, from 0
    "steps",  # how many steps the row stands for (k)
    "start_ps",  # start of the first step
    "duration_ps",  # step i of the row lasts duration_ps + i * growth_ps
    "growth_ps",
    "tokens",  # tokens computed in each step
    "decodes",  # of these, by decoding requests (one each)
    "sampled",  # requests that get a token from each step
    "regular",  # decodes of the FIRST step whose previous token came from the step just before (ITL = step)
    "context",  # sum over scheduled requests of their KV tokens after the first step; + decodes a step
    "running",  # running requests after the pass
    "stored_tokens",  # KV tokens of all running requests after the first step; + decodes a step
    "used_slots",  # slots held (blocks x block size, or reserved extents) after the first step's allocation
    "head_wait",  # HeadWait after the pass, the same for every step of the row
    "saved_slots",  # slots that sharing saves: more would be held if every table had its own blocks
    "growth_at",  # where this row's block growth starts in ``growth_blocks``
)
REQUEST_COLUMNS = (
    "row",  # row of the workload
    "replica",
    "arrival_ps",
    "scheduled_ps",  # first time in a batch, or NOT_YET
    "first_token_ps",  # or NOT_YET
    "finish_ps",  # or NOT_YET
    "generated_tokens",
    "preemptions",
    "cached_tokens",  # prefix-cache hit at the first admission
    "recomputed_tokens",  # prefill tokens computed again after preemptions
    "status",  # Status
    "reason",  # index into RunLog.reasons, 0 = none
)
REQUEUE_COLUMNS = ("row", "preempted_ps", "readmitted_ps")
GAP_COLUMNS = ("start_ps", "gap_ps", "count")
HOLD_COLUMNS = ("row", "from_ps", "to_ps", "reserved_slots", "final_tokens")
HANDOVER_COLUMNS = (
    "row",
    "prefill_replica",
    "decode_replica",
    "prefilled_ps",  # the prompt is computed; from here on the prefill replica only holds its KV
    "reserved_ps",  # the decode replica gave it blocks and asked for the KV, or NOT_YET
    "loaded_ps",  # the KV is there, or NOT_YET
    "released_ps",  # the prefill replica gave the blocks back, or NOT_YET
    "admitted_ps",  # it runs at the decode replica, or NOT_YET
    "tokens",  # KV tokens to move; 0: they were lost, and the decode replica computes the prompt
    "wire_ps",  # for how long the link was taken
)


@dataclass(frozen=True)
class PoolFacts:
    """The KV pool of one replica (one GPU's share, as all ranks hold the same tokens).

    ``total_slots`` = usable slots (the null block is not usable); 1 slot holds one token.
    """

    kind: Literal["paged", "contiguous"]
    block_size: int
    num_blocks: int  # as the server reports it (null block included); contiguous: slots
    total_slots: int
    bytes_per_token: int = 0


def columns(table: array[int], names: tuple[str, ...]) -> dict[str, IntColumn]:
    """Views of a row-major table, by column name."""
    flat = np.frombuffer(table, dtype=np.int64) if len(table) else np.empty(0, dtype=np.int64)
    matrix = flat.reshape(-1, len(names))
    return {name: matrix[:, i] for i, name in enumerate(names)}


def _table() -> array[int]:
    return array("q")


@dataclass
class ParkedKv:
    """KV that requests hold without running, in tokens or slots · ps: their prompts wait to be sent, or come in.

    ``tokens`` of it at all times; ``held_slots`` and ``saved_slots`` (what sharing saves) while the replica makes no
    step, for its steps count them themselves.
    """

    tokens: int = 0
    held_slots: int = 0
    saved_slots: int = 0


@dataclass
class PipelineFacts:
    """What only a replica of several pipeline stages has to say (``simulator.pipeline``).

    Attributes:
        stage_busy_ps: how long each stage worked.
        in_flight_ps: sum over batches of the time from their pass to their end.
        part_rows: rows of ``segments`` that no step begins: they go on with the step before.
        gaps: rows of (start of the batch, inter-token gap, how many tokens had it), times in ps.
    """

    stage_busy_ps: list[int]
    in_flight_ps: int = 0
    part_rows: int = 0
    gaps: array[int] = field(default_factory=_table)

    def gap_columns(self) -> dict[str, IntColumn]:
        return columns(self.gaps, GAP_COLUMNS)


@dataclass
class ReplicaLog:
    """One replica's steps, from its start to its end: one log for each life of a replica that fails and starts again.

    ``replica`` is its number, ``group`` the kind of replica it is (see ``Member``); it was up from ``from_ps`` until
    ``to_ps`` (None: until the run ended).

    ``growth_blocks``: for a row of k > 1 steps, blocks newly allocated in steps 1 .. min(k-1, block_size) of the
    row, starting at index ``growth_at`` (paged pools only); beyond block_size steps the pattern repeats with that
    period. The first step's blocks are already in ``used_slots``.

    ``irregular_gaps_ps``: inter-token gaps that are not one step long: the first token after a preemption or
    after passes that skipped a decode. All other gaps are in ``segments``: the first step's length ``regular``
    times, and each further step's length ``decodes`` times.

    ``requeues``: one row per preemption (``readmitted_ps`` NOT_YET when it never came back).
    ``holds``: contiguous pools only, one row per reservation that was held.
    ``pipeline``: of a replica with pipeline stages, whose steps overlap: its rows tile the time, see there.
    ``evicted_blocks``: cached blocks that lost their content; ``swapped_*_blocks``: copied to and from the CPU.
    ``swap_fallbacks``: preempted requests that were recomputed because the CPU's pool was full.
    """

    pool: PoolFacts
    segments: array[int] = field(default_factory=_table)
    growth_blocks: array[int] = field(default_factory=lambda: array("i"))
    irregular_gaps_ps: array[int] = field(default_factory=_table)
    requeues: array[int] = field(default_factory=_table)
    holds: array[int] = field(default_factory=_table)
    evicted_blocks: int = 0
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    swap_fallbacks: int = 0
    replica: int = 0
    group: str = ""
    gpus: int = 1
    from_ps: int = 0
    to_ps: int | None = None
    parked: ParkedKv = field(default_factory=ParkedKv)
    pipeline: PipelineFacts | None = None

    def segment_columns(self) -> dict[str, IntColumn]:
        return columns(self.segments, SEGMENT_COLUMNS)

    def requeue_columns(self) -> dict[str, IntColumn]:
        return columns(self.requeues, REQUEUE_COLUMNS)

    def hold_columns(self) -> dict[str, IntColumn]:
        return columns(self.holds, HOLD_COLUMNS)


@dataclass
class RunLog:
    """A whole run.

    Attributes:
        requests: one row per request that arrived, in the order in which they ended.
        reasons: texts of rejections, index 0 is empty.
        status: ``ok``; ``deadlock``: requests wait that nothing will ever admit; ``livelock``: they
            preempt each other for ever; ``max_steps``: cut.
        end_ps: when the last request ended, or when the run was cut.
        limits: the engine's limits, for the binding limit: max_num_seqs, max_num_batched_tokens, max_model_len
            (the highest of all replicas, where they differ).
        fleet: what happened to the replicas, where they may fail, start or stop.
        handovers: one row per request that went from a prefill replica to a decode replica (disaggregation).
        prefill_replicas: how many of the first replicas prefill alone (disaggregation); 0: none.
        link_bytes_per_token: KV of a token that goes over the link, all ranks together.
    """

    workload: Workload
    replicas: list[ReplicaLog]
    requests: array[int] = field(default_factory=_table)
    reasons: list[str] = field(default_factory=lambda: [""])
    status: RunStatus = "ok"
    end_ps: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    fleet: FleetLog | None = None
    handovers: array[int] = field(default_factory=_table)
    prefill_replicas: int = 0
    link_bytes_per_token: int = 0

    def request_columns(self) -> dict[str, IntColumn]:
        """Columns sorted by workload row, so that they do not depend on the order of ending."""
        table = columns(self.requests, REQUEST_COLUMNS)
        order = np.argsort(table["row"], kind="stable")
        return {name: column[order] for name, column in table.items()}

    def handover_columns(self) -> dict[str, IntColumn]:
        """Columns in the order of the workload's rows."""
        return columns(self.handovers, HANDOVER_COLUMNS)
