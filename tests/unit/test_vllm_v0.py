"""vLLM v0's schedule, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.allocators.pools import ContiguousPool, PagedPool
from simulator.cluster import simulate
from simulator.errors import DoesNotFitError, InputError
from simulator.metrics import summarize
from simulator.metrics_timeline import timeline
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import VllmV0Policy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from workloads.workload import Workload

MS = 1_000_000_000
STEP = LinearStepTime(10 * MS, 0, 0)  # every step lasts 10 ms
B = 4


def serve(
    workload: Workload, blocks: int, *, budget: int = 64, seqs: int = 8, chunked: bool = False, **policy: Any
) -> RunLog:
    engine = EngineConfig(
        1024,
        seqs,
        budget,
        enable_chunked_prefill=chunked,
        on_unservable=policy.pop("on_unservable", "reject"),
        policy=VllmV0Policy(**{"watermark": 0.0} | policy),
    )
    pool = PagedPool(blocks, B, null_block=False)
    return simulate(workload, engine, pool, STEP, stepwise=True, max_steps=1000)


def column(log: RunLog, name: str) -> list[int]:
    return [step[name] for step in steps_of(log.replicas[0])]


def times_ms(log: RunLog, name: str) -> list[float]:
    return [value / MS for value in log.request_columns()[name].tolist()]


def test_a_prompt_stops_every_decode_for_a_step() -> None:
    """Two come at 0, one at 15 ms: it is prefilled at 20 ms, alone, and the decodes wait until 30 ms.

    Steps: prefill of 0 and 1 (8 + 6 tokens); decode of both; prefill of 2; decode of all three; decode of 1. In blocks:
    2 + 2; 3 + 2 (token 9 of request 0); 3 + 2 + 2; the same; 3 (token 9 of request 1).
    """
    log = serve(Workload.from_columns([0, 0, 15 * MS], [8, 6, 5], [3, 4, 2]), 50)
    assert column(log, "tokens") == [14, 2, 5, 3, 1]
    assert column(log, "decodes") == [0, 2, 0, 3, 1]
    assert column(log, "regular") == [0, 2, 0, 1, 1]  # two tokens came 20 ms after their last, in step 3
    assert column(log, "running") == [2, 2, 3, 3, 1]
    # After each step: 14; 16; 16 + 5; then a token more for each of three; 0 and 2 have ended.
    assert column(log, "stored_tokens") == [14, 16, 21, 24, 9]
    assert [used // B for used in column(log, "used_slots")] == [4, 5, 7, 7, 3]
    assert times_ms(log, "first_token_ps") == [10, 10, 30]
    assert times_ms(log, "finish_ps") == [40, 50, 40]
    assert sorted(log.replicas[0].irregular_gaps_ps) == [20 * MS, 20 * MS]


def test_prompt_after_prompt_makes_gaps_as_long_as_each_waited() -> None:
    """One decodes from 10 ms on; others come at 15 and 25 ms, so that the steps at 20 and 30 ms are prompts only."""
    log = serve(Workload.from_columns([0, 15 * MS, 25 * MS], [4, 5, 6], [4, 3, 3]), 50)
    assert column(log, "tokens") == [4, 1, 5, 6, 3, 3]
    assert column(log, "regular") == [0, 1, 0, 0, 1, 3]
    # Tokens at 20 and 50 ms; at 30 and 50 ms; the third's at 40 and 50 ms are one step apart.
    assert sorted(log.replicas[0].irregular_gaps_ps) == [20 * MS, 30 * MS]


def test_budget_and_sequences_end_a_prompt_step() -> None:
    """T = 10: prompts of 6 and 4 fill a step, the third waits; S = 2: it waits until one ends."""
    three = Workload.from_columns([0, 0, 0], [6, 4, 5], [2, 3, 2])
    assert column(serve(three, 50, budget=10), "tokens") == [10, 5, 3, 1]
    log = serve(three, 50, budget=10, seqs=2)
    assert column(log, "tokens") == [10, 2, 5, 2]
    assert column(log, "head_wait") == [1, 1, 0, 0]  # max_num_seqs


def test_the_watermark_keeps_blocks_free_of_prompts_and_not_of_growth() -> None:
    """10 blocks, watermark 2: prompts of 4 blocks each; the second would leave 2 and is admitted, the third not."""
    log = serve(Workload.from_columns([0, 0, 0], [16, 16, 4], [6, 6, 2]), 10, watermark=0.2)
    assert column(log, "tokens")[0] == 32
    assert column(log, "head_wait")[0] == 2  # KV memory
    assert max(column(log, "used_slots")) == 10 * B  # growth takes the watermark
    assert times_ms(log, "scheduled_ps") == [0, 0, 60]


def test_recompute_takes_the_last_to_have_arrived_and_puts_it_first_in_line() -> None:
    """6 blocks; prompts of 7 and 8 tokens take 2 each, and each grows.

    Step 0 prefills both (4 blocks). Step 1: request 0's token 7 fits, request 1's token 8 takes block 5. Step 2:
    token 8 of request 0 takes block 6, and none is free for request 1, although its third block has room: it goes,
    with 9 tokens stored and 2 sampled. It comes back when its 10 tokens need 3 blocks and 3 are free: at once, in
    step 3, alone, for the prompt of 8 and its two samples. In step 4 none is free behind request 0's token, and it goes
    again. So it may run only when request 0 has ended.
    """
    log = serve(Workload.from_columns([0, 0], [7, 8], [4, 4]), 6)
    assert column(log, "tokens") == [15, 2, 1, 10, 1, 11]
    assert column(log, "decodes") == [0, 2, 1, 0, 1, 0]
    assert [used // B for used in column(log, "used_slots")] == [4, 5, 3, 6, 3, 3]
    table = log.request_columns()
    assert table["preemptions"].tolist() == [0, 2]
    assert table["recomputed_tokens"].tolist() == [0, 9 + 10]
    assert times_ms(log, "finish_ps") == [50, 60]
    requeues = log.replicas[0].requeue_columns()
    assert [t / MS for t in requeues["preempted_ps"].tolist()] == [20, 40]
    assert [t / MS for t in requeues["readmitted_ps"].tolist()] == [30, 50]
    # Request 0 waits 20 ms in step 3; request 1 gets its third token at 40 ms, 20 ms late, and its fourth at 60 ms.
    assert sorted(log.replicas[0].irregular_gaps_ps) == [20 * MS, 20 * MS, 20 * MS]


def test_swap_moves_the_blocks_and_charges_the_time_both_ways() -> None:
    """The same load with swap at 1 ms a block: in step 2 the 3 blocks of request 1 leave, 3 ms each way.

    Back in: 3 blocks and one more must be free, which they are when request 0 has ended, after step 3.
    """
    log = serve(
        Workload.from_columns([0, 0, 0], [7, 8, 4], [4, 4, 1]),
        6,
        seqs=2,
        preemption_mode="swap",
        swap_blocks=3,
        swap_ps_per_block=MS,
    )
    assert [d / MS for d in column(log, "duration_ps")] == [10, 10, 13, 10, 13, 10, 10]
    assert column(log, "tokens") == [15, 2, 1, 1, 1, 4, 1]
    assert column(log, "decodes") == [0, 2, 1, 1, 1, 0, 1]
    # The third request is not admitted while somebody is swapped out, although there is room from step 3 on.
    assert times_ms(log, "scheduled_ps") == [0, 0, 56]
    assert log.request_columns()["recomputed_tokens"].tolist() == [0, 0, 0]
    assert log.request_columns()["preemptions"].tolist() == [0, 1, 0]
    replica = log.replicas[0]
    assert (replica.swapped_out_blocks, replica.swapped_in_blocks) == (3, 3)
    # Request 1 gets tokens at 20 ms and 56 ms, and then at 76 ms: the third request's prefill lies between.
    assert list(replica.irregular_gaps_ps) == [(13 + 10 + 13) * MS, 20 * MS]
    assert summarize(log)["kv"]["swapped_out_blocks"] == 3


def test_a_full_cpu_pool_is_answered_by_recompute() -> None:
    load = Workload.from_columns([0, 0], [7, 8], [4, 4])
    log = serve(load, 6, preemption_mode="swap", swap_blocks=2)
    assert log.replicas[0].swapped_out_blocks == 0
    assert log.request_columns()["recomputed_tokens"].tolist() == [0, 19]
    assert summarize(log)["kv"]["swap_fallbacks"] == 2


def test_chunked_mode_gives_running_requests_their_tokens_first() -> None:
    """T = 8: a prompt of 20 tokens beside a decode: 8 alone; then the decode's token each step and 7 of the prompt."""
    log = serve(Workload.from_columns([0, 5 * MS], [4, 20], [5, 2]), 50, budget=8, chunked=True)
    assert column(log, "tokens") == [4, 8, 8, 7, 2]
    assert column(log, "decodes") == [0, 1, 1, 1, 2]
    assert [used // B for used in column(log, "used_slots")] == [1, 7, 7, 7, 8]  # all blocks of the prompt at once


def test_release_of_june_2023_mixes_whole_prompts_into_the_decodes() -> None:
    log = serve(Workload.from_columns([0, 5 * MS, 5 * MS], [4, 12, 6], [3, 2, 2]), 50, budget=16, release="2023-06")
    assert column(log, "tokens") == [4, 1 + 12, 2 + 6, 1]
    assert column(log, "decodes") == [0, 1, 2, 1]


def test_what_can_never_come_back_is_refused_at_arrival_or_ignored_later() -> None:
    load = Workload.from_columns([0, 0], [30, 4], [20, 2])
    log = serve(load, 12, watermark=0.1)  # 49 tokens in the end: 13 blocks and a watermark of 1
    assert log.request_columns()["status"].tolist() == [1, 0]
    faithful = serve(Workload.from_columns([0, 0], [47, 4], [2, 2]), 12, watermark=0.1, on_unservable="faithful")
    table = faithful.request_columns()
    assert table["status"].tolist() == [1, 0]
    assert faithful.reasons[table["reason"][0]].startswith("ignored: prompt of 47 tokens needs 12 KV blocks")


def test_a_faithful_server_may_ignore_what_it_has_begun() -> None:
    """Two requests of 9 blocks in the end, 10 blocks, watermark 2: preempted at 33 tokens, the second never fits."""
    load = Workload.from_columns([0, 0], [8, 17], [30, 30])
    log = serve(load, 10, watermark=0.2, on_unservable="faithful", budget=20)
    table = log.request_columns()
    assert log.status == "ok"
    assert table["status"].tolist() == [0, 1]
    assert log.reasons[table["reason"][1]].startswith("ignored: prompt of 22 tokens exceeds the limit of 20")
    assert table["generated_tokens"][1] == 5
    assert summarize(log)["rejected"] == 1  # and Little's law holds


def test_a_group_of_three_by_hand() -> None:
    """P = 6, B = 4, n = 3, 4 output tokens: prefill; 1 + 3 = 4 blocks after the first token each, 7 from token 8 on."""
    log = serve(Workload.from_columns([0], [6], [4], sequences=[3]), 20)
    assert column(log, "tokens") == [6, 3, 3, 3]
    assert column(log, "decodes") == [0, 1, 1, 1]
    assert [used // B for used in column(log, "used_slots")] == [2, 4, 4, 7]
    assert [saved // B for saved in column(log, "saved_slots")] == [0, 2, 2, 2]
    assert column(log, "stored_tokens") == [6, 21, 24, 27]
    kv = summarize(log)["kv"]
    assert kv["saved_by_sharing_share"] == 6 / (17 + 6)
    # Physically 6, 13, 16 and 19 tokens lie in 17 blocks of four: the shared block's tokens count once.
    assert kv["token_share_of_held"] == (6 + 13 + 16 + 19) / (17 * 4)
    state = timeline(log, 5).state  # at 0, 10, 20, 30 and 40 ms, the end
    assert state["stored_tokens"].tolist() == [6, 13, 16, 19, 0]
    assert state["internal_slots"].tolist() == [2, 3, 0, 9, 0]


def test_groups_are_swapped_and_singles_recomputed() -> None:
    load = Workload.from_columns([0, 0], [7, 8], [12, 12], sequences=[1, 2])
    log = serve(load, 10, swap_blocks=10)
    table = log.request_columns()
    assert table["preemptions"].tolist() == [0, 1]
    assert table["recomputed_tokens"].tolist() == [0, 0]
    assert log.replicas[0].swapped_out_blocks == log.replicas[0].swapped_in_blocks > 0
    with pytest.raises(DoesNotFitError, match="CPU's pool"):
        serve(load, 10, swap_blocks=1)


def test_refusals() -> None:
    load = Workload.from_columns([0], [4], [2])
    engine = EngineConfig(64, 4, 64, enable_chunked_prefill=False, policy=VllmV0Policy())
    with pytest.raises(InputError, match="contiguous"):
        simulate(load, engine, ContiguousPool(100), STEP)
    priority = EngineConfig(64, 4, 64, scheduling_policy="priority", policy=VllmV0Policy())
    with pytest.raises(InputError, match="first come"):
        simulate(load, priority, PagedPool(10, 4), STEP)
    several = Workload.from_columns([0], [4], [2], sequences=[2])
    with pytest.raises(InputError, match="expand"):
        simulate(several, EngineConfig(64, 4, 64), PagedPool(10, 4), STEP)
    many = serve(Workload.from_columns([0], [4], [2], sequences=[9]), 50)
    assert "9 sequences, max_num_seqs is 8" in many.reasons
