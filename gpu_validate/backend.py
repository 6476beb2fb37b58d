"""The machine that runs kernels: a GPU, or a CPU through the shim. `check` speaks to this alone."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from gpu_validate.cases import Case
from gpu_validate.number_formats import Bits
from gpu_validate.variants import Variant
from simulator.errors import KvplanError


class KernelError(KvplanError):
    """A kernel could not be built, or failed while it ran."""


class Backend(Protocol):
    """Runs the kernels on arrays that live on the host; inputs are never changed, results are new arrays of bits."""

    name: str

    def facts(self) -> dict[str, Any]:
        """What a result must say about the machine: device, driver, compiler."""
        ...

    def prepare(self, variants: tuple[Variant, ...]) -> None:
        """Builds what these variants need, at once where the machine can."""
        ...

    def decode(self, case: Case, variant: Variant) -> Bits:
        """Attention output [batch, num_heads, head_dim] in the variant's dtype. Raises KernelError."""
        ...

    def append(
        self, case: Case, variant: Variant, new: tuple[Bits, Bits], positions: NDArray[Any]
    ) -> tuple[Bits, Bits]:
        """Both pools after one token of each sequence was stored at its position. Raises KernelError."""
        ...

    def copy_blocks(self, case: Case, variant: Variant, pairs: NDArray[Any]) -> tuple[Bits, Bits]:
        """Both pools after whole blocks were copied, pairs [n, 2] of (from, to). Raises KernelError."""
        ...
