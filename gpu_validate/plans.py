"""What is timed: the full plan for a card, and a small one that runs through everything in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_validate.variants import Variant
from simulator.errors import InputError


@dataclass(frozen=True)
class AttentionShape:
    """One decode-attention point: ``batch`` sequences of ``context`` tokens each."""

    variant: Variant
    batch: int
    context: int
    kv_heads: int = 8

    @property
    def kv_bytes(self) -> int:
        """Keys and values of all sequences."""
        row = self.kv_heads * self.variant.head_dim * self.variant.kv_format.size_bytes
        return 2 * self.batch * self.context * row


@dataclass(frozen=True)
class StepShape:
    """One whole decode step of the plan's model, cut to its first ``layers``."""

    batch: int
    context: int
    layers: int
    held_out: bool = False


@dataclass(frozen=True)
class Plan:
    """Sizes of everything.

    Attributes:
        rows: of the model's matrix products; those of ``held_out_rows`` are timed and not fitted.
        attention, held_out_attention: fitted, and kept apart.
        layers: of whole steps, rising; the deepest is used with every batch and context.
        memory_share: of the card that steps may fill; what does not fit is left out with a note.
    """

    name: str
    copy_bytes: int
    square: int
    swap_bytes: int
    swap_pieces: tuple[int, ...]
    rows: tuple[int, ...]
    held_out_rows: tuple[int, ...]
    attention: tuple[AttentionShape, ...]
    held_out_attention: tuple[AttentionShape, ...]
    steps: tuple[StepShape, ...]
    step_variant: Variant
    append_batches: tuple[int, ...]
    copied_blocks: tuple[int, ...]
    repeats: int = 15
    few_repeats: int = 5
    memory_share: float = 0.8


def plan(name: str, *, layers: int) -> Plan:
    """``full`` or ``small``. Raises InputError for another name.

    Args:
        layers: of the model whose steps are timed.
    """
    if name == "full":
        return _full(layers)
    if name == "small":
        return _small(min(layers, 2))
    raise InputError(f"there is no plan {name!r}", where="--plan", remedy="full or small")


def _full(layers: int) -> Plan:
    base = Variant()
    shapes = [AttentionShape(base, b, c) for b in (1, 4, 16, 64, 256) for c in (512, 2048, 8192, 32768)]
    shapes += [AttentionShape(base, 1, 131072), AttentionShape(base, 8, 131072)]
    for block_size in (1, 8, 16, 32, 64, 128, 256):
        paged = Variant(128, block_size)
        shapes += [AttentionShape(one, 64, c) for c in (2048, 4096) for one in (paged, paged.contiguous())]
    shapes += [AttentionShape(Variant(128, 16, 32 // kv), 64, 4096, kv) for kv in (1, 2, 4, 16, 32)]
    shapes += [AttentionShape(Variant(d, 16, g), 64, 4096) for d, g in ((64, 8), (80, 1), (96, 1), (192, 4), (256, 2))]
    shapes += [AttentionShape(Variant(128, 16, 4, "float16", "float16"), 64, 4096)]
    fp8 = Variant(128, 16, 4, "bfloat16", "fp8_e4m3")
    shapes += [AttentionShape(fp8, b, c) for b in (16, 64, 256) for c in (2048, 8192)]
    held = [AttentionShape(base, b, c) for b, c in ((2, 65536), (32, 3000), (96, 5000), (192, 1500))]
    held += [AttentionShape(fp8, 48, 6000), AttentionShape(Variant(128, 32, 8), 80, 3500, 4)]
    steps = [StepShape(b, c, layers) for b in (1, 8, 32, 128) for c in (512, 2048)]
    steps += [StepShape(b, 1024, depth) for b in (1, 64) for depth in (layers // 4, layers // 2)]
    steps += [StepShape(256, 512, layers), StepShape(1, 16384, layers), StepShape(16, 8192, layers)]
    steps += [
        StepShape(b, c, layers, held_out=True) for b, c in ((4, 4096), (16, 1500), (48, 3000), (96, 1024), (192, 700))
    ]
    return Plan(
        "full",
        copy_bytes=4 << 30,
        square=8192,
        swap_bytes=256 << 20,
        swap_pieces=(64 << 10, 1 << 20),
        rows=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        held_out_rows=(3, 24, 96, 1536, 6144),
        attention=_fitting(shapes),
        held_out_attention=_fitting(held),
        steps=tuple(steps),
        step_variant=base,
        append_batches=(1, 64, 256, 1024),
        copied_blocks=(1, 64, 1024),
    )


def _small(layers: int) -> Plan:
    base = Variant()
    fp8 = Variant(128, 16, 4, "bfloat16", "fp8_e4m3")
    sizes = ((1, 64), (2, 128), (4, 64), (4, 256))
    shapes = [AttentionShape(one, b, c) for one in (base, base.contiguous(), fp8) for b, c in sizes]
    steps = [StepShape(b, c, depth) for b in (1, 4) for c in (32, 128) for depth in (1, layers)]
    return Plan(
        "small",
        copy_bytes=1 << 20,
        square=128,
        swap_bytes=1 << 18,
        swap_pieces=(1 << 16,),
        rows=(1, 2, 8, 64, 4096, 8192),
        held_out_rows=(4,),
        attention=tuple(shapes),
        held_out_attention=(AttentionShape(base, 3, 100),),
        steps=(*steps, StepShape(2, 64, layers, held_out=True)),
        step_variant=base,
        append_batches=(1, 8),
        copied_blocks=(1, 4),
        repeats=3,
        few_repeats=2,
    )


def _fitting(shapes: list[AttentionShape], most_bytes: int = 40 << 30) -> tuple[AttentionShape, ...]:
    """Each once; those whose keys and values would fill a card are left out."""
    return tuple(shape for shape in dict.fromkeys(shapes) if shape.kv_bytes <= most_bytes)
