"""What a block table costs: its bytes, and the entries that a step looks up."""

from __future__ import annotations

import pytest

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

STEP_TIME = LinearStepTime(1_000_000_000, 0, 0)
ENGINE = EngineConfig(max_model_len=100, max_num_seqs=8, max_num_batched_tokens=100)


def kv(pool: PoolConfig, prompts: list[int], outputs: list[int], stepwise: bool) -> dict[str, float]:
    workload = Workload.from_columns([0] * len(prompts), prompts, outputs)
    found: dict[str, float] = summarize(simulate(workload, ENGINE, pool, STEP_TIME, stepwise=stepwise))["kv"]
    return found


@pytest.mark.parametrize("stepwise", [False, True])
def test_lookups_by_hand(stepwise: bool) -> None:
    # 7 tokens in blocks of 4, then two decodes: 7, 8, 9 tokens held, so 2, 2 and 3 entries
    one = kv(PagedPool(50, 4), [7], [3], stepwise)
    assert one["mean_block_table_lookups_per_step"] == pytest.approx(7 / 3)
    # with a second request of 1, 2, ..., 6 tokens: 1+2, 1+2, 1+3, then alone 1, 2, 2 entries
    two = kv(PagedPool(50, 4), [7, 1], [3, 6], stepwise)
    assert two["mean_block_table_lookups_per_step"] == pytest.approx((3 + 3 + 4 + 1 + 2 + 2) / 6)


def test_bytes_are_those_of_vllms_table() -> None:
    assert kv(PagedPool(50, 16), [7], [3], False)["block_table_bytes"] == 4 * 8 * 7  # int32, 8 rows, 7 blocks of 16
    assert kv(PagedPool(500, 1), [7], [3], False)["block_table_bytes"] == 4 * 8 * 100


def test_a_contiguous_cache_has_no_table() -> None:
    found = kv(ContiguousPool(800), [7], [3], False)
    assert found["block_table_bytes"] == 0 and found["mean_block_table_lookups_per_step"] == 0
