"""``kvplan gpu`` and ``python -m gpu_validate``: exit codes, JSON, files; and what they need to be installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpu_validate import commands
from gpu_validate.check import Finding, Report
from gpu_validate.cli import main
from gpu_validate.goals import goals
from gpu_validate.variants import Variant
from simulator.calibration import load_calibration, save_calibration
from simulator.catalog import find_gpu, find_model
from simulator.cli import app
from tests.gpu_tables import table
from tests.support import ROOT
from tests.unit.test_gpu_fit import TRUTH

FAKE = str(ROOT / "tests" / "fake_gpu")
ONE = (Variant(64, 4, 2, "float16", "float16"),)


def kvplan(*args: str) -> Any:
    return CliRunner().invoke(app, ["gpu", *args])


def run_module(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "variants_of", lambda name: ONE)
    monkeypatch.setitem(commands._LONGEST, "cpu", 20)


@pytest.mark.usefixtures("one_kernel")
def test_check_on_the_cpu_says_what_passed_and_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    result = kvplan("check", "--backend", "cpu", "--out", str(path))
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert document["failed"] == 0 and document["checks"] > 10
    assert f"{document['checks']}/{document['checks']} checks of 1 kernels passed on CPU (shim)" in result.stdout
    assert f"wrote {path}" in result.stderr
    quiet = kvplan("check", "--backend", "cpu", "--out", str(path), "--json", "--quiet")
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["kernel_hash"] == document["kernel_hash"]


@pytest.mark.usefixtures("one_kernel")
def test_a_check_that_fails_is_named_and_exits_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Finding("numpy", "d64", "1 2", 7.0, False, "3 of 9 numbers are wrong")
    report = Report({"device": "CPU (shim)"}, "abc", "ci", 1.0, (wrong,))
    monkeypatch.setattr("gpu_validate.check.run_checks", lambda *args, **kwargs: report)
    result = kvplan("check", "--backend", "cpu", "--out", str(tmp_path / "check.json"))
    assert result.exit_code == 4
    assert "FAILED numpy d64 (lengths 1 2): 3 of 9 numbers are wrong" in result.stdout
    assert main(["check", "--backend", "cpu", "--out", str(tmp_path / "check.json")]) == 4


def test_without_a_gpu_it_says_so_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for command in ("check", "calibrate"):
        result = kvplan(command, "--json")
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"]["exit_code"] == 2
        assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr
        assert main([command]) == 2
        said = capsys.readouterr().err
        assert said.startswith("gpu_validate: --backend cuda: CuPy") and said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--backend", "tpu"], ["--backend", "cpu", "--grid", "huge"]])
def test_unknown_names_exit_2(arguments: list[str]) -> None:
    assert kvplan("check", *arguments).exit_code == 2
    assert main(["check", *arguments]) == 2


def test_refit_and_predict_need_no_card(tmp_path: Path) -> None:
    measured = table(TRUTH, find_gpu("h200-sxm-141gb"), find_model("llama-3.1-8b"), noise=0.01)
    raw = tmp_path / "measurements.json"
    measured.write(raw)
    result = kvplan("calibrate", "--measurements", str(raw), "--out", str(tmp_path / "fit"))
    assert result.exit_code == 0, result.output
    path = tmp_path / "fit" / "calibration.yaml"
    assert f"calibration: {path}}}" in result.stdout
    assert load_calibration(path).memory_efficiency == pytest.approx(0.83, rel=0.02)
    for name in ("fit.json", "prediction.json"):
        assert json.loads((tmp_path / "fit" / name).read_text())["schema_version"] == 1
    good = kvplan("predict", "--measurements", str(raw), "--calibration", str(path))
    assert good.exit_code == 0 and "within 5%" in good.stdout
    assert good.stdout.count("\n* model=") == 5
    save_calibration(replace(load_calibration(path), memory_efficiency=0.6), tmp_path / "slow.yaml")
    slow = str(tmp_path / "slow.yaml")
    bad = kvplan("predict", "--measurements", str(raw), "--calibration", slow, "--json")
    assert bad.exit_code == 4
    assert not json.loads(bad.stdout)["met"]


def test_goals_are_read_off_the_table() -> None:
    measured = table(TRUTH, find_gpu("h200-sxm-141gb"), find_model("llama-3.1-8b"), noise=0.0)
    found = {goal.name: goal for goal in goals(measured, None)}
    assert found["paged over contiguous, block size 16"].reached == pytest.approx(0.0)
    assert found["paged over contiguous, block size 16"].met
    assert found["whole steps not seen by the fit"].met is None  # nobody predicted
    assert found["decode attention over copy bandwidth, batch >= 64, context >= 2,048"].met is None  # no copy was timed


def test_check_runs_where_numpy_alone_is_installed() -> None:
    """Not even YAML and typer; and what calibrate lacks is said in a sentence."""
    code = """
import sys
for name in ("simpy", "pydantic", "pandas", "matplotlib", "jinja2", "scipy", "yaml", "typer", "click"):
    sys.modules[name] = None
from gpu_validate import commands
from gpu_validate.cli import main
from gpu_validate.variants import Variant
commands.variants_of = lambda name: (Variant(64, 4, 2, "float16", "float16"),)
commands._LONGEST["cuda"] = 4
import cupy
cupy.execute = True
code = main(["check", "--out", sys.argv[1]])
assert main(["calibrate"]) == 2
sys.exit(code)
"""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"kvplan-check-{os.getpid()}.json"
    try:
        done = run_module("-c", code, str(path), PYTHONPATH=FAKE)
        assert done.returncode == 0, done.stderr
        assert "checks of 1 kernels passed on NVIDIA H200" in done.stdout
        assert "gpu_validate: yaml is not installed (pip install pyyaml)" in done.stderr
    finally:
        path.unlink(missing_ok=True)


def test_the_module_itself_exits_2_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')\n")
    done = run_module("-m", "gpu_validate", "check", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "CuPy cannot be loaded: libcuda.so.1" in done.stderr and "Traceback" not in done.stderr


def test_calibrate_needs_neither_simpy_nor_pydantic(tmp_path: Path) -> None:
    code = """
import sys
for name in ("simpy", "pydantic", "pandas", "matplotlib", "jinja2", "annotated_types", "scipy"):
    sys.modules[name] = None
from gpu_validate.cli import main
sys.exit(main(["calibrate", "--plan", "small", "--model", "llama-3.2-1b", "--out", sys.argv[1], "--json"]))
"""
    done = run_module("-c", code, str(tmp_path), PYTHONPATH=FAKE)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    # What the stand-in's clock was made of (tests/fake_gpu/cupy.py).
    assert answer["fitted"]["memory_efficiency"] == pytest.approx(0.8, rel=1e-3)
    assert answer["fitted"]["kv_read_efficiency"] == pytest.approx(0.9, rel=1e-2)
    assert answer["fitted"]["kv_read_efficiency_8bit"] == pytest.approx(0.75, rel=1e-2)
    # Of a layer: four products of 3 µs, attention 5 µs, and five small kernels of 1.5 µs, less the default's passes.
    assert answer["fitted"]["layer_overhead_us"] == pytest.approx(4 * 3 + 5 + 5 * 1.5, rel=0.03)


def test_device_run_is_valid_bash() -> None:
    assert subprocess.run(["bash", "-n", "gpu_validate/device_run.sh"], cwd=ROOT, check=False).returncode == 0


def test_device_run_goes_through_everything_and_remembers_what_failed(tmp_path: Path) -> None:
    settings = {"OUT": str(tmp_path), "PYTHON": sys.executable, "MODEL": "llama-3.2-1b", "PLAN": "small"}
    done = subprocess.run(
        ["bash", "gpu_validate/device_run.sh"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **settings, "PYTHONPATH": FAKE, "CHECK": "check --grid none"},  # a first part that fails
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "exit code" in line] == [
        "== check: exit code 2",
        "== calibrate: exit code 0",
        "== predict: exit code 0",
    ]
    written = sorted(path.name for path in tmp_path.iterdir() if path.name != "nvidia-smi.txt")
    assert written == ["calibration.yaml", "device_run.log", "fit.json", "measurements.json", "prediction.json"]
    assert load_calibration(tmp_path / "calibration.yaml").measured_on == "h200-sxm-141gb"
    assert "there is no grid 'none'" in (tmp_path / "device_run.log").read_text()


def test_device_run_ends_within_ten_minutes() -> None:
    """Its parts' limits, together with what is needed to stop each."""
    text = (ROOT / "gpu_validate" / "device_run.sh").read_text()
    limits = [int(line.split()[2]) for line in text.splitlines() if line.startswith("part ")]
    assert len(limits) == 3
    assert sum(limits) + 10 * len(limits) <= 600
