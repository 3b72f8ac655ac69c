"""Compiles CUDA C++ to PTX with NVRTC, NVIDIA's run-time compiler, which needs no GPU.

The PTX is for the oldest supported chip, so a driver can assemble it for any chip, but the driver
must be as new as NVRTC. Code for a named chip is rendered as PTX directly, which older drivers
accept.
"""

from __future__ import annotations

import functools
from typing import Any

from ztorch.codegen.object_cache import cached
from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.machines.chips import chips_of


def assemble(text: str, target: Target) -> bytes:
    """The PTX of a module, with the final zero byte that the driver requires."""
    options = _options(target.backend)
    return cached(("nvrtc", _version(), *options, text), lambda: compiled(text, options))


def assembly(text: str, target: Target) -> str:
    """The PTX of one or several modules, for display."""
    modules = [f"namespace {part}" for part in text.split("namespace ")[1:]]
    return "\n".join(assemble(m, target).rstrip(b"\0").decode() for m in modules)


def compiled(text: str, options: tuple[str, ...]) -> bytes:
    """The output of NVRTC for a text. Errors contain its log."""
    nvrtc = _nvrtc()
    program = _results(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    try:
        code, = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if code.value:
            log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise Unsupported(f"NVRTC refuses CUDA C++ ({code.name}):\n"
                              f"{log.rstrip(bytes(1)).decode(errors='replace')}")
        return _read(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _options(backend: str) -> tuple[str, ...]:
    oldest = chips_of(backend)[0].name.replace("sm", "compute")
    return f"--gpu-architecture={oldest}", "--std=c++17"


def _read(program: Any, size: Any, read: Any) -> bytes:
    text = b" " * _results(size(program))
    _results(read(program, text))
    return text


def _results(codes: tuple) -> Any:
    """The results of a call without its status; an error if it failed."""
    code, *results = codes
    if code.value:
        raise Unsupported(f"NVRTC: {code.name}")
    return results[0] if results else None


@functools.cache
def _version() -> str:
    return ".".join(map(str, _nvrtc().nvrtcVersion()[1:]))


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise Unsupported(f"CUDA C++ needs NVRTC, which is not installed ({error}); "
                          "pip install 'ztorch[cuda]'") from None
    return nvrtc
