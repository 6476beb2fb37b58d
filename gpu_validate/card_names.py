"""Which card of the catalogue a driver speaks of: shares are of its data sheet."""

from __future__ import annotations

from gpu_validate.cuda_device import CudaDevice
from simulator.catalog import find_gpu
from simulator.errors import InputError

DRIVER_NAMES = {
    "H100 80GB HBM3": "h100-sxm-80gb",
    "H100 PCIe": "h100-pcie-80gb",
    "H200": "h200-sxm-141gb",
    "B200": "b200-sxm-180gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100 80GB PCIe": "a100-pcie-80gb",
    "RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
}
"""What drivers call cards whose name alone does not lead to one of the catalogue."""


def catalogue_name(driver_name: str) -> str:
    """The catalogue's name of a card, or what the driver says less its maker: "NVIDIA L40S" is L40S."""
    plain = driver_name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return DRIVER_NAMES.get(plain, plain)


def card_of(device: CudaDevice, name: str | None) -> str:
    """The name given, or the catalogue's for this card. Raises InputError where the catalogue does not know it."""
    found = name or catalogue_name(device.facts.name)
    try:
        return find_gpu(found).name
    except InputError:
        if name:
            raise
        raise InputError(
            f"the catalogue does not know a card that calls itself {device.facts.name!r}",
            where="--gpu",
            remedy="name the closest of `kvplan catalog gpus` with --gpu: shares are of its data sheet",
        ) from None
