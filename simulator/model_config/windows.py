"""Which layers look through a window: the spellings of sliding and chunked attention."""

from __future__ import annotations

from typing import Literal

from simulator.errors import InputError
from simulator.model_config.fields import Fields

WindowRule = Literal["never", "all", "from_max_window_layers", "alternate", "pattern"]
LayerType = Literal["full", "sliding", "chunked", "linear"]

_LAYER_TYPES: dict[str, LayerType] = {
    "full_attention": "full",
    "attention": "full",
    "full": "full",
    "global": "full",
    "deepseek_sparse_attention": "full",  # MLA with an indexer: every token stays cached
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "sliding": "sliding",
    "local": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "lightning_attention": "linear",
}


def layer_windows(
    fields: Fields, num_layers: int, max_model_len: int, rule: WindowRule
) -> list[tuple[LayerType, int | None]]:
    """(type, window in tokens or None) of every layer.

    ``layer_types`` decides where it is present, else the model type's own ``rule``. ``use_sliding_window: false``
    means no window, and a window that reaches the whole context has no effect.
    """
    window = _window(fields)
    types = _types(fields, num_layers, rule, window is not None)
    rows: list[tuple[LayerType, int | None]] = []
    for kind in types:
        if kind not in ("sliding", "chunked"):
            rows.append((kind, None))
            continue
        size = fields.integer("attention_chunk_size") if kind == "chunked" else window
        if size is None and not fields.flag("use_sliding_window", default=True):
            rows.append(("full", None))
            continue
        if size is None:
            raise fields.missing("sliding_window")
        rows.append((kind, size) if size < max_model_len else ("full", None))
    return rows


def _window(fields: Fields) -> int | None:
    if not fields.flag("use_sliding_window", default=True):
        return None
    if fields.raw("sliding_window", "sliding_window_size") is None:
        return None
    return fields.integer("sliding_window", "sliding_window_size", least=1)


def _types(fields: Fields, num_layers: int, rule: WindowRule, has_window: bool) -> list[LayerType]:
    listed = fields.items("layer_types", length=num_layers)
    if listed is not None:
        return [_layer_type(fields, item) for item in listed]
    if not has_window or rule == "never":
        return ["full"] * num_layers
    if rule == "all":
        return ["sliding"] * num_layers
    if rule == "from_max_window_layers":
        first = fields.integer("max_window_layers", least=0)
        return ["sliding" if i >= first else "full" for i in range(num_layers)]
    period = 2 if rule == "alternate" else _period(fields)
    return ["sliding" if (i + 1) % period else "full" for i in range(num_layers)]


def _period(fields: Fields) -> int:
    """Every n-th layer is full: a number, or letters such as "LLLG" (local, local, local, global)."""
    pattern = fields.raw("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern[:-1]) - {"L"} or pattern[-1] != "G":
            raise InputError(
                f"sliding_window_pattern {pattern!r} is not understood",
                where=fields.where,
                remedy='give a number, letters like "LLLG", or layer_types',
            )
        return len(pattern)
    return fields.integer("sliding_window_pattern", "_sliding_window_pattern")


def _layer_type(fields: Fields, item: object) -> LayerType:
    kind = _LAYER_TYPES.get(item) if isinstance(item, str) else None
    if kind is None:
        raise InputError(
            f"layer_types has {item!r}, which is not understood",
            where=fields.where,
            remedy=f"known types: {', '.join(_LAYER_TYPES)}",
        )
    return kind
