"""Calibration files: what is shipped, what comes back after saving, what is refused and where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.calibration import (
    NUMBERS,
    Calibration,
    find_calibration,
    load_calibration,
    save_calibration,
    shipped_calibrations,
)
from simulator.errors import InputError
from tests.step_time_strategies import calibrations

HEAD = "schema: kvplan-calibration\nschema_version: 1\nname: mine\nmeasured_on: H100\n"


def written(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_shipped_number_has_a_source() -> None:
    assert "default" in shipped_calibrations()
    for name in shipped_calibrations():
        calibration = find_calibration(name)
        assert set(calibration.sources) == set(NUMBERS)
        assert all(len(source) > 20 for source in calibration.sources.values())


@settings(max_examples=30, deadline=None)
@given(calibrations(), st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1).map(str.strip))
def test_a_saved_calibration_comes_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, calibration: Calibration, source: str
) -> None:
    path = tmp_path_factory.mktemp("calibration") / "mine.yaml"
    told = replace(calibration, sources=dict.fromkeys(NUMBERS, source))
    save_calibration(told, path)
    again = load_calibration(path)
    assert again == told
    assert again.sources == told.sources
    assert [p.name for p in path.parent.iterdir()] == ["mine.yaml"]  # no temporary file left


def test_json_is_read_too(tmp_path: Path) -> None:
    document = {
        "schema": "kvplan-calibration",
        "schema_version": 1,
        "name": "mine",
        "measured_on": "H100",
        "values": {"overhead_ms": {"value": 1.5e-1, "source": "a log"}},
    }
    calibration = find_calibration(written(tmp_path, json.dumps(document), "mine.json"))
    assert (calibration.name, calibration.measured_on, calibration.overhead_ms) == ("mine", "H100", 0.15)


def test_numbers_that_a_file_lacks_are_the_defaults_and_say_so(tmp_path: Path) -> None:
    text = HEAD + "values:\n  overhead_ms: {value: 1e-3, source: a log}\n"
    calibration, default = load_calibration(written(tmp_path, text)), find_calibration("default")
    assert calibration.overhead_ms == 0.001
    assert calibration.memory_efficiency == default.memory_efficiency
    assert calibration.sources["overhead_ms"] == "a log"
    assert calibration.sources["memory_efficiency"].startswith("not in this calibration")


def test_names_are_forgiving_and_unknown_ones_get_a_hint() -> None:
    assert find_calibration(" Default ") == find_calibration("default")
    with pytest.raises(InputError, match=r"no calibration is called 'defualt'.*did you mean default"):
        find_calibration("defualt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("values: {}\n", "is not a calibration file.*schema: kvplan-calibration"),
        ("schema: other\n", r"mine.yaml:1: is not a calibration file"),
        (HEAD.replace("1", "2"), r"mine.yaml:2: schema_version is 2.*reads version 1"),
        (HEAD, "has no numbers under values"),
        (HEAD + "values: 3\n", r"mine.yaml:5: has no numbers under values"),
        (HEAD + "valeus: {}\n", r"mine.yaml:5: valeus is not part.*did you mean values"),
        (HEAD + "values:\n  memory: {value: 1, source: x}\n", r"mine.yaml:6: values.memory is not part"),
        (HEAD + "values:\n  overhead_ms: 3\n", r"mine.yaml:6: overhead_ms has no source"),
        (HEAD + "values:\n  overhead_ms: {value: 3}\n", r"mine.yaml:6: overhead_ms has no source"),
        (HEAD + "values:\n  overhead_ms: {source: x}\n", r"mine.yaml:6: overhead_ms has no value"),
        (HEAD + "values:\n  overhead_ms: {value: 3, source: x, note: y}\n", "note is not part"),
        (HEAD + "values:\n  overhead_ms: {value: 3, unit: s, source: x}\n", "is in 's'.*ms a step"),
        (HEAD + "values:\n  overhead_ms: {value: '3', source: x}\n", "overhead_ms is '3', not a number"),
        (HEAD + "values:\n  overhead_ms: {value: yes, source: x}\n", "overhead_ms is 'yes', not a number"),
        (HEAD + "values:\n  overhead_ms: {value: -1, source: x}\n", r"mine.yaml:6: overhead_ms is -1"),
        (HEAD + "values:\n  overhead_ms: {value: .nan, source: x}\n", "overhead_ms is nan"),
        (HEAD + "values:\n  overhead_ms: {value: .inf, source: x}\n", "overhead_ms is inf"),
        (
            HEAD + "values:\n  memory_efficiency:\n    value: 1.01\n    source: x\n",
            r"mine.yaml:7: memory_efficiency is 1.01: no server exceeds the data sheet",
        ),
        (HEAD + "values:\n  memory_efficiency: {value: 0, source: x}\n", "memory_efficiency is 0"),
        (HEAD + "values:\n  memory_efficiency: {value: [1], source: x}\n", r"mine.yaml:6: a list has no place"),
        (HEAD + "name: again\nvalues: {}\n", r"mine.yaml:5: name is given twice \(first at .*:3\)"),
        (HEAD + "values: {\n", r"mine.yaml:\d+: is not YAML"),
        ("", "is not a mapping"),
        ("- 1\n", "a list has no place"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_calibration(written(tmp_path, text))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent.yaml: cannot be read: No such file"):
        find_calibration(tmp_path / "absent.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not UTF-8"):
        load_calibration(path)


def test_an_impossible_number_is_refused_in_code_too() -> None:
    with pytest.raises(InputError, match=r"compute_efficiency is 1.2"):
        replace(find_calibration("default"), compute_efficiency=1.2)
