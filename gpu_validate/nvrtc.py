"""NVIDIA's runtime compiler as the wheel ``nvidia-cuda-nvrtc`` brings it, through ctypes. No GPU, no CUDA headers."""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

from gpu_validate.backend import KernelError
from simulator.errors import InputError

_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")


def library_path() -> Path | None:
    """Where the newest NVRTC of an installed wheel lies; None where there is none."""
    found = [
        path
        for folder in sys.path
        for inside in _FOLDERS
        for path in sorted(Path(folder, inside).glob("libnvrtc.so.*"), reverse=True)
        if "alt" not in path.name
    ]
    return found[0] if found else None


@functools.cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise InputError("NVRTC is not here", remedy="pip install nvidia-cuda-nvrtc, or install nvcc")
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC asks for it by name, not by place
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def version() -> str:
    """``NVRTC 13.0``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"NVRTC {major.value}.{minor.value}"


def compile_text(text: str, options: tuple[str, ...], *, name: str) -> str:
    """Compiles down to machine code and gives what the compilers said. Raises KernelError with their words."""
    program = ctypes.c_void_p()
    _ask("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    try:
        words = [option.encode() for option in options]
        code = _library().nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        log = _text_of(program)
        if code:
            raise KernelError(f"NVRTC refused the kernel: {log.strip()[:2000]}", where=name)
        return log
    finally:
        _ask("nvrtcDestroyProgram", ctypes.byref(program))


def _text_of(program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _ask("nvrtcGetProgramLogSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(max(1, size.value))
    _ask("nvrtcGetProgramLog", program, text)
    return text.value.decode(errors="replace")


def _ask(function: str, *arguments: Any) -> None:
    code = getattr(_library(), function)(*arguments)
    if code:
        raise KernelError(f"{function}: {_library().nvrtcGetErrorString(code).decode()}")
