"""The kernels' source text: what is compiled, and its hash. A GPU gets one text per kernel, with no include left."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
FILES = {
    "paged_decode": "paged_decode.cu",
    "merge_splits": "merge.cu",
    "append": "append.cu",
    "copy_blocks": "copy_blocks.cu",
    "rms_norm": "rms_norm.cu",
    "rope": "rope.cu",
    "activation": "activation.cu",
}
_INCLUDE = re.compile(r'#include "([a-z0-9_]+\.h)"\n')


def kernel_text(kernel: str) -> str:
    """The file of a kernel as it stands, for a compiler that finds its headers beside it."""
    return (KERNELS / FILES[kernel]).read_text()


def headers() -> dict[str, str]:
    """Every header that kernels may include, by name."""
    return {path.name: path.read_text() for path in sorted(KERNELS.glob("*.h"))}


def device_text(kernel: str) -> str:
    """One text for NVRTC or nvcc: the headers of a GPU stand in place of their includes."""
    texts = headers() | {"machine.h": headers()["device.h"]}

    def spliced(text: str) -> str:
        return _INCLUDE.sub(lambda found: spliced(texts[found[1]]), text.replace("#pragma once\n", ""))

    return spliced(kernel_text(kernel))


def digest() -> str:
    """Hash of everything that a GPU runs, 16 hex digits: it names the kernels in results."""
    return hashlib.sha256("".join(device_text(kernel) for kernel in FILES).encode()).hexdigest()[:16]
