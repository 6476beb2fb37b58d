"""Two pools and a link, with times worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.allocators.pools import ContiguousPool, KvGroupShape, PagedPool
from simulator.cluster import simulate
from simulator.disaggregation import Routers, simulate_disaggregated
from simulator.errors import InputError
from simulator.kv_link import KvLink
from simulator.link_spec import LinkSpec
from simulator.members import Member
from simulator.metrics import summarize
from simulator.run_log import NOT_YET, RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import SglangPolicy
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

MS = 1_000_000_000
STEP = LinearStepTime(5 * MS, MS // 10, 0)  # 5 ms and 0.1 ms a token
ENGINE = EngineConfig(1024, 8, 256)
MEMBER = Member(ENGINE, PagedPool(100, 16, bytes_per_token=1000), STEP)
LINK = LinkSpec("test", 1e6, 2 * MS)  # 1 ms for a token's 1000 bytes, and 2 ms
INSTANT = LinkSpec("instant", float("inf"))


def member(blocks: int = 100, step_time: LinearStepTime = STEP, **engine: object) -> Member:
    return Member(replace(ENGINE, **engine), PagedPool(blocks, 16, bytes_per_token=1000), step_time)  # type: ignore[arg-type]


def served(
    workload: Workload,
    *,
    prefill: list[Member] | None = None,
    decode: list[Member] | None = None,
    link: LinkSpec = LINK,
) -> RunLog:
    log = simulate_disaggregated(workload, prefill or [MEMBER], decode or [MEMBER], link)
    summarize(log)  # Little's law
    return log


def times(log: RunLog, name: str) -> list[float]:
    """ms, by row; None would be an error."""
    table = log.request_columns() | log.handover_columns()
    assert (table[name] != NOT_YET).all()
    return [float(time) / MS for time in table[name].tolist()]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ttft_of_one_request_is_its_prefill_its_transfer_and_one_step(asynchronous: bool) -> None:
    """Prefill 5 + 100 · 0.1 = 15 ms; transfer 2 + 100 · 1 = 102 ms; the last token again, 5.1 ms, as each later one."""
    one = member(async_scheduling=asynchronous)
    log = served(Workload.from_columns([7 * MS], [100], [4]), prefill=[one], decode=[one])
    assert times(log, "scheduled_ps") == [7]
    assert times(log, "prefilled_ps") == [22]
    assert times(log, "loaded_ps") == [22 + 102]
    assert times(log, "first_token_ps") == [pytest.approx(22 + 102 + 5.1)]
    assert times(log, "finish_ps") == [pytest.approx(22 + 102 + 4 * 5.1)]
    assert log.request_columns()["generated_tokens"].tolist() == [4]
    assert summarize(log)["mean_ttft_ms"] == pytest.approx(15 + 102 + 5.1)


def test_over_a_link_that_takes_no_time_only_one_step_is_left() -> None:
    log = served(Workload.from_columns([0], [100], [3]), link=INSTANT)
    assert times(log, "prefilled_ps") == times(log, "loaded_ps") == times(log, "admitted_ps") == [15]
    assert times(log, "first_token_ps") == [pytest.approx(20.1)]


def test_one_output_token_takes_the_same_way() -> None:
    """vLLM's proxy gives every request to both servers; the prefill server's token is thrown away."""
    log = served(Workload.from_columns([0], [100], [1]))
    assert times(log, "finish_ps") == times(log, "first_token_ps") == [pytest.approx(15 + 102 + 5.1)]
    assert log.request_columns()["replica"].tolist() == [1]


def test_transfers_of_one_prefill_replica_take_its_link_one_after_the_other() -> None:
    """Both prompts are computed in one step of 5 + 14 · 0.1 ms; the second transfer starts when the wire is free."""
    log = served(Workload.from_columns([0, 0], [10, 4], [2, 2]))
    done = 5 + 1.4
    assert times(log, "prefilled_ps") == [done, done]
    assert times(log, "loaded_ps") == [pytest.approx(done + 10 + 2), pytest.approx(done + 10 + 4 + 2)]
    assert log.handover_columns()["wire_ps"].tolist() == [10 * MS, 4 * MS]
    two = served(Workload.from_columns([0, 0], [10, 4], [2, 2]), prefill=[MEMBER, MEMBER])
    assert times(two, "loaded_ps") == [pytest.approx(5 + 1 + 10 + 2), pytest.approx(5 + 0.4 + 4 + 2)]


def test_a_link_serves_in_turn_and_latencies_overlap() -> None:
    link = KvLink(LinkSpec("test", 1e6, 3 * MS))
    assert link.send(0, 2000) == (5 * MS, 2 * MS)
    assert link.send(1 * MS, 1000) == (6 * MS, MS)
    assert link.send(9 * MS, 1000) == (13 * MS, MS)


def test_a_pending_transfer_is_not_in_the_way_of_those_behind_it() -> None:
    """The long prompt reserves its blocks first; the short one, from another prefill replica, is there long before."""
    log = served(Workload.from_columns([0, 10 * MS], [200, 10], [2, 2]), prefill=[MEMBER, MEMBER])
    late = served(Workload.from_columns([0, 30 * MS], [200, 10], [2, 2]), prefill=[MEMBER, MEMBER])
    for run in (log, late):
        assert times(run, "finish_ps")[1] < times(run, "loaded_ps")[0]
    moved = late.handover_columns()
    assert moved["reserved_ps"][0] < moved["reserved_ps"][1] and moved["loaded_ps"][0] > moved["loaded_ps"][1]


def test_a_prefill_replica_holds_the_blocks_until_the_transfer_is_over() -> None:
    """Its 7 blocks hold one prompt of 100 tokens: the second is computed when the first has left."""
    log = served(Workload.from_columns([0, 0], [100, 100], [1, 1]), prefill=[member(8)])
    assert times(log, "loaded_ps")[0] == 15 + 102
    assert times(log, "released_ps")[0] == 15 + 102
    assert times(log, "scheduled_ps") == [0, 15 + 102]


def test_blocks_come_back_at_a_pass_and_not_in_the_middle_of_a_step() -> None:
    """The first transfer ends at 6 + 12 ms; then the second prompt is being computed, until 6 + 25 ms."""
    log = served(Workload.from_columns([0, 6 * MS], [10, 200], [1, 1]), prefill=[member(30)])
    assert times(log, "loaded_ps")[0] == 18
    assert times(log, "released_ps")[0] == times(log, "prefilled_ps")[1] == 31
    steps = log.replicas[0].segment_columns()
    assert steps["used_slots"].tolist() == [16, 16 + 208]  # ⌈10/16⌉ and ⌈200/16⌉ blocks


def test_decode_gives_blocks_before_the_transfer_and_waits_for_them_in_turn() -> None:
    """9 usable blocks: a prompt of 100 tokens takes 7, so the second asks for its KV when the first has ended."""
    log = served(Workload.from_columns([0, 0], [100, 100], [2, 2]), decode=[member(10)])
    finish = times(log, "finish_ps")[0]
    assert times(log, "reserved_ps") == [25, finish]
    assert times(log, "loaded_ps")[1] == pytest.approx(finish + 102)
    assert times(log, "released_ps")[1] == times(log, "loaded_ps")[1]  # held at the prefill replica all the while
    waits = log.replicas[1].segment_columns()["head_wait"].tolist()
    assert 2 in waits, "the head of the decode queue waits for KV memory"


def test_whose_kv_has_come_waits_for_a_place_ahead_of_the_queue() -> None:
    """One runs at a time: the second has its KV at 40 ms and runs when the first has ended."""
    log = served(
        Workload.from_columns([0, 0, 0], [10, 10, 10], [40, 2, 2]), decode=[member(max_num_seqs=1)], link=INSTANT
    )
    finish = times(log, "finish_ps")
    assert times(log, "admitted_ps") == [8, finish[0], finish[1]]
    assert times(log, "reserved_ps")[1:] == [8, 8]  # reserved while the first one's KV was on its way


def test_a_preempted_request_is_computed_again_at_the_decode_replica() -> None:
    """Two answers outgrow 13 usable blocks; the later one loses its KV and nothing is sent again."""
    log = served(Workload.from_columns([0, 0], [80, 80], [60, 60]), decode=[member(14)], link=INSTANT)
    table, moved = log.request_columns(), log.handover_columns()
    assert table["preemptions"].tolist() == [0, 1]
    assert table["recomputed_tokens"][1] > 80
    assert moved["tokens"].tolist() == [80, 80]
    assert summarize(log)["disaggregation"]["transfers"] == 2
    assert table["generated_tokens"].tolist() == [60, 60]


def test_a_prompt_that_is_preempted_while_it_is_computed_counts_in_the_row_of_its_request() -> None:
    """Chunks of two prompts outgrow 7 usable blocks of the prefill replica; the second starts again."""
    tight = member(8, max_num_batched_tokens=40, long_prefill_token_threshold=20, scheduler_reserve_full_isl=False)
    log = served(Workload.from_columns([0, 0], [80, 80], [3, 3]), prefill=[tight], link=INSTANT)
    table = log.request_columns()
    assert log.replicas[0].requeue_columns()["row"].tolist() == [1, 1]
    assert table["preemptions"].tolist() == [0, 2]
    assert table["recomputed_tokens"][0] == 0 < table["recomputed_tokens"][1]


def test_prefixes_are_shared_at_the_prefill_replica_and_the_whole_prompt_moves() -> None:
    shared = [(("s", 0, 64), ("a", 0, 36)), (("s", 0, 64), ("b", 0, 36))]
    workload = Workload.from_columns([0, 400 * MS], [100, 100], [2, 2], segments=shared)
    log = served(workload, prefill=[member(enable_prefix_caching=True)])
    assert log.request_columns()["cached_tokens"].tolist() == [0, 64]
    assert times(log, "prefilled_ps") == [15, pytest.approx(400 + 5 + 3.6)]
    assert log.handover_columns()["wire_ps"].tolist() == [100 * MS, 100 * MS]


def test_what_no_decode_replica_could_serve_is_turned_away_at_the_door() -> None:
    log = served(Workload.from_columns([0, 0], [60, 60], [4, 100]), decode=[member(6)])
    table = log.request_columns()
    assert table["status"].tolist() == [0, 1]
    assert "KV blocks" in log.reasons[table["reason"][1]]
    assert log.handover_columns()["row"].tolist() == [0]
    assert log.replicas[0].segment_columns()["tokens"].tolist() == [60]


def test_an_answer_ends_where_the_decode_replica_s_context_does() -> None:
    log = served(Workload.from_columns([0], [100], [50]), decode=[member(max_model_len=128)])
    assert log.request_columns()["generated_tokens"].tolist() == [28]


def test_a_prompt_that_the_prefill_replica_cannot_hold_is_rejected_there() -> None:
    log = served(Workload.from_columns([0, 0], [200, 20], [2, 2]), prefill=[member(5)])
    assert log.request_columns()["status"].tolist() == [1, 0]


def test_a_closed_loop_sends_the_next_request_when_the_answer_is_whole() -> None:
    log = served(Workload.from_columns([0, 0], [100, 100], [2, 2], max_concurrency=1))
    assert times(log, "arrival_ps")[1] == times(log, "finish_ps")[0]


def test_the_block_of_result_json_by_hand() -> None:
    """Two prompts of 10 and 4 tokens from one replica; see the test of the link above. Ends at 31.6 ms."""
    log = served(Workload.from_columns([0, 0], [10, 4], [2, 1]))
    found = summarize(log)
    block = found["disaggregation"]
    loaded = (6.4 + 12, 6.4 + 16)
    # The first decodes from 18.4 to 23.5; with the second one's KV there at 22.4 both have a token in the next step.
    end = 6.4 + 12 + 5.1 + 5.2
    assert found["duration"] == pytest.approx(end / 1000)
    assert (block["transfers"], block["transferred_tokens"], block["transferred_bytes"]) == (2, 14, 14_000)
    assert block["mean_transfer_ms"] == pytest.approx(sum(loaded) / 2 - 6.4)
    assert block["p99_transfer_ms"] == pytest.approx(12 + 0.99 * 4)
    assert block["mean_admission_wait_ms"] == pytest.approx((0 + 23.5 - 22.4) / 2)
    assert block["mean_handover_wait_ms"] == 0
    assert block["link_utilization"] == pytest.approx(14 / end)
    assert block["mean_transferring"] == pytest.approx((12 + 16) / end)
    assert block["prefill"]["busy_share"] == pytest.approx(6.4 / end)
    assert block["decode"]["busy_share"] == pytest.approx(10.3 / end)
    # Blocks of 16 slots, one a prompt: at the prefill replica until sent, at the decode replica from 6.4 ms on.
    slots = 99 * 16
    assert block["prefill"]["mean_kv_utilization"] == pytest.approx(16 * sum(loaded) / slots / end)
    assert block["decode"]["mean_kv_utilization"] == pytest.approx(16 * 2 * (end - 6.4) / slots / end)
    stored = 10 * loaded[0] + 4 * loaded[1]  # prefill
    stored += 10 * (loaded[0] - 6.4) + 10 * 5.1 + 11 * 5.2 + 4 * (23.5 - 6.4) + 4 * 5.2  # decode
    assert found["kv"]["token_share"] == pytest.approx(stored / (2 * slots * end))


def test_pools_may_differ_in_everything() -> None:
    fast = Member(
        replace(ENGINE, max_num_seqs=4), PagedPool(50, 32, bytes_per_token=500), LinearStepTime(MS, 0, 0), gpus=2
    )
    log = simulate_disaggregated(
        Workload.from_columns([0, 0, 0], [100, 50, 20], [5, 5, 5]), [MEMBER, MEMBER], [fast], LINK
    )
    found = summarize(log)
    assert log.link_bytes_per_token == 1000, "both ranks of the decode replica fetch their share"
    assert [replica.group for replica in log.replicas] == ["prefill", "prefill", "decode"]
    assert found["disaggregation"]["decode"]["gpus"] == 2
    assert found["kv"]["block_size"] is None
    assert log.request_columns()["replica"].tolist() == [2, 2, 2]


def test_each_pool_has_a_router_of_its_own() -> None:
    workload = Workload.from_columns([0, 0, 0, 0], [10, 10, 10, 10], [30, 1, 1, 1])
    members = [MEMBER, MEMBER]
    log = simulate_disaggregated(
        workload, members, members, INSTANT, routers=Routers("round_robin", "least_outstanding")
    )
    moved = log.handover_columns()
    assert moved["prefill_replica"].tolist() == [0, 1, 0, 1]
    assert moved["decode_replica"].tolist() == [2, 3, 2, 3]
    later = Workload.from_columns([0, 0, 40 * MS, 40 * MS], [10, 10, 10, 10], [30, 1, 1, 1])
    log = simulate_disaggregated(later, members, members, INSTANT, routers=Routers("round_robin", "least_outstanding"))
    assert log.handover_columns()["decode_replica"].tolist() == [2, 3, 3, 2]  # the first of equals


def test_whose_prompt_is_computed_is_no_longer_outstanding_at_the_prefill_replica() -> None:
    """Though its KV is still there: the prefill server has answered the proxy."""
    workload = Workload.from_columns([0, 20 * MS, 21 * MS], [10, 10, 10], [3, 3, 3])
    routers = Routers("least_outstanding", "round_robin")
    log = simulate_disaggregated(workload, [MEMBER, MEMBER], [MEMBER], LinkSpec("slow", 1e4), routers=routers)
    assert log.handover_columns()["prefill_replica"].tolist() == [0, 0, 1]
    assert log.handover_columns()["released_ps"][0] > 900 * MS


def test_a_slower_link_never_lowers_the_time_to_first_token() -> None:
    """One transfer at a time, on fixed arrivals."""
    rng = np.random.default_rng(5)
    workload = Workload.from_columns(np.arange(12) * 400 * MS, rng.integers(1, 250, 12), rng.integers(1, 20, 12))
    means = [
        summarize(served(workload, link=LinkSpec("x", speed, latency)))["mean_ttft_ms"]
        for latency in (0, 5 * MS)
        for speed in (float("inf"), 1e8, 1e7, 2e6, 1e6)
    ]
    assert means[:5] == sorted(means[:5]) and means[5:] == sorted(means[5:])
    assert all(slow == pytest.approx(fast + 5) for fast, slow in zip(means[:5], means[5:], strict=True))


def test_nothing_happens_twice_in_single_steps() -> None:
    """Fixed load with preemption and full links: single steps are the same run (the property test draws more)."""
    rng = np.random.default_rng(9)
    workload = Workload.from_columns(
        np.sort(rng.integers(0, 900 * MS, 60)), rng.integers(1, 120, 60), rng.integers(1, 60, 60)
    )
    leaps, steps = (
        simulate_disaggregated(workload, [member(20)] * 2, [member(16, max_num_seqs=4)], LINK, stepwise=stepwise)
        for stepwise in (False, True)
    )
    assert summarize(leaps) == summarize(steps)
    assert summarize(leaps)["preemptions"] > 0


@pytest.mark.parametrize("stepwise", [False, True])
def test_kv_that_comes_at_the_time_of_the_pass_that_asked_is_seen_by_the_next_pass(stepwise: bool) -> None:
    """The first decodes in steps of 5.1 ms from 6 ms on; the second has blocks at 41.7 ms, and runs a step later."""
    workload = Workload.from_columns([0, 33 * MS], [10, 10], [60, 4])
    log = simulate_disaggregated(workload, [MEMBER], [MEMBER], INSTANT, stepwise=stepwise)
    assert times(log, "prefilled_ps")[1] == 39
    assert times(log, "reserved_ps")[1] == times(log, "loaded_ps")[1] == pytest.approx(6 + 7 * 5.1)
    assert times(log, "admitted_ps")[1] == pytest.approx(6 + 8 * 5.1)
    assert log.replicas[1].segment_columns()["steps"].min() == 1


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("latency_ps", [1, 3 * MS])
def test_each_pool_is_an_ordinary_replica_in_what_it_computes(asynchronous: bool, latency_ps: int) -> None:
    """Prefill: the same requests for one token. Decode: requests of one prompt token that arrive with their KV."""
    rng = np.random.default_rng(3)
    workload = Workload.from_columns(
        np.sort(rng.integers(0, 2000 * MS, 80)), rng.integers(1, 200, 80), rng.integers(1, 40, 80)
    )
    one = member(2000, async_scheduling=asynchronous, max_num_seqs=256)
    log = served(workload, prefill=[one], decode=[one], link=LinkSpec("x", float("inf"), latency_ps))
    moved, table = log.handover_columns(), log.request_columns()
    alone = simulate(replace(workload, output_tokens=np.ones(80, dtype=np.int64)), one.engine, one.pool, STEP)
    assert (alone.request_columns()["finish_ps"] == moved["prefilled_ps"]).all()
    order = np.argsort(moved["loaded_ps"], kind="stable")
    answers = Workload.from_columns(
        moved["loaded_ps"][order], np.ones(80, dtype=np.int64), workload.output_tokens[order]
    )
    alone = simulate(answers, one.engine, one.pool, STEP)
    assert (alone.request_columns()["finish_ps"] == table["finish_ps"][order]).all()


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_a_central_queue_in_front_of_a_pool_is_refused(pool: str) -> None:
    workload = Workload.from_columns([0], [1], [1])
    with pytest.raises(InputError, match="central queue") as refused:
        simulate_disaggregated(workload, [MEMBER], [MEMBER], LINK, routers=Routers(**{pool: "central_queue"}))
    assert refused.value.where == f"disaggregation.{pool}.router"


@pytest.mark.parametrize(
    ("pool", "wrong", "says"),
    [
        ("prefill", [], "no replica"),
        ("decode", [], "no replica"),
        ("prefill", [replace(MEMBER, engine=replace(ENGINE, policy=SglangPolicy()))], "vLLM v1"),
        ("decode", [replace(MEMBER, pool=ContiguousPool(1000))], "paged"),
        ("prefill", [replace(MEMBER, pool=PagedPool(100, 16, groups=(KvGroupShape(16, 64),)))], "sliding windows"),
        ("decode", [replace(MEMBER, engine=replace(ENGINE, scheduling_policy="priority"))], "first come"),
        ("decode", [replace(MEMBER, engine=replace(ENGINE, enable_prefix_caching=True))], "prefix caching"),
    ],
)
def test_what_is_not_simulated_is_refused(pool: str, wrong: list[Member], says: str) -> None:
    prefill, decode = (wrong if pool == name else [MEMBER] for name in ("prefill", "decode"))
    with pytest.raises(InputError, match=says) as refused:
        simulate_disaggregated(Workload.from_columns([0], [1], [1]), prefill, decode, LINK)
    assert refused.value.where is not None and refused.value.where.startswith(f"disaggregation.{pool}")
    assert refused.value.remedy
