"""Step times of pipeline stages: together the whole model, embedding first and LM head last, transfers charged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.calibration import find_calibration
from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.specs import GpuSpec, Parallelism
from simulator.step_time.config import LinearConfig, RooflineConfig, build_step_time
from simulator.step_time.pipeline import StageTransfer
from simulator.step_time.pipelined_roofline import PipelinedRoofline
from simulator.step_time.roofline import Roofline
from simulator.weight_dtype import with_weight_dtype
from tests.step_time_support import batch_of

DEFAULT = find_calibration("default")
H100 = find_gpu("h100-sxm-80gb")
LLAMA_70B = find_model("llama-3.1-70b")


def pipeline(model: str, tp: int, pp: int, gpu: GpuSpec = H100) -> PipelinedRoofline:
    return PipelinedRoofline(find_model(model), gpu, Parallelism(tp, pp), DEFAULT)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b"])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (1, 2), (2, 3), (8, 4)])
def test_stages_add_up_to_the_whole_model(model: str, tp: int, pp: int) -> None:
    """All but rounding, and for experts nothing else: each layer is timed as in the whole."""
    spec = find_model(model)
    whole, piped = Roofline(spec, H100, Parallelism(tp), DEFAULT), pipeline(model, tp, pp)
    windows = piped.windows
    assert windows == whole.windows
    assert sum(stage.work.layers for stage in piped.rooflines) == spec.num_layers
    assert sum(stage.work.expert_layers for stage in piped.rooflines) == spec.num_moe_layers
    for batch in (
        batch_of([1000] * 8, [], windows),
        batch_of([500] * 3, [(512, 512), (64, 2000)], windows),
        batch_of([], [(8192, 8192)], windows),
    ):
        stages = piped.stages_ps(batch)
        assert len(stages) == pp
        # max(bytes, FLOPs) of all layers together is at most the sum of the stages' maxima, and nearly as much.
        assert sum(stages) == pytest.approx(whole.segment(batch).duration_ps, rel=0.003)
        transfers = (pp - 1) * piped.transfer_ps(batch)
        assert piped.segment(batch).duration_ps == sum(stages) + transfers
        rounded = batch.decodes * pp * (1 + len(windows))
        assert piped.segment(batch).growth_ps == pytest.approx(whole.segment(batch).growth_ps, abs=rounded)


def test_the_lm_head_and_the_host_are_charged_once() -> None:
    first, middle, last = pipeline("llama-3.1-70b", 1, 3).rooflines
    assert (first.head_ps(8), middle.head_ps(8)) == (0, 0)
    assert last.head_ps(8) == Roofline(LLAMA_70B, H100, Parallelism(), DEFAULT).head_ps(8) > 0
    assert (first.work.head_bytes, middle.work.head_bytes) == (0.0, 0.0)
    batch = batch_of([1000] * 8, [])
    host_ps = round(1e12 * (DEFAULT.overhead_ms * 1e-3 + 8 * DEFAULT.per_request_us * 1e-6))
    same = replace(DEFAULT, overhead_ms=0.0, per_request_us=0.0)
    without = PipelinedRoofline(LLAMA_70B, H100, Parallelism(1, 3), same)
    pairs = zip(pipeline("llama-3.1-70b", 1, 3).stages_ps(batch), without.stages_ps(batch), strict=True)
    charged = [with_host - alone for with_host, alone in pairs]
    assert charged == [pytest.approx(host_ps, abs=10), 0, 0]


def test_activations_travel_over_the_link_or_pcie() -> None:
    tokens = batch_of([100] * 4, [(1000, 1000)])
    message = 1004 * 8192 * 2 * 2  # hidden vector and residual, 16 bit
    link = pipeline("llama-3.1-70b", 2, 2)
    assert H100.link_bytes_per_s is not None
    expected_s = DEFAULT.all_reduce_latency_us * 1e-6 + message / (H100.link_bytes_per_s * DEFAULT.link_efficiency)
    assert link.transfer_ps(tokens) == pytest.approx(1e12 * expected_s, rel=1e-6)
    card = find_gpu("l40s")
    slow = pipeline("llama-3.1-70b", 1, 2, card)
    expected_s = DEFAULT.pcie_hop_latency_us * 1e-6 + message / (card.pcie_bytes_per_s * DEFAULT.pcie_efficiency)
    assert slow.transfer_ps(tokens) == pytest.approx(1e12 * expected_s, rel=1e-6)
    assert StageTransfer(7, 1).ps(1) == 8, "rounded up"
    assert not any("more than one node" in note for note in pipeline("llama-3.1-70b", 2, 4).assumptions)
    assert any("16 GPUs are more than one node's" in note for note in pipeline("llama-3.1-70b", 4, 4).assumptions)


def test_pipelines_beside_tensor_parallelism() -> None:
    """Two GPUs on one batch are faster than one after the other; in full pipelines no all-reduce is to be paid."""
    held = with_weight_dtype(LLAMA_70B, "fp8")
    batch = batch_of([2000] * 16, [])
    tensor = Roofline(held, H100, Parallelism(2), DEFAULT).segment(batch).duration_ps
    piped = PipelinedRoofline(held, H100, Parallelism(1, 2), DEFAULT)
    assert tensor < piped.segment(batch).duration_ps < 2 * tensor
    assert max(piped.stages_ps(batch)) < tensor


def test_other_step_times_and_pipelines() -> None:
    two = Parallelism(1, 2)
    built = build_step_time(RooflineConfig(), model=LLAMA_70B, gpu=H100, parallelism=two)
    assert isinstance(built, PipelinedRoofline)
    assert built.bound_by(4096, 4, 0, 4096) == "compute"
    assert built.bound_by(8, 16, 8, 8000) == "bandwidth"
    with pytest.raises(InputError, match=r"that of each stage.*kind: roofline"):
        build_step_time(LinearConfig(6, 50, 26), model=None, gpu=None, parallelism=two)
    with pytest.raises(InputError, match="81 does not fit 80 layers"):
        build_step_time(RooflineConfig(), model=LLAMA_70B, gpu=H100, parallelism=Parallelism(1, 81))
