"""Recorded schedules with damaged files: each fault is named with its place, and none is called exact or different."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.verify_schedule import replay

CONFIG: dict[str, Any] = {
    "name": "chats", "description": "three chats with one prefix", "clock": "time", "policy": "fcfs",
    "max_model_len": 64, "max_num_seqs": 2, "max_num_active_seqs": None, "max_num_batched_tokens": 16,
    "block_size": 4, "num_gpu_blocks": 12, "kv_groups": None, "enable_prefix_caching": True,
    "enable_chunked_prefill": True, "async_scheduling": False, "scheduler_reserve_full_isl": True, "watermark": 0.0,
    "long_prefill_token_threshold": 0, "long_prefill_token_threshold_adaptive": False, "prefill_schedule_interval": 1,
    "prefix_cache_retention_interval": 0, "step_base_ns": 5_000_000, "step_per_token_ns": 50_000,
    "step_per_ctx_ns": 100, "empty_step_ns": 1_000_000, "max_steps": 1000,
}  # fmt: skip
REQUESTS: list[dict[str, Any]] = [
    {"id": "a", "arrival_ns": 0, "prompt_len": 10, "output_len": 5, "segments": [["s", 0, 8], ["a", 0, 2]]},
    {"id": "b", "arrival_ns": 1000, "prompt_len": 11, "output_len": 4, "segments": [["s", 0, 8], ["b", 0, 3]]},
    {"id": "c", "arrival_ns": 2000, "prompt_len": 3, "output_len": 2, "priority": 1},
]


class Case:
    """The files of a case, whole until something is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: Any = copy.deepcopy(CONFIG)
        self.requests: Any = copy.deepcopy(REQUESTS)
        self.passes: Any = replay(CONFIG, REQUESTS).passes

    def write(self) -> None:
        """Makes the files."""
        self.file("config.json", json.dumps(self.config).encode())
        self.file("requests.jsonl", lines(self.requests))
        self.file("steps.jsonl.gz", gzip.compress(lines(self.passes)))

    def file(self, part: str, data: bytes) -> None:
        """Replaces one of them."""
        (self.folder / f"case.{part}").write_bytes(data)

    def verify(self) -> tuple[int, str, str]:
        """(exit code, stdout, stderr) of the command."""
        done = CliRunner().invoke(app, ["verify", "schedule", str(self.folder / "case")])
        return done.exit_code, done.stdout, done.stderr

    def assert_refused(self, *words: str) -> None:
        """It ends with code 2, compares nothing, and names file, fault and remedy."""
        code, out, err = self.verify()
        assert (code, out) == (2, "exact 0/1 cases\n"), (code, out, err)
        assert len(err.splitlines()) == 1
        assert all(word in err for word in words), err


def lines(rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_whole_case_is_exact_and_keys_without_meaning_may_stand_in_it(case: Case) -> None:
    case.config |= {"recorded_by": "somebody", "kv_groups": [{"type": "full", "window": None}]}
    case.requests[2] |= {"segments": None, "note": "private"}
    case.requests[0]["segments"].append(["empty", 0, 0])
    case.requests.reverse()  # arrivals are sorted
    del case.passes[-1]["free_end"]  # a run that was cut ends before its last passes do
    case.write()
    code, out, _ = case.verify()
    assert (code, out.splitlines()[-1]) == (0, "exact 1/1 cases")


WRONG: list[Any] = ["x", -1, 1.5, [], {}, 10**30]


@pytest.mark.parametrize("key", [key for key in CONFIG if key not in ("name", "description", "empty_step_ns")])
def test_settings_that_are_missing_or_wrong(case: Case, key: str) -> None:
    right = case.config[key]
    for value in [*WRONG, 2 if isinstance(right, bool) else True]:
        if (key, value) == ("kv_groups", []):  # one group, as null
            continue
        case.config[key] = value
        case.write()
        case.assert_refused(f"case.config.json: {key} is ", "(write ")
    if right is not None and key not in ("max_steps", "prefix_cache_retention_interval"):  # these two may be null
        case.config[key] = None
        case.write()
        case.assert_refused(f"case.config.json: {key} is null")
    del case.config[key]
    case.write()
    case.assert_refused(f"case.config.json: {key} is missing", f"(set {key}")


@pytest.mark.parametrize(
    "group",
    ["full", {}, {"type": "mamba"}, {"type": "swa"}, {"type": "swa", "window": 0}, {"type": "full", "window": 8},
     {"type": "swa", "window": "8"}, {"type": "full", "block_size": 0}, {"type": "full", "block_size": None}],
)  # fmt: skip
def test_odd_groups(case: Case, group: Any) -> None:
    case.config["kv_groups"] = [{"type": "full"}, group]
    case.write()
    case.assert_refused("kv_groups is [", '(write a list of {"type": "full"}')


def test_settings_that_go_ill_together_name_the_case(case: Case) -> None:
    case.config["max_num_batched_tokens"] = 1
    case.write()
    case.assert_refused("case.config.json: engine.max_num_batched_tokens: ", "max_num_seqs (2)")


def test_another_length_of_empty_passes_is_refused(case: Case) -> None:
    case.config["empty_step_ns"] = 5
    case.write()
    case.assert_refused("case.config.json: empty_step_ns is 5")


@pytest.mark.parametrize("key", ["id", "arrival_ns", "prompt_len", "output_len"])
def test_requests_that_lack_something(case: Case, key: str) -> None:
    for value in [None, 1 if key == "id" else "1", -1, 0.5, True, []]:
        case.requests[1][key] = value
        case.write()
        case.assert_refused(f"case.requests.jsonl:2: {key} is ")
    del case.requests[1][key]
    case.write()
    case.assert_refused(f"case.requests.jsonl:2: {key} is missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "a"}, ("id 'a' stands in line 1 already",)),
        ({"prompt_len": 12}, ("segments of 11 tokens make no prompt_len of 12", "set prompt_len: 11")),
        ({"segments": []}, ("segments of 0 tokens",)),
        ({"segments": [["s", 0]]}, ("segments is ", "[stream, start, length]")),
        ({"segments": [["s", -1, 11]]}, ("segments is ",)),
        ({"segments": [["s", 0, 12], ["t", 0, -1]]}, ("segments is ",)),
        ({"segments": "s"}, ("segments is ",)),
        ({"priority": "high"}, ("priority is ",)),
        ({"priority": 1.5}, ("priority is ",)),
        ({"arrival_ns": 10**18}, ("arrival_ns is ",)),
    ],
)
def test_requests_that_contradict_themselves(case: Case, change: dict[str, Any], words: tuple[str, ...]) -> None:
    case.requests[1] |= change
    case.write()
    case.assert_refused("case.requests.jsonl:2: ", *words)


def test_the_clock_says_which_arrivals_there_are(case: Case) -> None:
    case.config["clock"] = "step"
    case.write()
    case.assert_refused("case.requests.jsonl:1: arrival_step is missing")


def drop(key: str, index: int) -> Callable[[list[Any]], None]:
    def change(passes: list[Any]) -> None:
        del passes[index][key]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda passes: passes.pop(1), ("case.steps.jsonl.gz:2: step is 2, where pass 1 stands",)),
        (lambda passes: passes.insert(1, passes[0]), ("case.steps.jsonl.gz:2: step is 0",)),
        (lambda passes: passes.append(3), ("holds no JSON object",)),
        (lambda passes: passes[0].update(sched=[["a"]]), (":1: sched is ", "[id, tokens]")),
        (lambda passes: passes[0].update(arr="a"), (":1: arr is ", "a list of ids")),
        (lambda passes: passes[0].update(evict="1"), (":1: evict is ",)),
        (lambda passes: passes[2].update(free=-1), (":3: free is -1",)),
        *[
            (drop(key, 0), (f":1: {key} is missing",))
            for key in ("step", "t_ns", "sched", "free", "dur_ns", "free_end")
        ],
    ],
)
def test_passes_that_are_none(case: Case, change: Callable[[list[Any]], object], words: tuple[str, ...]) -> None:
    change(case.passes)
    case.write()
    case.assert_refused(*words)


@pytest.mark.parametrize("part", ["config.json", "requests.jsonl", "steps.jsonl.gz"])
def test_files_that_cannot_be_read(case: Case, part: str) -> None:
    case.write()
    path = case.folder / f"case.{part}"
    whole = path.read_bytes()
    middle = len(whole) // 2
    garbled = whole[:middle] + bytes(byte ^ 0xFF for byte in whole[middle : middle + 8]) + whole[middle + 8 :]
    for data in (whole[:-9], garbled, b"\xff\xfe", b"[1, 2]", b""):
        if data == b"" and part == "steps.jsonl.gz":
            continue
        path.write_bytes(data)
        case.assert_refused(f"case.{part}")
    path.unlink()
    case.assert_refused(f"case.{part}: no such file")
    path.mkdir()
    case.assert_refused(f"case.{part}: cannot be read")


def test_the_other_cases_are_compared_all_the_same(case: Case) -> None:
    case.write()
    (case.folder / "broken.config.json").write_text("{")
    done = CliRunner().invoke(app, ["verify", "schedule", str(case.folder)])
    assert done.exit_code == 2
    assert "broken.config.json" in done.stderr
    assert "case: exact" in done.stdout
    assert done.stdout.endswith("exact 1/2 cases\n")
