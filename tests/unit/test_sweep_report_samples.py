"""The samples in reports/samples belong to the shipped sweeps, and are small enough to be cloned by everyone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.sweep_samples import copy_sample
from tests.support import ROOT
from tests.sweep_report_folder import write_sweep

SAMPLES = ROOT / "reports" / "samples"
SWEEPS = sorted(path.stem for path in (ROOT / "scenarios").glob("sweep-*.yaml"))


@pytest.mark.parametrize("name", SWEEPS)
def test_every_shipped_sweep_has_a_sample_that_answers_its_question(name: str) -> None:
    question = (ROOT / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    text = (SAMPLES / name / "report.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {question}\n")
    assert str(ROOT) not in text
    drawings = re.findall(r"\]\((plots/\w+\.svg)\)", text)
    assert sorted(drawings) == sorted(f"plots/{path.name}" for path in (SAMPLES / name / "plots").iterdir())


def test_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 2_000_000


def test_a_sample_brings_its_own_ground_and_drops_older_drawings(tmp_path: Path) -> None:
    (tmp_path / "sweep" / "plots").mkdir(parents=True)
    (tmp_path / "samples" / "made-up" / "plots").mkdir(parents=True)
    sweep = write_sweep(tmp_path / "sweep", {"gpu": ["l4", "l40s"]}, lambda place: {})
    (sweep / "report.md").write_text("# Why?\n", encoding="utf-8")
    (sweep / "plots" / "sweep_bars.svg").write_text("<svg />", encoding="utf-8")
    old = tmp_path / "samples" / "made-up" / "plots" / "sweep_map.svg"
    old.write_text("<svg />", encoding="utf-8")
    copy_sample(sweep, tmp_path / "samples")
    assert not old.exists()
    drawn = (tmp_path / "samples" / "made-up" / "plots" / "sweep_bars.svg").read_text(encoding="utf-8")
    assert drawn.startswith('<svg style="background: #ffffff')
    assert (tmp_path / "samples" / "made-up" / "report.md").is_file()
