"""A pipeline against arithmetic: latency is the sum of its stages, throughput that of the slowest, bubbles the rest."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from simulator.step_time.pipeline import PipelinedStepTime, StageTransfer
from workloads.workload import Workload

MS = 1_000_000_000
PROMPT = 64


def serve(
    stages_ms: list[int], requests: int, *, outputs: int = 400, prompt: int = PROMPT, transfer_ms: int = 0
) -> dict[str, Any]:
    """All at once; a pass takes ``PROMPT`` tokens: each prompt begins a batch of its own while there is room."""
    step_time = PipelinedStepTime(
        tuple(LinearStepTime(stage * MS, 0, 0) for stage in stages_ms), StageTransfer(transfer_ms * MS)
    )
    work = Workload.from_columns([0] * requests, [prompt] * requests, [outputs] * requests)
    engine = EngineConfig(max_model_len=4096, max_num_seqs=32, max_num_batched_tokens=PROMPT)
    return summarize(simulate(work, engine, PagedPool(5000), step_time))


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
def test_a_lone_request_sees_no_speed_up(stages: int) -> None:
    got = serve([24 // stages] * stages, 1)
    assert got["mean_tpot_ms"] == got["median_itl_ms"] == pytest.approx(24)
    assert got["mean_ttft_ms"] == pytest.approx(24)
    assert got["pipeline"]["bubble_share"] == pytest.approx((stages - 1) / stages)
    assert got["pipeline"]["stage_busy_share"] == pytest.approx([1 / stages] * stages)
    assert got["pipeline"]["mean_batches_in_flight"] == 1.0


def test_a_token_takes_the_sum_of_stages_and_transfers() -> None:
    got = serve([3, 5, 2], 1, transfer_ms=4)
    assert got["median_itl_ms"] == pytest.approx(3 + 5 + 2 + 2 * 4)
    assert got["pipeline"]["stage_busy_share"] == pytest.approx([3 / 18, 5 / 18, 2 / 18])


@pytest.mark.parametrize("stages_ms", [[6, 6], [4, 4, 4], [3, 3, 3, 3], [2, 5, 3], [7, 1], [1, 1, 1, 9]])
def test_as_many_batches_as_stages_run_at_the_pace_of_the_slowest(stages_ms: list[int]) -> None:
    """One token of each of p batches in p times the slowest stage, which never waits."""
    stages = len(stages_ms)
    got = serve(stages_ms, stages)
    assert got["median_itl_ms"] == pytest.approx(stages * max(stages_ms))
    assert got["output_throughput"] == pytest.approx(1000 / max(stages_ms), rel=0.02)
    assert max(got["pipeline"]["stage_busy_share"]) > 0.98
    assert got["pipeline"]["bubble_share"] == pytest.approx(1 - sum(stages_ms) / stages / max(stages_ms), abs=0.02)
    assert got["pipeline"]["mean_batches_in_flight"] == pytest.approx(stages, rel=0.02)


def test_transfers_bound_the_pace_where_batches_wait_for_them() -> None:
    """Two batches, stages of 5, 6 ms on the way: a round takes 5 + 6 + 5, in which both get a token."""
    got = serve([5, 5], 2, transfer_ms=6)
    assert got["median_itl_ms"] == pytest.approx(16)
    assert got["output_throughput"] == pytest.approx(2000 / 16, rel=0.02)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_chunks_of_a_prompt_follow_each_other_through_the_stages(stages: int) -> None:
    """n chunks of T on each of p stages: the last leaves after (n + p - 1) T, not after n p T."""
    chunks = 16
    got = serve([5] * stages, 1, outputs=1, prompt=chunks * PROMPT)
    assert got["mean_ttft_ms"] == pytest.approx(5 * (chunks + stages - 1))
    assert got["engine_steps"] == chunks


def test_requests_that_were_batched_together_stay_together() -> None:
    """Eight short prompts fit in one pass: as in vLLM v1 one batch decodes them all, and three of four stages wait."""
    got = serve([5] * 4, 8, prompt=8)
    assert got["median_itl_ms"] == pytest.approx(20)
    assert got["pipeline"]["bubble_share"] == pytest.approx(0.75)
    split = serve([5] * 4, 8, prompt=32)  # two a pass: four batches
    assert split["median_itl_ms"] == pytest.approx(20)
    assert split["pipeline"]["bubble_share"] < 0.05
