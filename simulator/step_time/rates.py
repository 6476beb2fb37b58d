"""What a GPU achieves: peaks of its data sheet times the shares of a calibration, and the time of an all-reduce."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.calibration import Calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec
from simulator.step_time.rank_work import RankWork

Shares = tuple[tuple[str, float], ...]

_DTYPE_OF_COMPUTE = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
}
_NARROW = ("fp8", "int8", "fp4", "int4")
_NARROW_BYTES = 1.9  # a mean below this: most weights have fewer than 16 bits


@dataclass(frozen=True)
class LinearRates:
    """Of linear layers that are run alike.

    Attributes:
        flop_per_s: harmonic mean over ``computes``: parts of a step follow one another.
        computes: (compute dtype, share of the parameters), the largest first.
    """

    bytes_per_s: float
    flop_per_s: float
    computes: tuple[tuple[str, float], ...]

    @property
    def compute_dtype(self) -> str:
        """That of most parameters."""
        return self.computes[0][0]


@dataclass(frozen=True)
class Rates:
    """All rates that a roofline divides by.

    Attributes:
        activations_bytes_per_s: of everything else in memory: activations, recurrent state.
        widened: narrow types that the weights are made for and the GPU lacks: they compute in 16 bit.
    """

    dense: LinearRates
    experts: LinearRates
    head: LinearRates
    activations_bytes_per_s: float
    kv_bytes_per_s: float
    attention_flop_per_s: float
    widened: tuple[str, ...]


def rates(
    gpu: GpuSpec,
    model: ModelSpec,
    work: RankWork,
    calibration: Calibration,
    kv_dtype_bytes: float,
    compute_dtype: str | None = None,
) -> Rates:
    """Rates of one GPU for one model.

    Args:
        work: one rank's weights: their bytes, and the type they are made to compute in.
        compute_dtype: of the linear layers and experts; None = by the weights (see ``_compute_dtype``).

    Raises:
        InputError: the GPU's entry has no peak for the compute type.
    """
    sixteen = _sixteen_bit(gpu, model)

    def linear(size: float, parameters: float, made_for: Shares, forced: str | None = None) -> LinearRates:
        narrow = size < _NARROW_BYTES * parameters
        memory = calibration.memory_efficiency_8bit if narrow else calibration.memory_efficiency
        shares: dict[str, float] = {}
        for made, share in made_for or (("", 1.0),):
            dtype = forced or _compute_dtype(gpu, sixteen, made)
            shares[dtype] = shares.get(dtype, 0.0) + share
        seconds = 0.0
        for dtype, share in shares.items():
            reached = calibration.compute_efficiency_8bit if dtype in _NARROW else calibration.compute_efficiency
            seconds += share / (_peak(gpu, dtype) * reached)
        computes = tuple(sorted(shares.items(), key=lambda item: -item[1]))
        return LinearRates(gpu.bandwidth_bytes_per_s * memory, 1.0 / seconds, computes)

    head_computes = ((work.head_compute, 1.0),)
    wanted = {made for made, _ in (*work.dense_computes, *work.expert_computes, *head_computes)} & set(_NARROW)
    kv = calibration.kv_read_efficiency if kv_dtype_bytes > 1.0 else calibration.kv_read_efficiency_8bit
    return Rates(
        dense=linear(work.dense_bytes, work.dense_parameters, work.dense_computes, compute_dtype),
        experts=linear(work.expert_bytes, work.expert_parameters, work.expert_computes, compute_dtype),
        head=linear(work.head_bytes, work.head_parameters, head_computes),
        activations_bytes_per_s=gpu.bandwidth_bytes_per_s * calibration.memory_efficiency,
        kv_bytes_per_s=gpu.bandwidth_bytes_per_s * kv,
        attention_flop_per_s=_peak(gpu, sixteen) * calibration.attention_compute_efficiency,
        widened=() if compute_dtype else tuple(sorted(wanted - set(gpu.flop_per_s))),
    )


def _compute_dtype(gpu: GpuSpec, sixteen: str, made_for: str) -> str:
    """What weights made for one type compute in; those of fewer than 16 bits are widened where the GPU lacks it."""
    if made_for in gpu.flop_per_s or (made_for and made_for not in _NARROW):
        return made_for  # fp32 has nothing to fall back on: _peak says what is missing
    return sixteen


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
