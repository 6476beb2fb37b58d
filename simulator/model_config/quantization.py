"""How many bytes each linear layer of a quantised checkpoint takes, scales included."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.errors import InputError
from simulator.model_config.blueprint import Linear
from simulator.model_config.fields import Fields
from simulator.specs import DTYPE_BITS


@dataclass(frozen=True)
class Quantization:
    """Bytes of a linear layer's matrix by its checkpoint name."""

    dtype_bytes: float
    kv_cache_dtype: str | None = None
    notes: tuple[str, ...] = field(default=())

    def linear_bytes(self, name: str, linear: Linear) -> float:
        """Bytes of one copy's matrix."""
        return linear.matrix * self.dtype_bytes

    def head_bytes(self, head: Linear) -> float:
        return head.matrix * self.dtype_bytes


def read_dtype(fields: Fields) -> tuple[str, float, tuple[str, ...]]:
    """(dtype, bytes a parameter as an engine holds it, notes)."""
    named = fields.raw("torch_dtype", "dtype")
    if named is None:
        return "bfloat16", 2.0, ("torch_dtype is not stated: 16 bit assumed",)
    name = str(named).removeprefix("torch.")
    if name not in DTYPE_BITS:
        raise InputError(
            f"torch_dtype {named!r} is not understood",
            where=fields.where,
            remedy=f"known: {', '.join(DTYPE_BITS)}",
        )
    if DTYPE_BITS[name] == 32:
        return "float32", 2.0, ("the checkpoint is float32; engines hold it in 16 bit (dtype auto)",)
    return name, DTYPE_BITS[name] / 8, ()


def read_quantization(fields: Fields, dtype_bytes: float) -> Quantization:
    return Quantization(dtype_bytes)
