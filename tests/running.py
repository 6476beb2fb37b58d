"""What tests of ``kvplan run`` share: a short scenario, a runner, and the comparison of two result folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from simulator.cli import app

SCENARIO = """\
name: chat
seed: 3
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {max_model_len: 4096, num_gpu_blocks_override: 400}
workload:
  num_requests: 60
  arrivals: {kind: poisson, rate_rps: 40}
  prompt_tokens: {kind: lognormal, mean: 200, cv: 1.0, max: 2000}
  output_tokens: {kind: uniform, min: 1, max: 150}
"""
SAME = ("result.json", "requests.csv", "timeline.csv", "scenario.resolved.yaml")

Run = Callable[..., Result]


def runs_in(tmp_path: Path) -> Run:
    """Runs SCENARIO (or ``text``) and options into ``tmp_path / out``, without the report, which takes seconds."""

    def go(
        *options: str, out: str = "out", text: str = SCENARIO, file: str = "chat.yaml", report: bool = False
    ) -> Result:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        drawn = [] if report else ["--no-report"]
        return CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / out), *drawn, *options])

    return go


def result_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))


def same_bytes(a: Path, b: Path) -> None:
    for name in SAME:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
