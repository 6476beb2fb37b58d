"""Synthetic workloads: what each part of a configuration does to the columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.random_streams import Streams
from workloads.arrivals import AllAtOnce, ClosedLoop, Constant, Poisson, Replay, Stage, Stages
from workloads.build import build_workload
from workloads.config import WorkloadConfig, check_workload
from workloads.errors import WorkloadError
from workloads.lengths import Empirical, Fixed, Lognormal, Pairs, Uniform
from workloads.mixes import ClassConfig
from workloads.prefixes import SharedPrefix
from workloads.sessions import Sessions, ThinkTime
from workloads.workload import PS_PER_S, Workload

CHAT = WorkloadConfig(
    num_requests=200, arrivals=Poisson(8), prompt_tokens=Lognormal(512, 1, max=4096), output_tokens=Uniform(10, 90)
)


def build(config: WorkloadConfig, seed: int = 0, **more: Any) -> Workload:
    return build_workload(config, Streams(seed), **more)


def test_columns_have_one_row_a_request_sorted_by_arrival() -> None:
    workload = build(CHAT)
    assert len(workload) == 200
    assert np.all(np.diff(workload.arrival_ps) >= 0)
    assert workload.arrival_ps.dtype == np.int64
    assert workload.requested_rate_rps == 8 and workload.burstiness == 1.0
    assert workload.segments is None and workload.max_concurrency is None


def test_the_same_seed_gives_the_same_workload_and_another_seed_another() -> None:
    assert np.array_equal(build(CHAT).prompt_tokens, build(CHAT).prompt_tokens)
    assert not np.array_equal(build(CHAT).prompt_tokens, build(CHAT, seed=1).prompt_tokens)


def test_changing_one_consumer_shifts_no_other() -> None:
    base = build(CHAT)
    faster = build(replace(CHAT, arrivals=Poisson(16)))
    assert np.array_equal(base.prompt_tokens, faster.prompt_tokens)
    assert np.array_equal(base.output_tokens, faster.output_tokens)
    assert np.allclose(base.arrival_ps / 2, faster.arrival_ps, atol=200)
    longer = build(replace(CHAT, output_tokens=Fixed(5)))
    assert np.array_equal(base.arrival_ps, longer.arrival_ps)
    assert np.array_equal(base.prompt_tokens, longer.prompt_tokens)
    prefixed = build(replace(CHAT, prefix=SharedPrefix(Fixed(100), groups=4)))
    assert np.array_equal(base.prompt_tokens + 100, prefixed.prompt_tokens)
    assert np.array_equal(base.output_tokens, prefixed.output_tokens)


def test_more_requests_continue_the_same_sequence() -> None:
    short, long = build(CHAT), build(replace(CHAT, num_requests=300))
    for name in ("arrival_ps", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(short, name), getattr(long, name)[:200])


def test_duration_ends_before_its_last_moment_and_the_first_bound_wins() -> None:
    by_time = build(replace(CHAT, num_requests=None, duration_s=10.0))
    assert 0 < len(by_time) < 200 and by_time.arrival_ps[-1] < 10 * PS_PER_S
    assert np.array_equal(by_time.arrival_ps, build(CHAT).arrival_ps[: len(by_time)])
    assert len(build(replace(CHAT, num_requests=5, duration_s=10.0))) == 5
    assert len(build(replace(CHAT, num_requests=None, duration_s=1.0, arrivals=Constant(4)))) == 4


def test_all_at_once_and_closed_loop() -> None:
    assert not build(replace(CHAT, arrivals=AllAtOnce())).arrival_ps.any()
    closed = build(replace(CHAT, arrivals=ClosedLoop(7)))
    assert closed.max_concurrency == 7 and not closed.arrival_ps.any() and closed.requested_rate_rps is None
    assert build(replace(CHAT, max_concurrency=3)).max_concurrency == 3


def test_replay_of_given_times_scales_and_sorts_them() -> None:
    workload = build(replace(CHAT, num_requests=3, arrivals=Replay(0.5, (4.0, 1.0, 2.0))))
    assert workload.arrival_ps.tolist() == [PS_PER_S // 2, PS_PER_S, 2 * PS_PER_S]


def test_empirical_lengths_and_pairs_keep_to_what_was_given(tmp_path: Path) -> None:
    workload = build(replace(CHAT, prompt_tokens=Empirical((3, 50, 700))))
    assert set(workload.prompt_tokens.tolist()) == {3, 50, 700}
    (tmp_path / "lengths.csv").write_text("name,tokens\na,11\nb,22\n")
    config = replace(CHAT, prompt_tokens=Empirical(path="lengths.csv", column="tokens"))
    assert set(build(config, base_dir=tmp_path).prompt_tokens.tolist()) == {11, 22}
    pairs = ((10, 1), (20, 2), (30, 3))
    joint = replace(CHAT, prompt_tokens=None, output_tokens=None, lengths=Pairs(pairs))
    assert set(zip(build(joint).prompt_tokens, build(joint).output_tokens, strict=True)) == set(pairs)
    in_order = build(replace(joint, num_requests=7, lengths=Pairs(pairs, order="in_order")))
    assert in_order.prompt_tokens.tolist() == [10, 20, 30, 10, 20, 30, 10]
    (tmp_path / "pairs.csv").write_text("prompt_tokens,output_tokens\n5,6\n7,8\n")
    from_file = build(replace(joint, lengths=Pairs(path="pairs.csv", order="in_order")), base_dir=tmp_path)
    assert from_file.output_tokens[:3].tolist() == [6, 8, 6]


def test_clipping_that_moves_the_mean_is_noted() -> None:
    assert build(CHAT).notes == ()  # 4096 is eight means away
    clipped = build(replace(CHAT, prompt_tokens=Lognormal(512, 1, max=600)))
    assert len(clipped.notes) == 1 and "512 is 3" in clipped.notes[0]


MIX = (
    ClassConfig("chat", weight=3, slo={"ttft_ms": {"p99": 500}}, output_tokens=Fixed(7)),
    ClassConfig("batch", weight=1, priority=5, prompt_tokens=Fixed(2000)),
)


def test_classes_share_arrivals_by_weight_and_inherit_what_they_leave_out() -> None:
    workload = build(replace(CHAT, num_requests=4000, classes=MIX))
    chat = workload.class_index == 0
    assert abs(chat.mean() - 0.75) < 3.9 * np.sqrt(0.75 * 0.25 / 4000)
    assert set(workload.output_tokens[chat].tolist()) == {7}
    assert set(workload.prompt_tokens[~chat].tolist()) == {2000}
    assert set(workload.priority[chat].tolist()) == {0} and set(workload.priority[~chat].tolist()) == {5}
    assert workload.classes[0].slo == {"ttft_ms": {"p99": 500}} and workload.classes[1].name == "batch"
    plain = build(replace(CHAT, num_requests=4000))
    assert np.array_equal(plain.arrival_ps, workload.arrival_ps)
    assert np.array_equal(plain.prompt_tokens[chat], workload.prompt_tokens[chat])


def test_a_class_of_weight_zero_gets_nothing() -> None:
    workload = build(replace(CHAT, classes=(MIX[0], replace(MIX[1], weight=0))))
    assert not workload.class_index.any()


def test_a_class_with_its_own_arrivals_runs_beside_the_common_ones() -> None:
    batch = ClassConfig("batch", arrivals=AllAtOnce(), num_requests=50, output_tokens=Fixed(1))
    workload = build(replace(CHAT, classes=(ClassConfig("chat"), batch)))
    assert np.all(workload.class_index[:50] == 1) and not workload.arrival_ps[:50].any()
    assert np.array_equal(workload.arrival_ps[50:], build(CHAT).arrival_ps[:150])
    both = (ClassConfig("a", arrivals=Poisson(2)), ClassConfig("b", arrivals=Constant(6)))
    merged = build(replace(CHAT, arrivals=None, num_requests=None, duration_s=100, classes=both))
    assert np.sum(merged.class_index == 1) == 600
    assert np.all(np.diff(merged.arrival_ps) >= 0) and merged.requested_rate_rps == 8


def test_classes_that_count_their_own_requests_need_no_total_and_a_total_must_be_reached() -> None:
    own = tuple(ClassConfig(name, arrivals=Poisson(3), num_requests=20) for name in "ab")
    config = replace(CHAT, arrivals=None, num_requests=None, classes=own)
    assert np.bincount(build(config).class_index).tolist() == [20, 20]
    with pytest.raises(WorkloadError, match="40 of 41") as caught:
        build(replace(config, num_requests=41))
    assert caught.value.where == "workload.num_requests" and "40" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "text,column,what",
    [
        ("", None, "is empty"),
        ("tokens\n", None, "no row"),
        ("5\nx\n", None, "not a number: 'x'"),
        ("5\n0\n", None, "below 1"),
        ("a,b\n1,2\n", None, "2 columns"),
        ("a,b\n1,2\n", "c", "no column 'c'"),
        ("a,b\n1\n", "b", "missing"),
    ],
)
def test_a_sample_file_must_be_clean(tmp_path: Path, text: str, column: str | None, what: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(WorkloadError, match=what) as caught:
        build(replace(CHAT, prompt_tokens=Empirical(path="f", column=column)), base_dir=tmp_path)
    assert caught.value.where and caught.value.remedy


def test_a_sample_file_may_be_bare_numbers(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("5\n\n9\n")
    workload = build(replace(CHAT, prompt_tokens=Empirical(path="f")), base_dir=tmp_path)
    assert set(workload.prompt_tokens.tolist()) == {5, 9}


def test_shared_prefixes_name_their_tokens() -> None:
    workload = build(replace(CHAT, prefix=SharedPrefix(Uniform(5, 500), groups=3, share=0.8)))
    assert workload.segments is not None
    lengths: dict[str, int] = {}
    for row, segments in enumerate(workload.segments):
        if segments is None:
            continue
        (stream, start, length), own = segments
        assert start == 0 and own == (f"p:{row}", 0, workload.prompt_tokens[row] - length)
        assert lengths.setdefault(stream, length) == length
    assert len(lengths) == 3
    alone = sum(segments is None for segments in workload.segments)
    assert abs(alone / 200 - 0.2) < 3.9 * np.sqrt(0.16 / 200)


def test_zipf_prefixes_favour_the_first() -> None:
    config = replace(CHAT, num_requests=5000, prefix=SharedPrefix(Fixed(9), groups=4, popularity="zipf"))
    segments = build(config).segments
    assert segments is not None
    counts = np.bincount([int(row[0][0].rsplit(":", 1)[1]) for row in segments if row is not None])
    expected = np.array([1, 1 / 2, 1 / 3, 1 / 4]) / (25 / 12)
    assert np.all(np.abs(counts / 5000 - expected) < 3.9 * np.sqrt(expected * (1 - expected) / 5000))


SESSIONS = replace(
    CHAT, session=Sessions(turns=Uniform(1, 6), think=ThinkTime(2.0)), prefix=SharedPrefix(Fixed(100), groups=2)
)


def test_a_later_turn_holds_all_earlier_ones_and_follows_them() -> None:
    workload = build(SESSIONS)
    assert len(workload) == 200 and workload.segments is not None
    for row in range(200):
        segments = workload.segments[row]
        assert segments is not None and sum(length for _, _, length in segments) == workload.prompt_tokens[row]
        before = int(workload.after[row])
        if before < 0:
            assert [s[0] for s in segments][1:] == [f"p:{row}"] and workload.think_ps[row] == 0
        else:
            assert before == row - 1 and workload.think_ps[row] == 2 * PS_PER_S
            earlier = workload.segments[before]
            assert earlier is not None
            assert segments[:-1] == (*earlier, (f"o:{before}", 0, int(workload.output_tokens[before])))
            assert workload.arrival_ps[row] == workload.arrival_ps[before]


def test_sessions_end_before_they_pass_the_context() -> None:
    session = Sessions(turns=Fixed(50), max_context_tokens=5000)
    workload = build(replace(SESSIONS, session=session))
    total = workload.prompt_tokens + workload.output_tokens
    later = workload.after >= 0
    assert later.any() and np.all(total[later] <= 5000) and len(workload) == 200
    last = np.flatnonzero(workload.after[1:] < 0)  # rows whose session ends
    uncapped = build(replace(SESSIONS, session=Sessions(turns=Fixed(50)), num_requests=10_000))
    first_session = uncapped.prompt_tokens[:50] + uncapped.output_tokens[:50]
    assert last[0] + 1 == max(1, int(np.sum(first_session <= 5000)))


@pytest.mark.parametrize("law,mean_cv", [("constant", 0.0), ("exponential", 1.0), ("lognormal", 0.5)])
def test_think_times_have_their_mean(law: Any, mean_cv: float) -> None:
    think = ThinkTime(3.0, law, cv=0.5)
    workload = build(replace(SESSIONS, num_requests=5000, session=Sessions(Fixed(5), think)))
    seconds = workload.think_ps[workload.after >= 0] / PS_PER_S
    assert abs(seconds.mean() - 3) <= 3.9 * 3 * mean_cv / np.sqrt(len(seconds))


def changed(**fields: Any) -> WorkloadConfig:
    return replace(CHAT, **fields)


NAN, INF = float("nan"), float("inf")
TRUE: Any = True
TEXT: Any = "eight"
BAD: list[tuple[WorkloadConfig, str, str]] = [
    (changed(num_requests=None), "workload", "num_requests or duration_s"),
    (changed(num_requests=0), "workload.num_requests", "1 or more"),
    (changed(num_requests=TRUE), "workload.num_requests", "1 or more"),
    (changed(duration_s=NAN), "workload.duration_s", "above 0"),
    (changed(arrivals=None), "workload", "arrivals"),
    (changed(arrivals=Poisson(-1)), "workload.arrivals.rate_rps", "above 0"),
    (changed(arrivals=Poisson(NAN)), "workload.arrivals.rate_rps", "above 0"),
    (changed(arrivals=Poisson(INF)), "workload.arrivals.rate_rps", "all_at_once"),
    (changed(arrivals=Poisson(TRUE)), "workload.arrivals.rate_rps", "above 0"),
    (changed(arrivals=Poisson(TEXT)), "workload.arrivals.rate_rps", "above 0"),
    (changed(arrivals=Stages(())), "workload.arrivals.stages", "duration_s"),
    (changed(arrivals=Stages((Stage(1, 1),))), "workload.arrivals", "requests"),
    (changed(arrivals=ClosedLoop(0)), "workload.arrivals.max_concurrency", "1 or more"),
    (changed(arrivals=ClosedLoop(2), max_concurrency=2), "workload.max_concurrency", "arrivals"),
    (changed(arrivals=AllAtOnce(), num_requests=None, duration_s=5), "workload", "num_requests"),
    (changed(arrivals=Replay()), "workload.arrivals", "times_s"),
    (changed(arrivals=Replay(times_s=(1.0, 2.0))), "workload.arrivals", "2 requests"),
    (changed(arrivals=Poisson(1e-9)), "workload.arrivals", "raise the rate"),
    (changed(prompt_tokens=None), "workload", "fixed"),
    (changed(prompt_tokens=Fixed(0)), "workload.prompt_tokens.tokens", "1 or more"),
    (changed(prompt_tokens=Uniform(5, 4)), "workload.prompt_tokens.max", "5 or more"),
    (changed(prompt_tokens=Lognormal(0, 1)), "workload.prompt_tokens.mean", "above 0"),
    (changed(prompt_tokens=Lognormal(5, -1)), "workload.prompt_tokens.cv", "0 or more"),
    (changed(prompt_tokens=Lognormal(5, 1, min=9, max=8)), "workload.prompt_tokens.max", "9 or more"),
    (changed(prompt_tokens=Empirical(())), "workload.prompt_tokens.values", "at least one"),
    (changed(prompt_tokens=Empirical()), "workload.prompt_tokens", "one of the two"),
    (changed(prompt_tokens=Empirical((4, 0))), "workload.prompt_tokens.values.1", "1 or more"),
    (changed(prompt_tokens=Empirical(path="no/such.txt")), "workload.prompt_tokens.path", "path"),
    (changed(lengths=Pairs(((1, 1),))), "workload.prompt_tokens", "leave out"),
    (changed(prompt_tokens=None, output_tokens=None, lengths=Pairs(())), "workload.lengths.pairs", "at least one"),
    (changed(prefix=SharedPrefix(Fixed(3), groups=0)), "workload.prefix.groups", "1 or more"),
    (changed(prefix=SharedPrefix(Fixed(3), share=1.5)), "workload.prefix.share", "1 or less"),
    (changed(session=Sessions(Fixed(0))), "workload.session.turns.tokens", "1 or more"),
    (changed(session=Sessions(Fixed(2), ThinkTime(-1))), "workload.session.think.mean_s", "0 or more"),
    (changed(session=Sessions(Fixed(2)), arrivals=ClosedLoop(2)), "workload.arrivals", "all_at_once"),
    (changed(classes=(ClassConfig("a"), ClassConfig("a"))), "workload.classes.1.name", "rename"),
    (changed(classes=(ClassConfig("a", weight=-1),)), "workload.classes.0.weight", "0 or more"),
    (changed(classes=(ClassConfig("a", weight=0),)), "workload.classes", "above 0"),
    (changed(classes=(ClassConfig("a", weight=1, arrivals=Poisson(1)),)), "workload.classes.0.weight", "leave out"),
    (changed(classes=(ClassConfig("a", num_requests=3),)), "workload.classes.0.num_requests", "weight"),
    (changed(classes=(ClassConfig("a", arrivals=ClosedLoop(1)),)), "workload.classes.0.arrivals", "weights"),
    (changed(classes=(ClassConfig("a", slo={"ttft_ms": {"p99": 0}}),)), "workload.classes.0.slo.ttft_ms.p99", "above"),
]


@pytest.mark.parametrize("config,where,remedy", BAD, ids=[f"{i}-{where}" for i, (_, where, _) in enumerate(BAD)])
def test_what_makes_no_sense_is_refused_with_its_place_and_a_remedy(
    config: WorkloadConfig, where: str, remedy: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        build(config)
    assert caught.value.where == where
    assert caught.value.remedy is not None and remedy in caught.value.remedy


def test_check_reads_no_file() -> None:
    check_workload(changed(prompt_tokens=Empirical(path="no/such.txt")))
