"""What a GPU achieves: peaks of its data sheet times the shares of a calibration, and the time of an all-reduce."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.calibration import Calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec

_DTYPE_OF_COMPUTE = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
}
_EIGHT_BIT = ("fp8", "int8")


@dataclass(frozen=True)
class LinearRates:
    """Of linear layers whose weights share one format."""

    bytes_per_s: float
    flop_per_s: float
    compute_dtype: str


@dataclass(frozen=True)
class Rates:
    """All rates that a roofline divides by.

    Attributes:
        activations_bytes_per_s: of everything else in memory: activations, recurrent state.
    """

    dense: LinearRates
    experts: LinearRates
    head: LinearRates
    activations_bytes_per_s: float
    kv_bytes_per_s: float
    attention_flop_per_s: float


def rates(
    gpu: GpuSpec,
    model: ModelSpec,
    calibration: Calibration,
    kv_dtype_bytes: float,
    compute_dtype: str | None = None,
) -> Rates:
    """Rates of one GPU for one model.

    Args:
        compute_dtype: of the linear layers and experts; None = by the weights (see ``_compute_dtype``).

    Raises:
        InputError: the GPU's entry has no peak for the compute type.
    """
    sixteen = _sixteen_bit(gpu, model)

    def linear(bytes_per_parameter: float, dtype: str | None) -> LinearRates:
        chosen = dtype or _compute_dtype(gpu, sixteen, bytes_per_parameter)
        narrow, eight = bytes_per_parameter < 1.9, chosen in _EIGHT_BIT
        memory = calibration.memory_efficiency_8bit if narrow else calibration.memory_efficiency
        compute = calibration.compute_efficiency_8bit if eight else calibration.compute_efficiency
        peak = _peak(gpu, chosen)
        return LinearRates(gpu.bandwidth_bytes_per_s * memory, peak * compute, chosen)

    kv = calibration.kv_read_efficiency if kv_dtype_bytes > 1.0 else calibration.kv_read_efficiency_8bit
    return Rates(
        dense=linear(model.linear_weight_bytes_per_parameter, compute_dtype),
        experts=linear(model.expert_weight_bytes_per_parameter, compute_dtype),
        head=linear(2.0, sixteen),
        activations_bytes_per_s=gpu.bandwidth_bytes_per_s * calibration.memory_efficiency,
        kv_bytes_per_s=gpu.bandwidth_bytes_per_s * kv,
        attention_flop_per_s=_peak(gpu, sixteen) * calibration.attention_compute_efficiency,
    )


def _compute_dtype(gpu: GpuSpec, sixteen: str, bytes_per_parameter: float) -> str:
    """8-bit weights compute in fp8 where the GPU can; 4-bit ones are widened to 16 bit in the kernel (AWQ, GPTQ)."""
    return "fp8" if 0.9 < bytes_per_parameter < 1.9 and "fp8" in gpu.flop_per_s else sixteen


def _sixteen_bit(gpu: GpuSpec, model: ModelSpec) -> str:
    """The model's own 16-bit type, or the other one where the GPU lacks it (V100, T4: no bf16)."""
    wanted = _DTYPE_OF_COMPUTE.get(model.dtype, "bf16")
    if wanted in gpu.flop_per_s:
        return wanted
    for other in ("fp16", "bf16", "fp32"):
        if other in gpu.flop_per_s:
            return other
    return wanted  # _peak says what is missing


def _peak(gpu: GpuSpec, dtype: str) -> float:
    peak = gpu.flop_per_s.get(dtype)
    if not peak:
        raise InputError(
            f"{gpu.name} has no peak FLOP/s for {dtype}",
            where="step_time.compute_dtype",
            remedy=f"known for this GPU: {', '.join(sorted(gpu.flop_per_s)) or 'none'}",
        )
    return peak


@dataclass(frozen=True)
class Collective:
    """An all-reduce among the ranks: latency + ring traffic over the link. No time for one rank."""

    ranks: int
    latency_s: float
    bytes_per_s: float

    def all_reduce_s(self, message_bytes: float) -> float:
        """Each rank sends and receives 2·(n-1)/n of the message."""
        if self.ranks == 1:
            return 0.0
        return self.latency_s + 2.0 * (self.ranks - 1) / self.ranks * message_bytes / self.bytes_per_s

    def gather_s(self, total_bytes: float) -> float:
        """Parts of all ranks to one of them: (n-1)/n of the total arrive there."""
        if self.ranks == 1:
            return 0.0
        return self.latency_s + (self.ranks - 1) / self.ranks * total_bytes / self.bytes_per_s


def collective(gpu: GpuSpec, calibration: Calibration, ranks: int) -> Collective:
    """Over the GPU link, or through PCIe, where each further peer adds a hop."""
    if gpu.link_bytes_per_s:
        latency_s = calibration.all_reduce_latency_us * 1e-6
        return Collective(ranks, latency_s, gpu.link_bytes_per_s * calibration.link_efficiency)
    latency_s = calibration.pcie_hop_latency_us * 1e-6 * (ranks - 1)
    return Collective(ranks, latency_s, gpu.pcie_bytes_per_s * calibration.pcie_efficiency)
