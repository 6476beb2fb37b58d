"""How many bytes each linear layer of a quantised checkpoint takes, scales included.

Understood: AWQ, GPTQ, fp8 (per tensor, channel or block), mxfp4, bitsandbytes, compressed-tensors and ModelOpt
(NVFP4, FP8, mixed). What a config leaves unquantised (``ignore``, ``modules_to_not_convert``) keeps 16 bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import Any

from simulator.errors import InputError
from simulator.model_config.blueprint import Linear
from simulator.model_config.fields import Fields
from simulator.specs import DTYPE_BITS


@dataclass(frozen=True)
class Format:
    """One way to store a matrix: ``bits`` a value, and ``scale_bits`` for each group of ``group`` inputs.

    ``block`` is fp8's square block (rows, columns) with one scale; 0 groups means one scale an output channel.
    ``compute`` is the type of its matrix products where activations are quantised too; "" = widened to 16 bit.
    """

    bits: float
    group: int = 0
    scale_bits: float = 32
    block: tuple[int, int] | None = None
    compute: str = ""

    def matrix_bytes(self, linear: Linear) -> float:
        values = linear.inputs * linear.outputs
        if self.block:
            scales = -(-linear.outputs // self.block[0]) * -(-linear.inputs // self.block[1])
        elif self.group > 0:
            scales = linear.outputs * -(-linear.inputs // self.group)
        else:
            scales = linear.outputs
        return (values * self.bits + scales * self.scale_bits) / 8


NVFP4 = Format(4, 16, 8, compute="fp4")  # one fp8 scale per 16 values
MXFP4 = Format(4, 32, 8)  # one power-of-two scale per 32 values
FP8_CHANNEL = Format(8, compute="fp8")
INT8_CHANNEL = Format(8, compute="int8")

# What `--weight-dtype` and engines' own online quantisation may ask for.
WEIGHT_FORMATS: dict[str, Format] = {
    "fp8": FP8_CHANNEL,
    "fp8_e4m3": FP8_CHANNEL,
    "int8": INT8_CHANNEL,
    "int4": Format(4, 128, 16 + 4),  # AWQ and GPTQ: a 16-bit scale and a 4-bit zero per 128 values
    "nvfp4": NVFP4,
    "mxfp4": MXFP4,
    "fp4": NVFP4,
}

Chooser = Callable[[str], Format | None]


@dataclass(frozen=True)
class Quantization:
    """Bytes of a linear layer's matrix by its checkpoint name; ``choose`` gives None for what keeps 16 bit."""

    dtype_bytes: float
    choose: Chooser | None = None
    head_format: Format | None = None
    kv_cache_dtype: str | None = None
    notes: tuple[str, ...] = ()

    def linear_bytes(self, name: str, linear: Linear) -> float:
        """Bytes of one copy's matrix."""
        return self.stored(name, linear)[0]

    def stored(self, name: str, linear: Linear) -> tuple[float, str]:
        """(bytes of one copy's matrix, type of its products: see ``Format.compute``)."""
        chosen = self.choose(canonical(name)) if self.choose and linear.quantizable else None
        return (chosen.matrix_bytes(linear), chosen.compute) if chosen else (linear.matrix * self.dtype_bytes, "")

    def head_bytes(self, head: Linear) -> float:
        return self.head_format.matrix_bytes(head) if self.head_format else head.matrix * self.dtype_bytes


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
    """The quantisation of a config, or none."""
    config = fields.raw("quantization_config", "compression_config")
    if config is None:
        return Quantization(dtype_bytes)
    if not isinstance(config, Mapping):
        raise InputError(f"quantization_config must be an object, got {config!r}", where=fields.where)
    section = Fields(config, f"{fields.where}: quantization_config")
    ignored = _patterns(
        section.raw("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", default=[])
    )
    listed = section.raw("quantized_layers")
    head: Format | None = None
    if isinstance(listed, Mapping) and listed:
        base = _base_format(section) if section.text("quant_method", default="") == "fp8" else None
        table = {canonical(name): _modelopt_format(section, entry) for name, entry in listed.items()}
        head = table.get("lm_head")
        choose = _by_table(table, base, ignored)
    else:
        whole = _base_format(section)
        choose = _except(whole, ignored)
    return Quantization(dtype_bytes, choose, head, _kv_dtype(section))


def _base_format(section: Fields) -> Format:
    method = section.text("quant_method", "quant_algo").lower()
    if method in ("awq", "gptq", "auto-round", "auto_round", "awq_marlin", "gptq_marlin"):
        bits = section.integer("bits", "w_bit")
        group = section.integer("group_size", "q_group_size", least=-1)
        return Format(bits, max(group, 0), 16 + bits)
    if method in ("fp8", "fbgemm_fp8"):
        size = section.items("weight_block_size", length=2)
        return Format(8, block=(int(size[0]), int(size[1])), compute="fp8") if size else FP8_CHANNEL
    if method == "mxfp4":
        return MXFP4
    if method == "bitsandbytes":
        if section.flag("load_in_4bit", default=False):
            double = section.flag("bnb_4bit_use_double_quant", default=False)
            return Format(4, 64, 8.125 if double else 32)
        return INT8_CHANNEL
    if method in ("compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mixed"):
        return _from_groups(section)
    raise InputError(
        f"quant_method {method!r} is not understood, so the weights are not guessed",
        where=section.where,
        remedy="known: awq, gptq, fp8, mxfp4, bitsandbytes, compressed-tensors, modelopt",
    )


def _from_groups(section: Fields) -> Format:
    """compressed-tensors and ModelOpt: config_groups of weights with num_bits and a strategy."""
    algorithm = section.raw("quant_algo")
    groups = section.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        if isinstance(algorithm, str):
            return _algorithm(section, algorithm, 0)
        raise section.missing("config_groups")
    found = [
        replace(_weights_format(section, group["weights"]), compute=_activations_compute(group))
        for group in groups.values()
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    formats = {replace(stored, compute="") for stored in found}
    if len(formats) != 1:
        raise InputError(
            f"config_groups has {len(formats)} kinds of weights; one is understood without quantized_layers",
            where=section.where,
            remedy="give the checkpoint's quantized_layers",
        )
    computes = {stored.compute for stored in found}
    return replace(found[0], compute=computes.pop() if len(computes) == 1 else "")


def _activations_compute(group: Mapping[str, Any]) -> str:
    """The type of a group's matrix products: that of its activations, where they are quantised."""
    activations = group.get("input_activations")
    if not isinstance(activations, Mapping) or activations.get("num_bits") not in (4, 8):
        return ""
    kind = "fp" if activations.get("type") == "float" else "int"
    return f"{kind}{activations['num_bits']}"


def _weights_format(section: Fields, entry: Mapping[str, Any]) -> Format:
    weights = Fields(entry, f"{section.where}: weights")
    bits = weights.integer("num_bits")
    group = weights.integer("group_size", default=0, least=-1)
    is_float = weights.text("type", default="int") == "float"
    if bits == 4 and is_float:
        return MXFP4 if group == MXFP4.group else NVFP4
    block = weights.items("block_structure")
    if block:
        return Format(bits, block=(int(block[0]), int(block[1])))
    zero = 0 if weights.flag("symmetric", default=True) else bits
    return Format(bits, max(group, 0), 16 + zero) if group > 0 else Format(bits)


def _modelopt_format(section: Fields, entry: Any) -> Format:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("quant_algo"), str):
        raise InputError(f"quantized_layers has an entry without quant_algo: {entry!r}", where=section.where)
    return _algorithm(section, entry["quant_algo"], entry.get("group_size") or 0)


def _algorithm(section: Fields, algorithm: str, group: int) -> Format:
    name = algorithm.upper()
    stored = _algorithm_format(name, group)
    if stored is not None:
        weights_alone = "A16" in name or name.endswith("_WO")
        return replace(stored, compute="") if weights_alone else stored
    raise InputError(f"quant_algo {algorithm!r} is not understood", where=section.where)


def _algorithm_format(name: str, group: int) -> Format | None:
    if name.endswith("NVFP4"):
        return NVFP4
    if name.startswith("FP8"):
        return FP8_CHANNEL
    if name.endswith("MXFP4") or name.startswith("MXFP4"):
        return MXFP4
    if name.startswith(("W4A16", "W4A8", "INT4")):
        return Format(4, group or 128, 16, compute="fp8" if name.startswith("W4A8") else "")
    if name.startswith(("INT8", "W8A8")):
        return INT8_CHANNEL
    return None


def _kv_dtype(section: Fields) -> str | None:
    """What the checkpoint asks of the KV cache ("fp8"), or None."""
    scheme = section.raw("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    algorithm = section.raw("kv_cache_quant_algo")
    return "fp8" if isinstance(algorithm, str) and algorithm.upper() == "FP8" else None


def canonical(name: str) -> str:
    """A module's name without what wraps the decoder: "layers.3.self_attn.q_proj", "lm_head"."""
    match = re.search(r"(?:^|\.)((?:layers|h|blocks)\.(?:\d+|\*).*)$", name)
    if match:
        return re.sub(r"^(?:h|blocks)\.", "layers.", match.group(1))
    return name.rsplit(".", 1)[-1] if name.endswith("lm_head") else name


def _patterns(items: Any) -> Callable[[str], bool]:
    """True for a name that an ignore list covers: a module, its children, a wildcard or a regex ("re:...")."""
    exact: set[str] = set()
    parts: set[str] = set()
    regexes: list[str] = []
    for item in items or []:
        if not isinstance(item, str):
            continue
        if item.startswith("re:"):
            regexes.append(item[3:])
        elif any(sign in item for sign in "*?["):
            regexes.append(translate(canonical(item)))
            regexes.append(translate(canonical(item) + ".*"))
        elif "." in item:
            exact.add(canonical(item))
        else:
            parts.add(item)
    wild = re.compile("|".join(f"(?:{text})" for text in dict.fromkeys(regexes))) if regexes else None

    def covers(name: str) -> bool:
        words = name.split(".")
        if parts.intersection(words):
            return True
        if any(".".join(words[:n]) in exact for n in range(1, len(words) + 1)):
            return True
        return wild is not None and wild.match(name) is not None

    return covers


def _except(whole: Format, ignored: Callable[[str], bool]) -> Chooser:
    return lambda name: None if ignored(name) else whole


def _by_table(table: Mapping[str, Format], base: Format | None, ignored: Callable[[str], bool]) -> Chooser:
    """quantized_layers names modules; what it does not name is ``base`` where the method quantises the rest."""

    def choose(name: str) -> Format | None:
        words = name.split(".")
        for n in range(len(words), 0, -1):
            chosen = table.get(".".join(words[:n]))
            if chosen is not None:
                return chosen
        return None if ignored(name) else base

    return choose
