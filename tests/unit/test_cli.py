"""The commands' promises: clean stdout, exit codes, no traceback, foreign packages named."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from simulator.cli import app, console
from simulator.cli.intruders import intruders
from tests.support import DATA, ROOT, needs_shared


def kvplan(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def test_help_lists_what_is_there_and_nothing_else() -> None:
    text = kvplan("--help").stdout
    for name in ("run", "size", "workload", "verify", "catalog", "report", "schema"):
        assert f"\n  {name} " in text
    for name in console.LATER:
        assert f"\n  {name} " not in text


@pytest.mark.parametrize("command", ["run", "size", "workload", "report", "schema", "verify schedule", "catalog gpus"])
def test_each_command_has_help_json_and_quiet(command: str) -> None:
    result = kvplan(*command.split(), "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout and "--quiet" in result.stdout


@pytest.mark.parametrize("args", [["serve", "quickstart"], ["explore", "--json"], ["verify", "latency", "x.csv"]])
def test_commands_of_later_are_refused_with_what_works(args: list[str]) -> None:
    result = kvplan(*args)
    assert result.exit_code == 2
    assert "is not in this version" in result.stderr
    assert (json.loads(result.stdout)["error"]["exit_code"] == 2) if "--json" in args else (result.stdout == "")


@pytest.mark.parametrize("args", [["rum"], ["run"], ["run", "--sead", "3"], ["catalog", "gpu"], ["size", "--model"]])
def test_usage_errors_exit_2(args: list[str]) -> None:
    result = kvplan(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_an_internal_error_is_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("made for the test")

    monkeypatch.setattr("simulator.scenario.load_scenario", broken)
    monkeypatch.delenv("KVPLAN_DEBUG", raising=False)
    result = kvplan("run", "quickstart")
    assert result.exit_code == 1
    assert "ZeroDivisionError: made for the test" in result.stderr
    assert "KVPLAN_DEBUG=1" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("KVPLAN_DEBUG", "1")
    assert isinstance(kvplan("run", "quickstart").exception, ZeroDivisionError)


def test_interruption_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.run_scenario.run", interrupted)
    out = tmp_path / "deep" / "out"
    result = kvplan("run", "quickstart", "--out", str(out))
    assert result.exit_code == 130
    assert "interrupted" in result.stderr and "Traceback" not in result.stderr
    assert not out.exists()


def test_schema_is_json_schema_that_knows_the_kinds() -> None:
    schema = json.loads(kvplan("schema").stdout)
    assert {"name", "model", "workload", "engine", "variants"} <= schema["properties"].keys()
    assert {"Poisson", "ClosedLoop", "Lognormal"} <= schema["$defs"].keys()
    assert schema["additionalProperties"] is False


def test_a_catalogue_entry_states_its_sources() -> None:
    found = json.loads(kvplan("catalog", "gpus", "H100 SXM 80GB", "--json").stdout)["gpus"]
    assert [gpu["name"] for gpu in found] == ["h100-sxm-80gb"]
    assert found[0]["sources"]
    every = json.loads(kvplan("catalog", "models", "--json").stdout)["models"]
    assert {"llama-3.1-8b", "deepseek-v3"} <= {model["name"] for model in every}


def test_a_foreign_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "__init__.py").write_text("", encoding="utf-8")
    assert intruders(ROOT) == []
    for name in [name for name in sys.modules if name.partition(".")[0] == "reports"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    (line,) = intruders(ROOT)
    assert "'reports'" in line and str(tmp_path / "reports") in line


@pytest.mark.parametrize("name", ["simulator", "workloads", "reports"])
def test_the_console_script_refuses_a_foreign_package(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    start = "import sys; sys.path.append(sys.argv.pop()); from scenarios.start import app; app()"
    proc = subprocess.run(
        [sys.executable, "-c", start, "--help", str(ROOT)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert proc.returncode == 2
    assert proc.stderr.startswith(f"kvplan: the package '{name}' at {tmp_path / name} shadows")
    assert proc.stdout == ""


@needs_shared
def test_verify_schedule_counts_what_is_exact(tmp_path: Path) -> None:
    golden = DATA / "vllm_golden"
    prefix = str(golden / "apc_full_hit_micro")
    good = kvplan("verify", "schedule", prefix, f"{prefix}.requests.jsonl")
    assert good.exit_code == 0
    assert good.stdout.splitlines()[-1] == "exact 1/1 cases"
    for part in (".config.json", ".requests.jsonl", ".steps.jsonl.gz"):
        (tmp_path / f"case{part}").write_bytes(Path(prefix + part).read_bytes())
    steps = tmp_path / "case.steps.jsonl.gz"
    steps.write_bytes(gzip.compress(gzip.decompress(steps.read_bytes()).replace(b'"free":', b'"free":1', 1)))
    both = kvplan("verify", "schedule", prefix, str(tmp_path / "case"))
    assert both.exit_code == 4
    assert both.stdout.splitlines()[-1] == "exact 1/2 cases"
    assert "differing in free" in both.stdout
    empty = kvplan("verify", "schedule", str(golden / "nowhere"))
    assert empty.exit_code == 2


def test_size_says_what_would_work_and_exits_3() -> None:
    done = kvplan("size", "--model", "llama-3.1-70b", "--gpu", "l4", "--json")
    assert done.exit_code == 3
    sized = json.loads(done.stdout)
    assert sized["fits"] is False and sized["remedies"]
    assert kvplan("size", "--model", "llama-3.1-70b", "--gpu", "l4").exit_code == 3
    assert kvplan("size", "--model", "llama-3.1-8b", "--gpu", "l4", "--max-model-len", "8192").exit_code == 0


def test_size_without_a_gpu_is_arithmetic_alone() -> None:
    done = kvplan("size", "--model", "meta-llama/Llama-3.1-8B", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--model", "lama-3.1-8b"], ("did you mean llama-3.1-8b",)),
        (["--model", "llama-3.1-8b", "--gpu", "h100-sxm-80bg"], ("h100-sxm-80gb",)),
        (["--model", "llama-3.1-8b", "--kv-cache-dtype", "fp9"], ("--kv-cache-dtype: ", "fp8")),
        (
            ["--model", "llama-3.1-8b", "--gpu", "l4", "--tensor-parallel-size", "3"],
            ("--tensor-parallel-size", "valid"),
        ),
        (["--model", "llama-3.1-8b", "--block-size", "0"], ("--block-size",)),
        (["--model", "llama-3.1-8b", "--gpu", "l4", "--gpu-memory-utilization", "92"], ("--gpu-memory-utilization",)),
    ],
)
def test_size_names_the_option_that_is_wrong(args: list[str], words: tuple[str, ...]) -> None:
    done = kvplan("size", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    for word in words:
        assert word in done.stderr


def test_workload_describes_a_trace_and_names_its_broken_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n0.5,twenty,6\n1.0,30,7\n", encoding="utf-8"
    )
    facts = json.loads(kvplan("workload", str(path), "--json").stdout)
    assert (facts["rows"], facts["rows_read"], facts["rows_dropped"]) == (2, 3, 1)
    assert facts["dropped"][0]["examples"][0]["line"] == 3
    assert "Rows dropped" in kvplan("workload", str(path)).stdout
    missing = kvplan("workload", str(tmp_path / "nowhere.csv"))
    assert missing.exit_code == 2 and "nowhere.csv" in missing.stderr


def test_workload_describes_a_scenario_and_its_variants() -> None:
    facts = json.loads(kvplan("workload", "quickstart", "--json", "--set", "workload.num_requests=50").stdout)
    assert facts["rows"] == 50  # its variants have one workload
    assert set(json.loads(kvplan("workload", "chat-bursts", "--json").stdout)["variants"]) == {
        "even", "random", "bursts", "on_off",
    }  # fmt: skip


def test_a_trace_of_lengths_alone_is_described() -> None:
    facts = json.loads(kvplan("workload", str(ROOT / "scenarios" / "data" / "seed_lengths.csv"), "--json").stdout)
    assert facts["rows"] == 500
