"""CONTRIBUTING.md and README.md name real files and real make targets; each dependency has its reason."""

from __future__ import annotations

import re

import pytest

from tests.packaging.distribution import declared
from tests.support import ROOT

FOLDERS = ("simulator/", "workloads/", "gpu_validate/", "reports/", "scenarios/", "tests/", ".ci/")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "README.md"])
def test_files_that_a_document_names_exist(document: str) -> None:
    named = re.findall(r"`([\w./*-]+)`", text_of(document)) + re.findall(r"\]\(([\w./-]+)\)", text_of(document))
    paths = [name for name in named if name.startswith(FOLDERS)]
    missing = [name for name in paths if not list(ROOT.glob(name.rstrip("/")))]
    assert paths
    assert not missing, f"{document} names what is not there: {missing}"


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "README.md"])
def test_make_targets_that_a_document_names_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text_of(document), flags=re.MULTILINE))
    assert named
    assert named <= targets


def test_each_dependency_has_its_reason() -> None:
    _, _, reasons = text_of("CONTRIBUTING.md").lower().partition("## why each dependency")
    unexplained = {name for name in declared() | declared("dev") if not re.search(rf"\b{re.escape(name)}\b", reasons)}
    assert not unexplained
