"""Metrics come out the same from leaps as from single steps, and as from a slow expansion of every step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.metrics import MetricsOptions, summarize
from simulator.metrics_timeline import timeline
from simulator.run_log import RunLog
from tests.synthetic_log import Server, Truth, merged, random_workload, server_log


@st.composite
def runs(draw: st.DrawFn) -> tuple[RunLog, Truth, Server]:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 16]))
    server = Server(
        blocks=draw(st.integers(24, 80)) // block_size + 1,
        block_size=block_size,
        max_num_seqs=draw(st.integers(1, 6)),
        budget=draw(st.integers(2, 40)),
        per_token_ps=draw(st.integers(0, 3) | st.just(50_000_000)),
        per_context_ps=draw(st.sampled_from([0, 1, 26_000])),
        reserve=draw(st.none() | st.integers(10, 30)),
        replicas=draw(st.integers(1, 3)),
    )
    gap_ps = draw(st.sampled_from([0, 1_000_000_000, 100_000_000_000]))
    work = random_workload(draw(st.integers(0, 999)), draw(st.integers(1, 25)), gap_ps, draw(st.integers(2, 40)))
    log, truth = server_log(work, server)
    return log, truth, server


@settings(max_examples=120, deadline=None)
@given(runs(), st.integers(0, 99), st.sampled_from([0.5, 1.0]))
def test_leaps_change_nothing(run: tuple[RunLog, Truth, Server], seed: int, chance: float) -> None:
    log, _, _ = run
    leaps = merged(log, seed, chance)
    assert summarize(leaps) == summarize(log)
    ours, theirs = timeline(leaps, 40), timeline(log, 40)
    for name, column in theirs.state.items():
        assert column.tolist() == ours.state[name].tolist(), name


@settings(max_examples=60, deadline=None)
@given(runs(), st.integers(0, 99), st.floats(0.001, 0.2))
def test_leaps_change_nothing_after_a_warmup(run: tuple[RunLog, Truth, Server], seed: int, warmup_s: float) -> None:
    log, _, _ = run
    arrivals = log.request_columns()["arrival_ps"]
    warmup_s = min(warmup_s, float(arrivals.max() - arrivals.min()) / 1e12)
    options = MetricsOptions(warmup_s=warmup_s)
    assert summarize(merged(log, seed), options) == summarize(log, options)


@settings(max_examples=120, deadline=None)
@given(runs(), st.integers(0, 99))
def test_equal_to_a_slow_expansion(run: tuple[RunLog, Truth, Server], seed: int) -> None:
    log, truth, server = run
    got = summarize(merged(log, seed, 1.0))
    _same_gaps(got, truth)
    total = server.slots * server.replicas * got["duration"] * 1e12
    if total == 0:
        return
    integral = {
        name: sum((end - start) * step[i] for step in truth.steps for start, end in [step[:2]])
        for i, name in ((2, "running"), (3, "stored"), (4, "used"))
    }
    kv = got["kv"]
    assert got["mean_running"] == pytest.approx(integral["running"] / (got["duration"] * 1e12), rel=1e-12)
    assert kv["token_share"] == pytest.approx(integral["stored"] / total, rel=1e-12)
    assert kv["mean_utilization"] == pytest.approx(integral["used"] / total, rel=1e-12)
    assert kv["peak_utilization"] == max([step[4] for step in truth.steps], default=0) / server.slots
    parts = ("token_share", "reserved_share", "internal_fragmentation_share", "external_fragmentation_share")
    assert all(0 <= kv[part] <= 1 for part in parts)
    assert sum(kv[part] for part in parts) + kv["free_share"] == pytest.approx(1, abs=1e-12)
    assert got["engine_steps"] == len(truth.steps)


def _same_gaps(got: dict[str, float], truth: Truth) -> None:
    if not truth.gaps:
        assert got["mean_itl_ms"] is None
        return
    gaps = np.array(truth.gaps, dtype=np.int64)
    milliseconds = gaps / 1e9
    for name, percent in (("median", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        assert got[f"{name}_itl_ms"] == np.percentile(milliseconds, percent), name
    assert got["mean_itl_ms"] == sum(truth.gaps) / len(truth.gaps) / 1e9
    spread = len(truth.gaps) * sum(gap * gap for gap in truth.gaps) - sum(truth.gaps) ** 2
    assert got["std_itl_ms"] == math.sqrt(spread) / len(truth.gaps) / 1e9
