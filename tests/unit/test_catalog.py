"""The catalogue: every number has a source, names forgive, unknown names get advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.catalog import find_gpu, find_model, gpu_names, model_names
from simulator.errors import InputError

PROMISED_GPUS = {
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h100-pcie-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "l4",
    "l40s",
    "a10g",
    "rtx-4090",
    "rtx-pro-6000",
    "mi300x",
}
PROMISED_MODELS = {
    "llama-3-8b",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "qwen3-32b",
    "mixtral-8x7b",
    "deepseek-v3",
    "opt-13b",
}


def test_promised_names_are_there() -> None:
    assert set(gpu_names()) >= PROMISED_GPUS
    assert set(model_names()) >= PROMISED_MODELS
    assert len(gpu_names()) >= 15
    assert len(model_names()) >= 20


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_is_whole_and_sourced(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu.name == name
    assert gpu.visible_bytes is not None
    assert 0.97 * gpu.memory_bytes < gpu.visible_bytes <= gpu.memory_bytes
    assert 1e11 < gpu.bandwidth_bytes_per_s < 1e13
    assert gpu.flop_per_s
    assert all(1e12 < peak < 1e16 for peak in gpu.flop_per_s.values())
    assert all(len(source) > 10 for source in gpu.sources.values())
    assert gpu.usd_per_hour is None or 0.1 < gpu.usd_per_hour < 50


@pytest.mark.parametrize("name", model_names())
def test_every_model_builds(name: str) -> None:
    model = find_model(name)
    assert model.name == name
    assert "arXiv" in model.source or "model card" in model.source
    assert model.kv_bytes_per_token() > 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("H100 SXM 80GB", "h100-sxm-80gb"),
        ("NVIDIA H100_SXM_80GB", "h100-sxm-80gb"),
        ("rtx4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("b200", "b200-sxm-180gb"),
    ],
)
def test_gpu_names_forgive(asked: str, found: str) -> None:
    assert find_gpu(asked).name == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("facebook/opt-13b", "opt-13b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
    ],
)
def test_model_names_forgive(asked: str, found: str) -> None:
    assert find_model(asked).name == found


@pytest.mark.parametrize("asked", ["h100", "a100-80gb", "h10", "", "  "])
def test_an_ambiguous_or_unknown_gpu_gets_advice(asked: str) -> None:
    with pytest.raises(InputError) as caught:
        find_gpu(asked)
    assert caught.value.remedy


@pytest.mark.parametrize("asked", ["llama-3.1-9b", "Qwen/Qwen3-32B-AWQ", "mistralai/Mistral-7B-Instruct-v0.1", ""])
def test_a_model_of_another_shape_or_size_is_not_guessed(asked: str) -> None:
    with pytest.raises(InputError) as caught:
        find_model(asked)
    assert caught.value.remedy


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "torch_dtype": "bfloat16",
}


def test_config_file_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert find_model(str(folder)).name == "tiny"
    assert find_model(folder / "config.json").kv_bytes_per_token() == 2 * 2 * 64 * 2


def test_a_quantisation_file_beside_the_config_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    document = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(document))
    model = find_model(tmp_path)
    assert model.linear_weight_bytes_per_parameter == pytest.approx(4.5 / 8)
    assert model.kv_cache_dtype == "fp8"


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"model_type": "llama"}'])
def test_broken_config_files_are_input_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        find_model(path)
    assert "config.json" in str(caught.value)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        find_model(tmp_path / "nothing.json")
