"""A smoke check, not a validation: the defaults against one measured run of vLLM 0.19 on an RTX 4090.

That run had asynchronous scheduling and prefix caching, which this engine does not have yet; the card also reaches
more of its data sheet (0.94 of bandwidth, 1.0 of the fp32-accumulate FLOP/s) than the defaults grant.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from simulator.allocators.pools import PagedPool
from simulator.catalog import find_gpu, find_model
from simulator.cluster import simulate
from simulator.schedulers.config import EngineConfig
from simulator.step_time.config import RooflineConfig, build_step_time
from tests.support import DATA, needs_shared
from workloads.workload import PS_PER_S, Workload

FloatColumn = NDArray[np.float64]
RUN = DATA / "measured" / "rtx4090_llama31_8b"


def measured_rows() -> list[dict[str, float]]:
    lines = (RUN / "RTX4090_Llama-3.1-8B_requests.jsonl").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda row: row["arrival_time"])


def workload(rows: list[dict[str, float]]) -> Workload:
    """The inputs alone: arrivals from the first one on, prompt and output tokens."""
    first = rows[0]["arrival_time"]
    nothing = np.zeros(len(rows), dtype=np.int64)
    return Workload(
        arrival_ps=np.array([round((row["arrival_time"] - first) * PS_PER_S) for row in rows], dtype=np.int64),
        prompt_tokens=np.array([row["input_toks"] for row in rows], dtype=np.int64),
        output_tokens=np.array([row["output_toks"] for row in rows], dtype=np.int64),
        class_index=nothing,
        priority=nothing,
        after=nothing - 1,
        think_ps=nothing,
    )


@needs_shared
def test_defaults_land_near_the_measured_run() -> None:
    rows = measured_rows()
    log = simulate(
        workload(rows),
        EngineConfig(max_model_len=32_768, max_num_seqs=256, max_num_batched_tokens=2048),
        PagedPool(num_gpu_blocks=2588, block_size=16),
        build_step_time(RooflineConfig(), model=find_model("llama-3.1-8b"), gpu=find_gpu("rtx-4090")),
    )
    ours = log.request_columns()
    output = np.array([row["output_toks"] for row in rows])
    assert (ours["generated_tokens"] == output).all()
    first, last = (np.array([row[f"{which}_token_ts"] for row in rows]) for which in ("first", "last"))
    started = min(row["queued_ts"] for row in rows)
    measured = {"throughput": output.sum() / (last.max() - started), "tpot": tpot_ms(first, last, output)}
    simulated = {
        "throughput": output.sum() / (ours["finish_ps"].max() / PS_PER_S),
        "tpot": tpot_ms(ours["first_token_ps"] / PS_PER_S, ours["finish_ps"] / PS_PER_S, output),
    }
    errors = {name: simulated[name] / measured[name] - 1 for name in measured}
    print({name: f"{100 * error:+.1f} %" for name, error in errors.items()})
    assert all(abs(error) < 0.08 for error in errors.values()), errors


def tpot_ms(first_s: FloatColumn, last_s: FloatColumn, output_tokens: FloatColumn) -> float:
    """Mean of (latency - TTFT) / (output tokens - 1)."""
    several = output_tokens > 1
    return float(1e3 * np.mean((last_s - first_s)[several] / (output_tokens[several] - 1)))
