"""``disaggregation`` in a scenario: what the pools are made of, what is refused where, what the result says."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from simulator.allocators.pools import PagedPool
from simulator.catalog.link_files import find_link, link_names
from simulator.disaggregation_pools import DisaggregatedDeployment
from simulator.errors import InputError, KvplanError
from simulator.run_scenario import build
from simulator.scenario import load_scenario
from tests.running import SAME, SCENARIO, Run, result_of, runs_in, same_bytes

SPLIT = SCENARIO + "disaggregation: {prefill: {}, decode: {replicas: 2}, link: rdma-400g}\n"
KV_BYTES = 131_072  # of a token of llama-3.1-8b: 32 layers, 8 heads of 128, keys and values of 2 bytes


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


def pools(tmp_path: Path, section: str, *patches: str) -> DisaggregatedDeployment:
    path = tmp_path / "chat.yaml"
    path.write_text(f"{SCENARIO}disaggregation: {section}\n", encoding="utf-8")
    found = build(load_scenario(str(path), patches).scenario).pools
    assert found is not None
    return found


def test_a_split_run_says_what_moved_and_repeats_itself(run: Run, tmp_path: Path) -> None:
    done = run(text=SPLIT)
    assert done.exit_code == 0, done.output
    result = result_of(tmp_path / "out")
    block = result["disaggregation"]
    assert result["completed"] == block["transfers"] == 60
    assert block["transferred_bytes"] == result["total_input_tokens"] * KV_BYTES
    assert (block["prefill"]["replicas"], block["decode"]["replicas"], result["replicas"]) == (1, 2, 3)
    assert block["link"]["gb_per_s"] == 50
    assert result["usd_per_hour"] == pytest.approx(3 * 4.76)
    assert "Prefill and Decode Pools" in done.stdout
    with (tmp_path / "out" / "requests.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60 and {row["replica"] for row in rows} == {"1", "2"}
    assert all(float(r["scheduled_s"]) < float(r["first_token_s"]) <= float(r["finish_s"]) for r in rows)
    run("--stepwise", out="steps", text=SPLIT)
    same_bytes(tmp_path / "out", tmp_path / "steps")
    resolved = (tmp_path / "out" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    assert "enable_prefix_caching: false" in resolved and "enable_prefix_caching: true" in resolved
    run(out="again", text=resolved)
    for name in SAME[:3]:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_together_and_split_stand_side_by_side(run: Run, tmp_path: Path) -> None:
    text = SCENARIO + (
        "variants:\n"
        "  together: {parallelism.replicas: 2}\n"
        "  split: {disaggregation: {link: nvlink-4}}\n"
        "  tuned: {disaggregation: {link: nvlink-4, decode: {engine: {max_num_seqs: 7}}}, engine.max_num_seqs: 50}\n"
    )
    assert run(text=text).exit_code == 0
    found = result_of(tmp_path / "out")["variants"]
    assert "disaggregation" not in found["together"]
    assert found["split"]["usd_per_hour"] == found["together"]["usd_per_hour"]
    assert found["split"]["p99_itl_ms"] < found["together"]["p99_itl_ms"]
    assert found["tuned"]["disaggregation"]["decode"]["mean_running"] <= 7


def test_each_pool_has_its_own_gpu_sizes_and_settings(tmp_path: Path) -> None:
    found = pools(
        tmp_path,
        "{prefill: {gpu: h200-sxm-141gb, engine: {max_num_batched_tokens: 4096, page_size: 32}}, "
        "decode: {replicas: 3, parallelism: {tp: 2}, engine: {num_gpu_blocks_override: 777}}, "
        "link: {gb_per_s: 10, latency_us: 5}}",
    )
    prefill, decode = found.prefill, found.decode
    assert prefill.gpu is not None and prefill.gpu.name == "h200-sxm-141gb"
    assert decode.gpu is not None and decode.gpu.name == "h100-sxm-80gb"
    assert prefill.engine.max_num_batched_tokens == 4096 and decode.engine.max_num_batched_tokens == 8192
    assert isinstance(prefill.pool, PagedPool) and isinstance(decode.pool, PagedPool)
    assert (prefill.pool.block_size, decode.pool.block_size) == (32, 16)
    assert (prefill.pool.num_gpu_blocks, decode.pool.num_gpu_blocks) == (400, 777)
    assert (decode.parallelism.tensor_parallel_size, decode.parallelism.replicas, found.gpus) == (2, 3, 7)
    assert prefill.engine.enable_prefix_caching and not decode.engine.enable_prefix_caching
    assert (found.link.bytes_per_s, found.link.latency_ps) == (10e9, 5_000_000)


@pytest.mark.parametrize(
    ("patch", "size"),
    [
        ("decode: {}", KV_BYTES),
        ("decode: {parallelism: {tensor_parallel_size: 2}}", KV_BYTES),
        ("decode: {parallelism: {tensor_parallel_size: 16}}", 2 * KV_BYTES),  # 8 KV heads, each on two ranks
        ("decode: {engine: {kv_cache_dtype: fp8}}, prefill: {engine: {kv_cache_dtype: fp8}}", KV_BYTES // 2),
    ],
)
def test_every_rank_of_a_decode_replica_fetches_its_share(tmp_path: Path, patch: str, size: int) -> None:
    assert pools(tmp_path, f"{{{patch}, link: nvlink}}").kv_bytes_per_token == size


def test_the_scenario_s_router_stands_in_front_of_both_pools_unless_one_has_its_own(tmp_path: Path) -> None:
    routers = pools(tmp_path, "{decode: {router: least_kv}, link: nvlink}", "router=least_outstanding").routers
    assert (routers.prefill, routers.decode) == ("least_outstanding", "least_kv")


def test_a_link_that_never_rests_binds_and_its_backlog_is_saturation(run: Run, tmp_path: Path) -> None:
    """200 tokens · 128 KiB a request at 40 requests/s is about 1 GB/s; the link carries a fifth of that."""
    load = ("--set", "workload.num_requests=300", "--set", "engine.num_gpu_blocks_override=9000")
    run(*load, text=SPLIT, out="fast")
    run(*load, "--set", "disaggregation.link={gb_per_s: 0.2}", text=SPLIT, out="slow")
    fast, slow = (result_of(tmp_path / name) for name in ("fast", "slow"))
    assert (fast["binding_limit"], fast["saturated"]) == ("arrivals", False)
    assert (slow["binding_limit"], slow["saturated"]) == ("kv_transfer", True)
    assert slow["disaggregation"]["link_utilization"] > 0.9 > fast["disaggregation"]["link_utilization"]


def test_assumptions_name_the_pool_that_they_are_about_and_the_rules(run: Run, tmp_path: Path) -> None:
    run(text=SPLIT)
    lines = result_of(tmp_path / "out")["assumptions"]
    assert "prefill pool: enable_prefix_caching = true (vllm's default)" in lines
    assert "gpu_memory_utilization = 0.92 (vllm's default)" in lines
    assert any("rdma-400g at 50 GB/s and 20 us" in line for line in lines)
    assert any("computes the last prompt token again" in line for line in lines)


ERRORS: list[tuple[str, str, str]] = [
    ("{prefill: {engine: {blocksize: 8}}, link: nvlink}", "did you mean block_size", "prefill.engine.blocksize"),
    ("{prefill: {engine: {block_size: 0}}, link: nvlink}", "at least 1", "prefill.engine.block_size"),
    ("{decode: {engine: {enable_prefix_caching: true}}, link: nvlink}", "fetch the KV", "decode.engine"),
    ("{decode: {engine: {scheduling_policy: priority}}, link: nvlink}", "first come first served", "decode.engine"),
    ("{decode: {engine: {preset: sglang}}, link: nvlink}", "vLLM v1", "decode.engine"),
    ("{link: rdma}", "use one of ethernet-100g", "disaggregation.link"),
    ("{link: {gb_per_s: 0}}", "above 0", "disaggregation.link.gb_per_s"),
    ("{prefill: {}}", "link is missing", "disaggregation.link"),
    ("{prefill: {gpu: h999}, link: nvlink}", "not a GPU of the catalogue", "prefill.gpu"),
    ("{prefill: {gpu: {memory_gib: 80}}, link: nvlink}", "bandwidth_gb_per_s is missing", "prefill.gpu"),
    (
        "{prefill: {gpu: t4, engine: {num_gpu_blocks_override: null}}, link: nvlink}",
        "prefill pool: .* does not fit on t4",
        "prefill.gpu",
    ),
    ("{decode: {parallelism: {tensor_parallel_size: 3}}, link: nvlink}", "does not divide", "decode.parallelism"),
    ("{decode: {parallelism: {pp: 2}}, link: nvlink}", "pipeline parallelism", "decode.parallelism"),
    ("{decode: {parallelism: {replicas: 2}}, link: nvlink}", "write disaggregation.decode.replicas", "replicas"),
    ("{decode: {router: best}, link: nvlink}", "'best' is not known", "decode.router"),
    ("{decode: {replicas: 0}, link: nvlink}", "at least 1", "decode.replicas"),
]


@pytest.mark.parametrize(("section", "says", "names"), ERRORS)
def test_a_fault_is_named_with_its_place_and_a_change_that_works(
    tmp_path: Path, section: str, says: str, names: str
) -> None:
    with pytest.raises(KvplanError, match=says) as refused:
        pools(tmp_path, section)
    text = str(refused.value)
    assert names in text and "chat.yaml:11:" in text and text.endswith(")"), text


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("parallelism.replicas=4", "set disaggregation.prefill.replicas"),
        ("mode=admission", "no clock"),
        ("fleet={startup_s: 1}", "delete fleet or disaggregation"),
        ("router=central_queue", "use least_outstanding"),
        ("model=gpt-oss-20b", "disable_hybrid_kv_cache_manager: true"),
        ("engine.scheduling_policy=priority", "set scheduling_policy: fcfs for the decode pool"),
    ],
)
def test_what_the_scenario_says_elsewhere_is_refused_there(tmp_path: Path, patch: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        pools(tmp_path, "{link: nvlink}", patch)


def test_links_have_a_speed_a_latency_and_a_source() -> None:
    assert {"rdma-400g", "ethernet-100g", "pcie-gen5", "nvlink-4"} <= set(link_names())
    for name in link_names():
        link = find_link(name)
        assert link.name == name and link.bytes_per_s > 1e9 and 0 < link.latency_ps < 10**9 and len(link.source) > 30
    assert find_link("RDMA 400G").bytes_per_s == 50e9
    assert find_link("nvlink") == find_link("nvlink-4")


def test_a_document_without_the_section_is_what_it_was(run: Run, tmp_path: Path) -> None:
    run()
    result: dict[str, Any] = result_of(tmp_path / "out")
    assert "disaggregation" not in result
    assert "disaggregation" not in (tmp_path / "out" / "scenario.resolved.yaml").read_text(encoding="utf-8")
