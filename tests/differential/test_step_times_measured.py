"""The default calibration against step times read off NVIDIA's kernel measurements, per GPU.

Kernels only: the host's overhead is set to 0, as the tables have none. fp8 rows have an fp8 KV cache. The bounds are
what one generic set of numbers reaches, with little room: a change of the model that makes it worse shows here.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from statistics import fmean, median

import pytest

from simulator.calibration import find_calibration
from simulator.specs import ModelSpec, Parallelism
from simulator.step_time.base import Batch
from simulator.step_time.roofline import Roofline
from tests.step_time_support import GPUS, batch_of, llama_8b, llama_70b, qwen3_30b_a3b
from tests.support import DATA, needs_shared

KERNELS_ONLY = find_calibration("default").with_overrides({"overhead_ms": 0.0, "per_request_us": 0.0}, where="test")
Row = dict[str, str]

# GPU -> limit of the median absolute error over 16-bit rows of vLLM kernels, in percent.
DECODE_LIMITS = {
    "a100_sxm": 22,  # rows of an older engine version, slower in every part
    "b200_sxm": 9,
    "h100_sxm": 5,
    "h200_sxm": 7,
    "l40s": 12,
    "rtx_pro_6000_server": 6,
}
PREFILL_LIMITS = {
    "a100_sxm": 13,
    "b200_sxm": 15,
    "h100_sxm": 10,
    "h200_sxm": 9,
    "rtx_pro_6000_server": 11,
}


@cache
def roofline(model: str, gpu: str, ranks: int, dtype: str) -> Roofline:
    width = 1.0 if dtype == "fp8" else 2.0
    return Roofline(shape(model, width), GPUS[gpu], Parallelism(ranks), KERNELS_ONLY, kv_dtype_bytes=width)


def shape(name: str, width: float) -> ModelSpec:
    if "70B" in name:
        return llama_70b(width)
    return qwen3_30b_a3b() if "A3B" in name else llama_8b(width)


def decode_batch(row: Row) -> Batch:
    return batch_of([int(row["context"])] * int(row["batch"]), [])


def prefill_batch(row: Row) -> Batch:
    tokens = int(row["tokens_per_seq"])
    return batch_of([], [(tokens, tokens)] * int(row["batch"]))


def rows(file: str) -> Iterator[Row]:
    with (DATA / "step_times" / file).open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["backend"] == "vllm" and row.get("weights_fit_in_90pct_hbm", "1") == "1":
                yield row


def errors_by_gpu(file: str, measured: str, dtype: str) -> dict[str, list[float]]:
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows(file):
        if row["dtype"] == dtype:
            model = roofline(row["model"], row["gpu"], int(row["tp"]), dtype)
            batch = decode_batch(row) if file == "decode_steps.csv" else prefill_batch(row)
            predicted_ms = model.segment(batch).duration_ps / 1e9
            errors[row["gpu"]].append(predicted_ms / float(row[measured]) - 1)
    return errors


@needs_shared
@pytest.mark.parametrize(
    ("file", "measured", "limits"),
    [("decode_steps.csv", "decode_ms", DECODE_LIMITS), ("prefill.csv", "prefill_ms", PREFILL_LIMITS)],
)
def test_generic_numbers_are_near_kernel_measurements(file: str, measured: str, limits: dict[str, int]) -> None:
    for dtype in ("bf16", "fp8"):
        for gpu, errors in sorted(errors_by_gpu(file, measured, dtype).items()):
            sizes = [100 * abs(error) for error in errors]
            bias = 100 * fmean(errors)
            print(
                f"{file:16} {dtype} {gpu:20} n {len(sizes):4}  median {median(sizes):5.1f} %  "
                f"mean {fmean(sizes):5.1f} %  bias {bias:+6.1f} %"
            )
            if dtype == "bf16" and gpu in limits:
                assert median(sizes) < limits[gpu]
