"""Vision and audio encoders beside the language model: their weights, estimated from the usual shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SECTIONS = ("vision_config", "audio_config", "speech_config")


def encoder_parameters(config: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """(parameters of all encoders, notes): layers · (4 · hidden² + 2 · hidden · intermediate), projectors left out."""
    total = 0
    notes = []
    for name in _SECTIONS:
        section = config.get(name)
        if not isinstance(section, Mapping):
            continue
        found = _transformer(section)
        total += found
        what = f"about {found / 1e9:.2f} B parameters, estimated" if found else "of unknown size, not counted"
        notes.append(f"{name}: an encoder {what}; parameters are those of the language model alone")
    return total, tuple(notes)


def _transformer(section: Mapping[str, Any]) -> int:
    # Qwen's vision configs give the encoder's width as embed_dim and the language model's as hidden_size.
    hidden = _number(section, "embed_dim", "width", "hidden_size", "d_model")
    layers = _number(section, "depth", "num_hidden_layers", "layers", "encoder_layers", "num_layers")
    layers += _number(section, "num_global_layers")
    ratio = section.get("mlp_ratio")
    width = _number(section, "intermediate_size", "encoder_ffn_dim")
    if not width and hidden:
        width = int(hidden * (ratio if isinstance(ratio, (int, float)) else 4))
    return layers * (4 * hidden * hidden + 2 * hidden * width)


def _number(section: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = section.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
