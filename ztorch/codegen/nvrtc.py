"""Compiles CUDA C++ to PTX with NVRTC, NVIDIA's run-time compiler, which needs no GPU.

The PTX of `cuda:c` is for the oldest supported chip, so a driver can assemble it for any chip, but
the driver must be as new as NVRTC. That of a named chip has all its instructions. Kernels that are
rendered as PTX directly are accepted by older drivers, too.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from ztorch.codegen import ptx
from ztorch.codegen.object_cache import cached
from ztorch.codegen.targets import Target
from ztorch.errors import Unsupported
from ztorch.machines.chips import chips_of

ALL_CHIPS = "c"  # the chip of code for every chip


def assemble(text: str, target: Target) -> bytes:
    """The PTX of a module, with the final zero byte that the driver requires. Behind that of a
    named chip follows its machine code, as for kernels that are rendered as PTX."""
    code = ptx_text(text, target)
    return code.encode() + b"\0" if target.chip == ALL_CHIPS else ptx.assemble(code, target)


def assembly(text: str, target: Target) -> str:
    """The machine code of one or several modules for display; for all chips, their PTX."""
    modules = [f"namespace {part}" for part in text.split("namespace ")[1:]]
    code = "\n".join(ptx_text(m, target) for m in modules)
    return code if target.chip == ALL_CHIPS else ptx.assembly(code, target)


def ptx_text(text: str, target: Target) -> str:
    """The PTX of a module."""
    options = _options(target)
    code = cached(("nvrtc", _version(), *options, text), lambda: compiled(text, options))
    isa = dict(target.frame_data)["version"]
    return re.sub(r"^\.version \S+", f".version {isa}", code.rstrip(b"\0").decode(), count=1,
                  flags=re.MULTILINE)


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


def _options(target: Target) -> tuple[str, ...]:
    chip = chips_of(target.backend)[0].name if target.chip == ALL_CHIPS else target.chip
    return f"--gpu-architecture={chip.replace('sm', 'compute')}", "--std=c++17"


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
