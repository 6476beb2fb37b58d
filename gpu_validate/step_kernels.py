"""Launches of the small kernels between the matrix products of a decoder layer; arrays hold bits, as in `launches`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_validate.launches import Array, Launch

_THREADS = 256
_EPSILON = 1e-5


def norm_launch(output: Array, residual: Array, x: Array, weight: Array) -> Launch:
    """residual += x, output = its norm times ``weight``; all [rows, width]."""
    rows, width = x.shape
    arguments = (output, residual, x, weight, np.int32(width), np.float32(_EPSILON))
    return Launch("rms_norm", (rows, 1, 1), _THREADS, _THREADS // 32 * 4, arguments, (0, 1))


def rope_launch(queries: Array, keys: Array, values: Array, qkv: Array, positions: Array, turns: Array) -> Launch:
    """Queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim] out of ``qkv``, positions in them."""
    rows, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    threads = -(-(head_dim // 2) // 32) * 32
    arguments = (queries, keys, values, qkv, positions, turns, np.int32(heads), np.int32(kv_heads))
    return Launch("rope", (rows, heads + 2 * kv_heads, 1), threads, 0, arguments, (0, 1, 2))


def activation_launch(output: Array, up: Array, *, gated: bool) -> Launch:
    """silu(gate) times the rest, or max(x, 0); output [rows, width]."""
    rows, width = output.shape
    pieces = -(-width // (_THREADS * 8))
    return Launch("activation", (rows, pieces, 1), _THREADS, 0, (output, up, np.int32(width), np.int32(gated)), (0,))


def turns(positions: int, head_dim: int, base: float = 500_000.0) -> NDArray[np.float32]:
    """Cosine and sine [positions, head_dim / 2, 2] of the rotary embedding."""
    angles = np.arange(positions)[:, None] * base ** -(np.arange(0, head_dim, 2) / head_dim)
    return np.stack((np.cos(angles), np.sin(angles)), axis=-1).astype(np.float32)
