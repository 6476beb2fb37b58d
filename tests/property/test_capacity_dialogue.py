"""A capacity search's answer depends on nothing but its question: not on order, executor, workers, kills or disks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.capacity.dialogue import Dialogue
from simulator.planner.capacity.probe import Probe, ProbeOutcome
from simulator.planner.capacity.store import ProbeStore
from simulator.planner.executors import make_executor
from simulator.planner.executors.base import Executor
from simulator.planner.lock import FolderLock
from tests.capacity_search import SCENARIO, Capacities, Counting, Kept, Shuffled, contents, searched

OVER = "capacity: {over: {engine.max_num_seqs: [4, 16]}}\n"
TEXT = SCENARIO.replace("num_requests: 40", "num_requests: 15") + OVER
KVPLAN = [sys.executable, "-c", "from simulator.cli import app; app()"]
PATIENCE_S = 300.0


class Sum:
    """A job that is no simulation: its key is its number, its outcome twice that."""

    def __init__(self, index: int, number: int) -> None:
        self.index, self.number = index, number

    @property
    def key(self) -> str:
        return f"{self.number}"

    def run(self) -> ProbeOutcome:
        return ProbeOutcome("ok", None, {"twice": 2 * self.number}, 0.0)

    def lost(self, message: str) -> ProbeOutcome:
        return ProbeOutcome("failed", message, {}, 0.0)


class Number:
    def __init__(self, number: int) -> None:
        self.number = number

    def probe(self, index: int) -> Probe:
        return cast("Probe", Sum(index, self.number))


def walk(steps: list[list[int]]) -> Generator[list[Number], list[ProbeOutcome], list[Any]]:
    """A search whose every question follows from the answers before."""
    seen: list[Any] = []
    total = 0
    for step in steps:
        asked = [(number + total) % 17 for number in step]
        answers = yield [Number(number) for number in asked]
        assert [answer.facts["twice"] for answer in answers] == [2 * number for number in asked]
        total += sum(answer.facts["twice"] for answer in answers)
        seen.append(total)
    return seen


@given(st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5), max_size=6), st.data())
def test_searches_get_their_own_answers_in_any_order_and_no_probe_runs_twice(
    searches: list[list[list[int]]], data: st.DataObject
) -> None:
    alone = [Dialogue(Kept(), Counting()).hold([walk(steps)])[0] for steps in searches]
    memory = Kept()
    shuffled = Shuffled(lambda held: data.draw(st.integers(0, held - 1)))
    together = Dialogue(memory, shuffled)
    assert together.hold([walk(steps) for steps in searches]) == alone
    assert len(memory.saved) == len(set(memory.saved)) == together.run
    again = Dialogue(memory, Counting())
    assert again.hold([walk(steps) for steps in searches]) == alone
    assert again.run == 0 and again.kept == len(memory.saved)


@pytest.mark.parametrize("order", ["last first", 1, 2])
def test_the_answer_does_not_depend_on_which_probe_ends_first(order: object) -> None:
    dice = random.Random(str(order))
    choose = (lambda held: held - 1) if order == "last first" else dice.randrange
    memory = Kept()
    plain, shuffled = searched(TEXT), Shuffled(choose)
    other = searched(TEXT, executor=shuffled, memory=memory)
    assert other.said == plain.said and other.rows == plain.rows and other.probes == plain.probes
    assert shuffled.most_at_once >= 4
    assert len(memory.saved) == len(set(memory.saved)) == plain.said["counts"]["probes"]


def test_what_comes_from_the_disk_is_what_came_from_the_worker(tmp_path: Path) -> None:
    memory = Kept()
    searched(TEXT, memory=memory)
    store = ProbeStore(tmp_path)
    store.prepare()
    for key, outcome in memory.outcomes.items():
        store.save(key, outcome)
        found = store.read(key)
        assert found is not None and (found.status, found.facts) == (outcome.status, outcome.facts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The folder of a search that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        done = Capacities(folder, patch)("--quiet", text=TEXT)
    assert done.exit_code == 0, done.output
    return contents(folder / "out")


@pytest.mark.parametrize("kind", ["local 1", "local 2", "dask"])
def test_executors_and_numbers_of_workers_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes], kind: str
) -> None:
    name, _, workers = kind.partition(" ")
    if name == "dask":
        pytest.importorskip("distributed")
    capacities = Capacities(tmp_path, monkeypatch)
    executor: Executor = make_executor(name, workers=int(workers or 1), scheduler=None, quiet=True)
    done = capacities("--quiet", text=TEXT, executor=cast("Counting", executor))
    assert done.exit_code == 0, done.output
    assert contents(tmp_path / "out") == whole


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    (folder / "chat.yaml").write_text(TEXT, encoding="utf-8")
    command = [*KVPLAN, "capacity", str(folder / "chat.yaml"), "--out", str(folder / "out"), "--no-report", "--quiet"]
    return subprocess.Popen(
        [*command, "--workers", "1", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def stored(folder: Path) -> dict[str, int]:
    """Probes that stand, and when each was written: one that runs again is written again."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "out" / "probes").glob("*.json")}


def wait_for(folder: Path, search: subprocess.Popen[bytes], probes: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(stored(folder)) < probes and search.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_search_goes_on_with_resume_to_the_same_bytes_and_runs_no_probe_twice(
    tmp_path: Path, whole: dict[str, bytes], kills: int
) -> None:
    dice = random.Random(kills)
    before: dict[str, int] = {}
    killed = 0
    for _ in range(kills):
        search = start(tmp_path, "--resume")
        wait_for(tmp_path, search, len(before) + dice.randint(1, 40 // kills))
        killed += search.poll() is None
        search.kill()
        search.communicate()
        now = stored(tmp_path)
        assert now.items() >= before.items(), "a probe that stood was run again"
        before = now
    assert killed >= 1 and before
    refused = start(tmp_path)
    assert refused.wait(PATIENCE_S) == (2 if not (tmp_path / "out" / "answer.json").exists() else 0)
    if refused.returncode == 2:
        said = refused.stderr.read().decode() if refused.stderr else ""
        assert "--resume continues it" in said and stored(tmp_path).items() == before.items()
    done = start(tmp_path, "--resume")
    assert done.wait(PATIENCE_S) == 0, done.stderr and done.stderr.read()
    assert contents(tmp_path / "out") == whole
    if refused.returncode == 2:
        assert stored(tmp_path).items() >= before.items()


def test_ctrl_c_ends_with_130_keeps_the_probes_and_says_so(tmp_path: Path, whole: dict[str, bytes]) -> None:
    search = start(tmp_path)
    wait_for(tmp_path, search, 3)
    os.killpg(search.pid, signal.SIGINT)
    _, stderr = search.communicate(timeout=PATIENCE_S)
    assert search.returncode == 130, stderr.decode()
    assert b"probes are kept" in stderr and b"--resume" in stderr and b"Traceback" not in stderr
    assert not (tmp_path / "out" / "answer.json").exists() and len(stored(tmp_path)) >= 3


@pytest.fixture
def capacities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Capacities:
    return Capacities(tmp_path, monkeypatch)


def test_resume_runs_what_is_missing_and_only_that(capacities: Capacities, whole: dict[str, bytes]) -> None:
    out = capacities.folder / "out"
    assert capacities(text=TEXT, executor=Counting(7, KeyboardInterrupt())).exit_code == 130
    assert len(stored(capacities.folder)) == 7
    assert capacities(text=TEXT).exit_code == 2 and capacities.ran == 0
    assert capacities("--resume", text=TEXT).exit_code == 0
    everything = len(stored(capacities.folder))
    assert capacities.ran == everything - 7 and contents(out) == whole
    assert capacities("--resume", text=TEXT).exit_code == 0
    assert capacities.ran == 0 and contents(out) == whole
    assert capacities("--restart", text=TEXT).exit_code == 0
    assert capacities.ran == everything and contents(out) == whole


def test_damaged_probes_run_again(capacities: Capacities, whole: dict[str, bytes]) -> None:
    out = capacities.folder / "out"
    assert capacities(text=TEXT).exit_code == 0
    first, second, third, fourth = sorted((out / "probes").glob("*.json"))[:4]
    first.write_bytes(first.read_bytes()[:100])
    changed = json.loads(second.read_text())
    changed["outcome"]["facts"]["p99_ttft_ms"] = 1.0
    second.write_text(json.dumps(changed))
    third.write_text("[]")
    fourth.unlink()
    assert capacities("--resume", text=TEXT).exit_code == 0
    assert capacities.ran == 4 and contents(out) == whole


def test_a_changed_scenario_reuses_what_it_shares_and_nothing_else(capacities: Capacities) -> None:
    assert capacities(text=TEXT).exit_code == 0
    before = contents(capacities.folder / "out")
    assert capacities("--resume", text=TEXT.replace("p99: 12", "p99: 11")).exit_code == 0
    stricter = contents(capacities.folder / "out")
    assert stricter["answer.json"] != before["answer.json"]
    assert capacities(text=TEXT.replace("p99: 12", "p99: 11"), out="fresh").exit_code == 0
    assert contents(capacities.folder / "fresh") == stricter
    assert capacities("--resume", text=TEXT.replace("[4, 16]", "[4, 16, 8]")).exit_code == 0
    more = capacities.ran
    assert capacities(text=TEXT.replace("[4, 16]", "[4, 16, 8]"), out="more").exit_code == 0
    assert 0 < more < capacities.ran
    assert contents(capacities.folder / "more") == contents(capacities.folder / "out")


def test_failed_probes_get_another_try(capacities: Capacities, whole: dict[str, bytes]) -> None:
    class Losing(Counting):
        def run(self, jobs: Any) -> Any:
            for index, outcome in super().run(jobs):
                lost = ProbeOutcome("failed", "no worker", {}, 0.0)
                yield index, lost if self.ran % 5 == 2 else outcome

    capacities(text=TEXT, executor=Losing())
    assert capacities("--resume", text=TEXT).exit_code == 0
    assert contents(capacities.folder / "out") == whole


def test_two_searches_in_one_folder_are_refused(capacities: Capacities) -> None:
    out = capacities.folder / "out"
    out.mkdir()
    with FolderLock(out):
        done = capacities(text=TEXT)
    assert done.exit_code == 2 and "is writing there" in done.stderr
    assert capacities.ran == 0


@pytest.mark.parametrize("moment", ["probe", "answer"])
def test_a_full_disk_is_told_and_loses_nothing(
    capacities: Capacities, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes], moment: str
) -> None:
    from simulator.planner.capacity import store, write

    real, written = store.write_durably, [0]

    def full(path: Path, text: str) -> None:
        written[0] += 1
        if (moment == "probe" and written[0] == 6) or (moment == "answer" and path.name == "answer.json"):
            raise OSError(28, "No space left on device")
        real(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_durably", full)
        patch.setattr(write, "write_durably", full)
        done = capacities(text=TEXT)
    assert done.exit_code == 2 and "No space left on device" in done.stderr and "--resume" in done.stderr
    assert not (capacities.folder / "out" / "answer.json").exists()
    kept = len(stored(capacities.folder))
    assert kept == 5 if moment == "probe" else kept > 20
    assert capacities("--resume", text=TEXT).exit_code == 0
    assert contents(capacities.folder / "out") == whole


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_bad_input(capacities: Capacities) -> None:
    capacities.folder.chmod(0o500)
    try:
        done = capacities(text=TEXT)
    finally:
        capacities.folder.chmod(0o700)
    assert done.exit_code == 2 and "cannot be written" in done.stderr


def test_a_folder_with_something_else_in_it_is_left_alone(capacities: Capacities) -> None:
    out = capacities.folder / "out"
    out.mkdir()
    (out / "result.json").write_text("{}")
    done = capacities(text=TEXT)
    assert done.exit_code == 2 and "holds the result of a run" in done.stderr
    assert (out / "result.json").read_text() == "{}"
