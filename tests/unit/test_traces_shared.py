"""The real traces of ../shared/data: what they are known to hold."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from simulator.random_streams import Streams
from tests.support import DATA, needs_shared
from workloads.arrivals import Poisson
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.describe import describe
from workloads.describe_text import describe_text
from workloads.traces.config import TraceConfig
from workloads.workload import PS_PER_S, Workload

pytestmark = needs_shared


def build(name: str, **fields: Any) -> Workload:
    (path,) = (DATA / "traces").glob(name)
    return build_workload(WorkloadConfig(trace=TraceConfig(path=str(path)), **fields), Streams(0))


def test_mooncake_conversation() -> None:
    begin = time.process_time()
    workload = build("mooncake*")
    facts = describe(workload, max_model_len=8192)
    assert time.process_time() - begin < 3.0
    assert len(workload) == 12_031 and facts["rows_dropped"] == 0 and facts["format"] == "mooncake"
    assert facts["prompt_blocks"] == 288_500
    assert round(100 * facts["ideal_prefix_hit_rate"], 1) == 36.6
    assert facts["prompt_tokens"]["max"] == 126_195
    # twice over what a reader of the README would do: every id that was seen before is a hit
    seen: set[str] = set()
    hits = 0
    assert workload.segments is not None
    for row in workload.segments:
        names = [stream for stream, _, _ in row or ()]
        hits += sum(name in seen for name in names)
        seen.update(names)
    assert hits / 288_500 == facts["ideal_prefix_hit_rate"]
    assert facts["over_limit"]["prompts_too_long"] == int(np.sum(workload.prompt_tokens >= 8192)) > 5000
    text = describe_text(facts)
    assert text.isascii() and "36.6 %" in text


def test_azure_conversation() -> None:
    workload = build("Azure*")
    assert len(workload) == 19_366
    assert workload.arrival_ps[1] == 4_314_579 * 10**6  # 18:15:50.9951690 - 18:15:46.6805900
    assert int(workload.prompt_tokens.sum()) == 22_361_870 and int(workload.output_tokens.sum()) == 4_088_665
    facts = describe(workload)
    assert facts["ideal_prefix_hit_rate"] is None and "unknown" in describe_text(facts)


def test_sharegpt_with_sixteen_token_blocks() -> None:
    workload = build("sharegpt*")
    assert len(workload) == 300 and workload.trace is not None and workload.trace.block_size == 16
    assert workload.arrival_ps[0] == 46_926_808_000
    assert workload.segments is not None
    for prompt, row in zip(workload.prompt_tokens.tolist(), workload.segments, strict=True):
        assert sum(length for _, _, length in row or ()) in (prompt, 0)


def test_apex_arrivals_are_half_a_request_a_second() -> None:
    workload = build("apex*")
    assert len(workload) == 1024 and workload.arrival_ps[0] == 197_890_289_000
    rate = describe(workload)["arrivals"]["mean_rate_rps"]
    assert abs(rate / 0.5 - 1) < 3.9 / np.sqrt(1023)


def test_etalon_lengths_with_arrivals_of_our_own() -> None:
    workload = build("etalon*", arrivals=Poisson(5))
    assert len(workload) == 30_731
    assert (workload.prompt_tokens[0], workload.output_tokens[0]) == (74, 918)
    assert abs(workload.arrival_ps[-1] / PS_PER_S / (30_731 / 5) - 1) < 3.9 / np.sqrt(30_731)
