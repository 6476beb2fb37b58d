"""The folder that a run writes: whole or absent, and nothing in it from an earlier run."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.cli.result_folder import PLOTS, ResultFolder
from simulator.errors import InputError


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_nothing_of_an_earlier_run_stays_and_a_users_own_files_do(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(out, "a/result.json", "a/requests.csv", "b/result.json", "b/notes.txt", "report.html", "notes.txt")
    fill(out, "plots/memory_split.svg", "plots/mine.svg")
    (out / "result.json").write_text('{"variants": {"a": {}, "b": {}}}', encoding="utf-8")
    with ResultFolder(out) as work:
        fill(work, "result.json", "requests.csv")
    assert files(out) == {"result.json", "requests.csv", "b/notes.txt", "notes.txt", "plots/mine.svg"}
    assert not (out / "a").exists()


def test_after_an_error_the_earlier_run_stands(tmp_path: Path) -> None:
    fill(tmp_path, "result.json", "report.html")
    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path) as work:
        fill(work, "result.json", "requests.csv")
        raise KeyboardInterrupt
    assert files(tmp_path) == {"result.json", "report.html"}


def test_a_full_disk_is_bad_input_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No space left") as caught, ResultFolder(tmp_path / "out") as work:
        fill(work, "requests.csv")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(tmp_path / "out") in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("reports.page.write_report", full)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 2 and f"{tmp_path}: cannot be written: No space left" in done.stderr
    assert json.loads(done.stdout)["error"]["where"] == str(tmp_path)


def test_every_plot_of_a_report_is_known() -> None:
    from reports.page import plots
    from reports.plots import admission

    assert {plot.NAME for plot in (*plots(), admission)} == set(PLOTS)


def test_ctrl_c_in_the_middle_of_a_run_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from simulator.cli import app; app()", "run", "quickstart", "--out", str(out)]
    child = subprocess.Popen([*command, "--stepwise"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(1200):
        if out.exists():
            break
        time.sleep(0.05)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and "interrupted, nothing was written" in said
    assert not out.exists()
