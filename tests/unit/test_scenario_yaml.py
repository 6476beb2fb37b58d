"""The strict loader: YAML 1.2's core schema, places, and what stock PyYAML would swallow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.document import dotted
from simulator.errors import InputError
from simulator.scenario_resolved import resolved_yaml
from simulator.scenario_yaml import parse_yaml, read_yaml

SCALARS: list[tuple[str, Any]] = [
    ("3.35e12", 3.35e12),
    ("1e3", 1000.0),
    ("-2.5E-3", -0.0025),
    (".5", 0.5),
    ("7.", 7.0),
    ("+4", 4),
    ("010", 10),
    ("0x1F", 31),
    ("0o17", 15),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("true", True),
    ("FALSE", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("1_000", "1_000"),
    ("12:30", "12:30"),
    ("2026-11-29", "2026-11-29"),
    ("'8'", "8"),
    ('"1e3"', "1e3"),
    ("0.9.1", "0.9.1"),
    ("1e", "1e"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    got = parse_yaml(f"key: {text}\n", "f.yaml").data["key"]
    assert (got, type(got)) == (value, type(value))


def test_nan_is_a_number_for_the_loader() -> None:
    assert math.isnan(parse_yaml("x: .nan", "f.yaml").data["x"])


def test_stock_pyyaml_gets_three_of_them_wrong() -> None:
    """Why there is a loader of our own."""
    assert yaml.safe_load("x: 3.35e12")["x"] == "3.35e12"
    assert yaml.safe_load("x: no")["x"] is False
    assert yaml.safe_load("x: 1\nx: 2")["x"] == 2


def test_places_of_keys_and_values() -> None:
    document = parse_yaml("a: 1\nb:\n  c: [10, {d: x}]\n", "f.yaml")
    assert document.key_place(("b", "c")) == "f.yaml:3:3"
    assert document.place(("b", "c")) == "f.yaml:3:6"
    assert document.place(("b", "c", 1, "d")) == "f.yaml:3:15"
    assert document.place(("b", "nowhere")) == "f.yaml:3:3"  # the nearest ancestor
    assert dotted(("b", "c", 1, "d")) == "b.c[1].d"


def test_an_anchor_stands_for_its_value() -> None:
    document = parse_yaml("a: &x {k: 1}\nb: *x\n", "f.yaml")
    assert document.data == {"a": {"k": 1}, "b": {"k": 1}}


def test_an_alias_can_be_changed_alone() -> None:
    document = parse_yaml("a: &x {k: 1}\nb: *x\n", "f.yaml")
    document.put("b.k", parse_yaml("2", "--set"))
    assert document.data == {"a": {"k": 1}, "b": {"k": 2}}


REFUSED = [
    ("a: 1\na: 2", "f.yaml:2:1", "given twice"),
    ("a:\n  b: 1\n  c: 2\n  b: 3", "f.yaml:4:3", "a.b is given twice (first at f.yaml:2:3)"),
    ("a: {b: 1,, c: 2}", "f.yaml:1:10", "not valid YAML"),
    ("a:\n\t- 1", "f.yaml:2:1", "spaces"),
    ("a: 'open", "f.yaml:1:9", "quoted scalar"),
    ("a: b: c", "f.yaml:1:5", "not valid YAML"),
    ("a: !!python/object:os.system x", "f.yaml:1:4", "tag"),
    ("a: !!int ten", "f.yaml:1:4", "int"),
    ("a: !mine [1]", "f.yaml:1:4", "tag"),
    ("a: &x [*x]", "f.yaml:1:4", "no end"),
    ("a: *nowhere", "f.yaml:1:4", "undefined alias"),
    ("a: 1\n---\nb: 2", "f.yaml:2:1", "several documents"),
    ("a: 1\nb: \x07", "f.yaml:2:4", "not allowed"),
    ("? [1]\n: 2", "f.yaml:1:3", "key must be text"),
    ("[" * 5000, "f.yaml:1:1", "nested too deeply"),
]


@pytest.mark.parametrize(("text", "place", "word"), REFUSED)
def test_refused_with_a_place_and_a_remedy(text: str, place: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f.yaml")
    assert caught.value.where == place
    assert word in str(caught.value)
    assert caught.value.remedy


def test_aliases_that_multiply_end_in_an_error() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="no end"):
        parse_yaml("\n".join(lines), "f.yaml")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    for name, word in (("absent.yaml", "no such file"), (".", "folder"), ("binary.yaml", "not UTF-8")):
        with pytest.raises(InputError, match=word) as caught:
            read_yaml(tmp_path / name, name)
        assert str(caught.value.where).startswith(name)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_yaml(tmp_path / "bom.yaml").data == {"name": "x"}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
    | st.sampled_from(["no", "3.35e12", "0x10", "1_0", "~", "null", ".inf", "12:30", "true", "- a", "a: b", "#"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_-", min_size=1), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text("abcdef_", min_size=1, max_size=6), PLAIN, max_size=5))
def test_what_the_resolved_file_says_is_read_back(data: dict[str, Any]) -> None:
    again = parse_yaml(resolved_yaml(data), "f.yaml").data
    assert (again or {}) == data


def test_put_reaches_into_lists_and_makes_mappings() -> None:
    document = parse_yaml("a: [{b: 1}]\n", "f.yaml")
    document.put("a.0.b", parse_yaml("5", "--set"))
    document.put("c.d.e", parse_yaml("{f: 1}", "--set", fixed_place="--set c.d.e={f: 1}"))
    assert document.data == {"a": [{"b": 5}], "c": {"d": {"e": {"f": 1}}}}
    assert document.place(("c", "d", "e", "f")) == "--set c.d.e={f: 1}"
    with pytest.raises(InputError, match=r"a\.x cannot be set: a is a list"):
        document.put("a.x", parse_yaml("5", "--set"))
