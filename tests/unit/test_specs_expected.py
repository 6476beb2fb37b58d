"""KV bytes and parameters of the shared configs against numbers worked out by others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.specs import ModelSpec, model_from_config
from tests.support import DATA, needs_shared

pytestmark = needs_shared
CONFIGS = DATA / "model_configs"


def expected_rows() -> list[dict[str, str]]:
    path = DATA / "kv_expected.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def load(path: Path) -> ModelSpec:
    return model_from_config(json.loads(path.read_text(encoding="utf-8")), name=path.stem, source=path.name)


ROWS = expected_rows()


@pytest.mark.parametrize("row", ROWS, ids=[row["model"] for row in ROWS])
def test_kv_bytes_are_exact(row: dict[str, str]) -> None:
    model = load(CONFIGS / row["config"])
    assert model.kv_bytes_per_token_full_layers() == int(row["kv_bytes_per_token_full_attention_layers"])
    assert model.kv_bytes_per_token() == int(row["kv_bytes_per_token_all_attention_layers"])


@pytest.mark.parametrize("row", [r for r in ROWS if r["params"]], ids=[r["model"] for r in ROWS if r["params"]])
def test_parameters_match(row: dict[str, str]) -> None:
    """Exact where a count was published; a count by formula alone may have left out biases (1e-4)."""
    model = load(CONFIGS / row["config"])
    want = int(row["params"])
    if "published" in row["params_basis"]:
        assert model.parameters == want
    else:
        assert model.parameters == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("row", [r for r in ROWS if "cap " in r["sliding_or_hybrid_note"]], ids=lambda r: r["model"])
def test_windows_cap_a_sequence_at_the_noted_bytes(row: dict[str, str]) -> None:
    model = load(CONFIGS / row["config"])
    note = row["sliding_or_hybrid_note"]
    assert model.sliding_cap_bytes() == int(note.split("cap ")[1].split()[0])


def all_configs() -> list[Path]:
    return sorted(CONFIGS.glob("*/*.json")) if CONFIGS.is_dir() else []


@pytest.mark.parametrize("path", all_configs(), ids=[p.stem for p in all_configs()])
def test_every_config_is_understood_or_refused_by_name(path: Path) -> None:
    """A spec that is whole, or an error that names the file and what is missing."""
    try:
        model = load(path)
    except InputError as error:
        assert path.name in str(error)
        assert error.remedy
        return
    assert len(model.layers) == model.num_layers == sum(group.count for group in model.attention)
    assert 0 < model.active_parameters <= model.parameters
    weights = sum(group.parameters for layer in model.layers for group in layer.weights)
    assert weights < model.parameters
    assert 0.4 < model.weight_bytes / model.parameters <= 2.0
    experts = model.num_moe_layers * model.num_experts * model.parameters_per_expert
    assert model.dense_linear_parameters + experts <= weights
    assert bool(model.num_experts) == bool(experts)


def test_deepseek_v4_says_what_is_not_modelled() -> None:
    path = CONFIGS / "configs" / "nvidia__DeepSeek-V4-Flash-NVFP4.json"
    with pytest.raises(InputError, match="compress_ratios"):
        load(path)


@pytest.mark.parametrize(
    ("config", "gib", "tolerance"),
    [
        ("configs_constructed/Qwen__Qwen2.5-72B-Instruct-AWQ", 38.8, 0.3),  # files on the hub: 41.6 GB
        ("configs_constructed/Qwen__Qwen2.5-7B-Instruct-GPTQ-Int4", 5.2, 0.1),
        ("configs/openai__gpt-oss-20b", 12.8, 0.2),  # 13.76 GB of files
        ("configs/openai__gpt-oss-120b", 60.8, 0.6),  # 65.25 GB of files
    ],
)
def test_quantised_checkpoints_weigh_what_their_files_weigh(config: str, gib: float, tolerance: float) -> None:
    assert load(CONFIGS / f"{config}.json").weight_bytes / 2**30 == pytest.approx(gib, abs=tolerance)
