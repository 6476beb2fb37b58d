"""README.md shows what the commands really print: each block marked ``output of: COMMAND`` is compared with a run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.sample_drawings import on_own_ground
from reports.tables import runs_of
from simulator.cli import app
from tests.support import ROOT, SHARED, needs_shared

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- output of: (.+?) -->\n```text\n(.*?)\n```", README, flags=re.DOTALL)
RECORDED = re.findall(r"<!-- recorded output of: (.+?) -->\n```text\n(.*?)\n```", README, flags=re.DOTALL)
SAMPLES = ROOT / "reports" / "samples"


def printed(command: str, folder: Path, *more: str) -> tuple[str, int]:
    """What a command prints on both streams, its result folder moved to ``folder``; and its exit code."""
    program, *words = shlex.split(command)
    assert program == "kvplan"
    asked = words[words.index("--out") + 1] if "--out" in words else ""
    if asked:
        words[words.index("--out") + 1] = str(folder)
    found = CliRunner().invoke(app, [*words, *more])
    text = found.stdout + found.stderr
    return text.replace(str(folder), asked) if asked else text, found.exit_code


def starts_of(shown: str, text: str) -> list[str]:
    """Where each stretch of lines between "..." stands in the text: the ones that are missing."""
    missing, rest = [], text
    for stretch in re.split(r"\n?^\.\.\.$\n?", shown, flags=re.MULTILINE):
        before, found, after = rest.partition(stretch)
        if not found or not (before == "" or before.endswith("\n")):
            missing.append(stretch)
        else:
            rest = after
    return missing


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[" ".join(command.split()[:3]) for command, _ in BLOCKS])
def test_shown_output_is_real(command: str, shown: str, tmp_path: Path) -> None:
    more = ["--no-report"] if " run " in command else []
    text, code = printed(command, tmp_path / "out", *more)
    assert code == 0, text
    missing = starts_of(shown, "\n".join(line.rstrip() for line in text.splitlines()))
    assert not missing, f"README.md shows what `{command}` does not print:\n{missing[0]}\nIt prints:\n{text}"


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), RECORDED, ids=[" ".join(command.split()[:3]) for command, _ in RECORDED])
def test_shown_output_of_a_long_run_is_real(command: str, shown: str, tmp_path: Path) -> None:
    text, code = printed(command.replace("../shared", str(SHARED)), tmp_path / "out")
    assert code in (0, 4), text
    missing = starts_of(shown, "\n".join(line.rstrip() for line in text.splitlines()))
    assert not missing, f"README.md shows what `{command}` does not print:\n{missing[0]}\nIt prints:\n{text}"


def test_a_wrong_number_in_the_readme_would_be_found() -> None:
    text = "a  1\nb  2\nc  3\nd  4\n"
    assert starts_of("a  1\n...\nc  3\nd  4", text) == []
    assert starts_of("a  1\n...\nc  4", text) == ["c  4"]
    assert starts_of("  1", text) == ["  1"]


def test_five_ways_are_shown_and_every_command_is_in_the_table() -> None:
    assert [command.split()[1:3] for command, _ in BLOCKS] == [
        ["run", "quickstart"],
        ["size", "--model"],
        ["run", "shared-prefixes"],
        ["run", "seed-capacity"],
        ["run", "eight-systems"],
        ["catalog", "engines"],
        ["workload", "quickstart"],
    ]
    listed = set(re.findall(r"^\| `kvplan (\w+)", README, flags=re.MULTILINE))
    offered = set(re.findall(r"^  (\w+)  ", CliRunner().invoke(app, ["--help"]).stdout, flags=re.MULTILINE))
    assert offered == listed


@pytest.mark.parametrize("picture", re.findall(r"\]\((reports/samples/[\w.]+)\)", README))
def test_pictures_have_their_own_ground(picture: str) -> None:
    text = (ROOT / picture).read_text(encoding="utf-8")
    assert text == on_own_ground(text.replace('style="background: #ffffff; color: #1b1f24" ', "", 1))


def test_the_admission_picture_is_the_present_one(tmp_path: Path) -> None:
    _, code = printed("kvplan run seed-capacity --out out/x", tmp_path / "out")
    assert code == 0
    drawn = (tmp_path / "out" / "plots" / "admitted_by_block_size.svg").read_text(encoding="utf-8")
    assert (SAMPLES / "admitted_by_block_size.svg").read_text(encoding="utf-8") == on_own_ground(drawn), "make samples"


def test_the_words_beside_the_picture_of_memory_are_true(tmp_path: Path) -> None:
    """Its bytes depend on every step of 4,000 requests; what README.md says of it is compared instead."""
    import json

    printed("kvplan run quickstart --out out/x --no-report", tmp_path / "out")
    runs = runs_of(json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8")))
    described = (SAMPLES / "memory_split.svg").read_text(encoding="utf-8")
    shares = re.search(r"contiguous: .*?internal waste ([\d.]+)%.*?paged: .*?internal waste ([\d.]+)%", described)
    assert shares is not None
    for share, name in zip(shares.groups(), ("contiguous", "paged"), strict=True):
        assert float(share) == pytest.approx(100 * runs[name]["kv"]["internal_fragmentation_share"], abs=0.051)
