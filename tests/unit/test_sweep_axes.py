"""What can be wrong with the question of a sweep is said before anything runs, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.planner.axes import read_axes
from simulator.scenario import load_scenario
from tests.sweeping import SCENARIO, Sweeps

VARIANTS = """\
variants:
  small: {engine.block_size: 8}
  paged: {}
"""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    return Sweeps(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing is swept (write --over engine.block_size=8,16,32)"),
        (["--over", "engine.block_size"], "--over engine.block_size: is not path=v1,v2,..."),
        (["--over", "engine.blocksize=8,16"], "engine.blocksize is not an option (did you mean block_size"),
        (["--over", "engin.block_size=8"], "engin is not an option (did you mean engine"),
        (["--over", "engine.block_size=8,many"], "engine.block_size must be a whole number, not the text 'many'"),
        (["--over", "engine.block_size=0"], "engine.block_size must be at least 1"),
        (["--over", "engine.block_size="], "engine.block_size has no value"),
        (["--over", "engine.block_size=[]"], "engine.block_size has no value"),
        (["--over", "engine.block_size=8,16,8"], "engine.block_size takes 8 twice"),
        (["--over", "engine.block_size=8,8.0"], "engine.block_size takes 8.0 twice"),
        (["--over", "engine.block_size=1..100"], "does not double from 1 to 100 (write engine.block_size=1..128"),
        (["--over", "engine.block_size=0..8"], "does not double"),
        (["--over", "engine.block_size={a"], "is not valid YAML"),
        (["--over", "engine.block_size=8", "--over", "engine.block_size=16"], "engine.block_size is swept twice"),
        (["--over", "engine={},{}", "--over", "engine.block_size=8"], "takes {} twice"),
        (["--over", "engine={}", "--over", "engine.block_size=8"], "cannot both be swept"),
        (["--over", "gpu=l4,rtx-5099"], "'rtx-5099' is not a GPU of the catalogue (did you mean rtx-5090"),
        (["--over", "model=llama-3.1-8b,lama"], "is not a model of the catalogue"),
        (["--over", "router=round_robin,robin"], "'robin' is not known"),
        (
            ["--over", "step_time={kind: roofline, calibration: deflt},{kind: roofline}"],
            "no calibration is called 'deflt'",
        ),
        (["--over", "seed=1,2"], "seed cannot be swept (give --replications N"),
        (["--over", "variants=1"], "variants cannot be swept"),
        (["--over", "name=a,b"], "name cannot be swept"),
        (["--over", "engine.block_size=8", "--set", "engine.block_size=16"], "the value of --set never counts"),
        (["--over", "workload.num_requests=1..1024", "--replications", "100"], "the grid has 1,100 points"),
        (["--over", "workload.num_requests=1..1024", "--replications", "10000", "--yes"], "100,000 is the most"),
        (["--over", "engine.block_size=8", "--resume", "--restart"], "contradict each other"),
    ],
)
def test_bad_questions_exit_2_before_anything_is_written(sweep: Sweeps, options: list[str], said: str) -> None:
    done = sweep(*options)
    assert done.exit_code == 2 and said in done.stderr, done.stderr
    assert not (sweep.folder / "out").exists() and not sweep.ran


def test_an_axis_that_a_variant_sets_is_refused(sweep: Sweeps) -> None:
    done = sweep("--over", "engine.block_size=8,16", text=SCENARIO + VARIANTS)
    assert done.exit_code == 2 and "the variant small sets engine.block_size" in done.stderr
    assert sweep("--over", "engine.max_num_seqs=8,16", text=SCENARIO + VARIANTS).exit_code == 0
    done = sweep("--over", "engine.block_size=8", "--set", "variants=null", text=SCENARIO + VARIANTS, out="plain")
    assert done.exit_code == 0


def test_faults_of_the_file_are_named_by_line(sweep: Sweeps) -> None:
    text = SCENARIO + "sweep:\n  over:\n    engine.block_size: [8, 16]\n    engine.max_num_seqs: [8, 0]\n"
    done = sweep(text=text)
    assert done.exit_code == 2 and "chat.yaml:15:30: engine.max_num_seqs must be at least 1" in done.stderr
    done = sweep(text=SCENARIO + "sweep: {ovr: {}}\n")
    assert done.exit_code == 2 and "sweep.ovr is not an option (did you mean over" in done.stderr
    done = sweep(text=SCENARIO + "sweep: {over: {engine.block_size: 8}}\n")
    assert done.exit_code == 2 and "sweep.over" in done.stderr


def test_options_replace_axes_of_the_file_and_add_others(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO + "sweep: {over: {engine.block_size: 4..16, engine.max_num_seqs: [7]}}\n")
    loaded = load_scenario(str(path))
    axes = read_axes(loaded, ["engine.max_num_seqs=[1, 2]", "gpu=null", "router=a..b,'1..2'"])
    assert [(axis.path, axis.values) for axis in axes] == [
        ("engine.block_size", (4, 8, 16)),
        ("engine.max_num_seqs", (1, 2)),
        ("gpu", (None,)),
        ("router", ("a..b", 1, 2)),
    ]


def test_a_run_ignores_the_sweep_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO + "sweep: {over: {engine.block_size: 4..16}, replications: 2}\n")
    assert load_scenario(str(path)).scenario.settings.engine.block_size is None
