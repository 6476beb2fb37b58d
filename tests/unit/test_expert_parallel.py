"""Expert parallelism: whole experts on a rank, and a step that waits for the busiest rank."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.calibration import find_calibration
from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.memory_budget import budget
from simulator.memory_settings import MemorySettings
from simulator.rank_memory import Stage, stage_weight_bytes
from simulator.specs import Parallelism
from simulator.step_time.rank_work import RankWork, largest_of_normals, rank_work
from simulator.step_time.roofline import Roofline
from tests.step_time_support import batch_of, model, qwen3_30b_a3b

DEFAULT = find_calibration("default")
H100 = find_gpu("h100-sxm-80gb")


def work_of(experts: int, per_token: int, ranks: int) -> RankWork:
    attention = qwen3_30b_a3b().attention
    spec = model(attention, experts=experts, experts_per_token=per_token, parameters_per_expert=1000, moe_layers=48)
    return rank_work(spec, ranks, 2.0, expert_parallel=True)


def routed(experts: int, per_token: int, tokens: int, runs: int) -> np.ndarray:
    """How often each expert is picked, one row a run: every token picks different experts, uniformly."""
    rng = np.random.default_rng(5)
    picks = rng.random((runs, tokens, experts)).argpartition(per_token - 1, axis=2)[:, :, :per_token]
    return np.stack([np.bincount(run.ravel(), minlength=experts) for run in picks])


@pytest.mark.parametrize(
    ("experts", "per_token", "ranks"), [(128, 8, 8), (128, 8, 2), (256, 8, 16), (32, 4, 4), (8, 2, 4)]
)
@pytest.mark.parametrize("tokens", [1, 4, 32, 128])
def test_the_busiest_rank_is_that_of_random_routing(experts: int, per_token: int, ranks: int, tokens: int) -> None:
    """Within 12 %, and within 15 % where a rank has less than one pick: there a normal curve is only nearly theirs."""
    counts = routed(experts, per_token, tokens, 300).reshape(300, ranks, experts // ranks)
    work, near = work_of(experts, per_token, ranks), 0.12 if tokens * per_token >= ranks else 0.15
    assert work.expert_tokens(tokens) == pytest.approx(counts.sum(axis=2).max(axis=1).mean(), rel=near)
    assert work.experts_read(tokens) == pytest.approx((counts > 0).sum(axis=2).max(axis=1).mean(), rel=near)


def test_the_largest_of_normals_is_known() -> None:
    """Order statistics as tabulated (Teichroew 1956)."""
    known = {2: 0.56419, 3: 0.84628, 4: 1.02938, 8: 1.42360, 16: 1.76599}
    for n, mean in known.items():
        assert largest_of_normals(n) == pytest.approx(mean, abs=1e-5)


def test_without_it_every_rank_has_its_slice() -> None:
    sliced, whole = (rank_work(qwen3_30b_a3b(), 4, 2.0, expert_parallel=on) for on in (False, True))
    assert whole.expert_bytes == 4 * sliced.expert_bytes
    assert whole.dense_bytes == sliced.dense_bytes
    assert sliced.experts_read(16) == sliced.distinct_experts(16)
    for tokens in (1, 8, 64, 1024):
        # On average a rank reads and computes the same; the busiest one more, the less so the more tokens there are.
        assert 1.0 <= whole.experts_read(tokens) * 4 / whole.distinct_experts(tokens) <= 4.0
        assert 1.0 <= whole.expert_tokens(tokens) * 4 / (8 * tokens) <= 4.0
    assert whole.expert_tokens(100_000) * 4 / 800_000 == pytest.approx(1.0, abs=0.01)
    assert whole.experts_read(100_000) == 32


def test_a_step_takes_longer_by_the_imbalance_alone() -> None:
    spec = find_model("qwen3-30b-a3b")
    sliced, whole = (Roofline(spec, H100, Parallelism(4, enable_expert_parallel=on), DEFAULT) for on in (False, True))
    one = batch_of([1000], [])
    assert whole.segment(one).duration_ps > sliced.segment(one).duration_ps
    full = batch_of([], [(8192, 8192)])
    assert whole.segment(full).duration_ps == pytest.approx(sliced.segment(full).duration_ps, rel=0.03)
    assert any("busiest of 4 ranks" in note for note in whole.assumptions)
    alone = Roofline(spec, H100, Parallelism(1, enable_expert_parallel=True), DEFAULT)
    assert alone.segment(one) == Roofline(spec, H100, Parallelism(1), DEFAULT).segment(one)


def test_memory_of_whole_experts() -> None:
    deepseek = find_model("deepseek-v3")
    everything = Stage(range(deepseek.num_layers), True, True)
    even = [stage_weight_bytes(deepseek, everything, 8, expert_parallel=on) for on in (False, True)]
    assert even[1] == pytest.approx(even[0], abs=deepseek.num_layers)
    odd = model(qwen3_30b_a3b().attention, experts=10, experts_per_token=2, parameters_per_expert=1000, moe_layers=48)
    one_layer = Stage(range(1), False, False)
    sliced, whole = (stage_weight_bytes(odd, one_layer, 4, expert_parallel=on) for on in (False, True))
    assert whole - sliced == pytest.approx(2 * 48 * 1000 * (3 - 2.5), abs=1), "three whole experts instead of 2.5"


def test_a_budget_and_a_dense_model() -> None:
    asked = Parallelism(2, enable_expert_parallel=True)
    with_experts = budget(find_model("mixtral-8x7b"), H100, asked, MemorySettings())
    assert (
        with_experts.weight_bytes_per_gpu
        == budget(find_model("mixtral-8x7b"), H100, Parallelism(2), MemorySettings()).weight_bytes_per_gpu
    )
    with pytest.raises(InputError, match="no experts to share out"):
        budget(find_model("llama-3.1-8b"), H100, asked, MemorySettings())
