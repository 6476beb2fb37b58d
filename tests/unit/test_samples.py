"""Requests for several answers as requests of their own."""

from __future__ import annotations

import pytest

from simulator.allocators.content import TokenContent
from workloads.errors import WorkloadError
from workloads.samples import expand_samples
from workloads.workload import Workload


def test_one_row_for_each_sequence_with_the_same_prompt() -> None:
    load = Workload.from_columns(
        [0, 5, 9], [10, 20, 30], [1, 2, 3], priority=[0, 1, 2], request_ids=["a", "b", "c"], sequences=[2, 1, 3]
    )
    rows = expand_samples(load)
    assert rows.request_ids == ["a-0", "a-1", "b", "c-0", "c-1", "c-2"]
    assert rows.arrival_ps.tolist() == [0, 0, 5, 9, 9, 9]
    assert rows.prompt_tokens.tolist() == [10, 10, 20, 30, 30, 30]
    assert rows.output_tokens.tolist() == [1, 1, 2, 3, 3, 3]
    assert rows.priority.tolist() == [0, 0, 1, 2, 2, 2]
    assert rows.sequences is None
    content = TokenContent(rows)
    assert content.segments(0) == (("p:a", 0, 10), ("o:a-0", 0, 1))
    assert content.segments(1) == (("p:a", 0, 10), ("o:a-1", 0, 1))
    assert content.segments(2) == (("p:b", 0, 20), ("o:b", 0, 2))


def test_named_prompts_stay_as_they_are() -> None:
    prompt = (("system", 0, 6), ("p:0", 0, 4))
    load = Workload.from_columns([0], [10], [1], segments=[prompt], sequences=[2], beam=[True])
    rows = expand_samples(load)
    assert rows.segments is not None
    assert list(rows.segments) == [prompt, prompt]
    assert rows.beam is None


def test_nothing_to_expand() -> None:
    load = Workload.from_columns([0, 1], [3, 4], [1, 1], sequences=[1, 1])
    assert len(expand_samples(load)) == 2
    assert expand_samples(load).request_ids is None


def test_sorting_keeps_sequences_with_their_rows() -> None:
    load = Workload.from_columns([5, 0], [3, 4], [1, 1], sequences=[2, 3], beam=[True, False]).sorted_by_arrival()
    assert load.sequences is not None
    assert load.beam is not None
    assert (load.sequences.tolist(), load.beam.tolist()) == ([3, 2], [False, True])


def test_sessions_are_refused() -> None:
    load = Workload.from_columns([0, 0], [3, 4], [1, 1], after=[-1, 0], sequences=[2, 2])
    with pytest.raises(WorkloadError, match="next turn"):
        expand_samples(load)
