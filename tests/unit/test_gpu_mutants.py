"""Index expressions of the kernels, each wrong in one place: whatever changes what a kernel does must be caught."""

from __future__ import annotations

import os

import pytest

from tests.kernel_mutants import EQUIVALENT, Mutant, mutants, try_all
from tests.kernel_support import needs_compiler

pytestmark = needs_compiler


def _unexpected(which: list[Mutant], workers: int) -> list[str]:
    return [
        str(mutant)
        for mutant, found in try_all(which, workers).items()
        if found == "survived" and (mutant.file, f"{mutant.right} -> {mutant.wrong}", mutant.line) not in EQUIVALENT
    ]


def test_a_sample_of_mutants_is_caught() -> None:
    assert not _unexpected(mutants()[7::67], workers=1)


@pytest.mark.slow
def test_every_mutant_is_caught_or_known_to_change_nothing() -> None:
    assert not _unexpected(mutants(), workers=os.cpu_count() or 1)


def test_what_is_known_to_change_nothing_still_stands_in_the_kernels() -> None:
    there = {(mutant.file, f"{mutant.right} -> {mutant.wrong}", mutant.line) for mutant in mutants()}
    assert EQUIVALENT.keys() <= there, EQUIVALENT.keys() - there
