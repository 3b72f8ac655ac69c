"""A race at a SIMD level below the best: of ztorch, and of the peers that can be told."""

from __future__ import annotations

import functools
import os
import sys

from ztorch.host import detect, processor

# What tells a peer, or the library that multiplies for it, to leave out AVX-512: PyTorch, oneDNN,
# MKL, OpenBLAS and NumPy. ONNX Runtime asks the processor and cannot be told.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL "
                                "AVX512_SPR"}
FAIR = "avx2; AVX-512 is hidden from ztorch, PyTorch, oneDNN and OpenBLAS, not from ONNX Runtime"


def limited(module: str, level: str, arguments: list[str]) -> bool:
    """Whether this process is limited to a level; if it should be and is not, another one takes its
    place, for libraries read their environment when they are loaded.

    Args:
        module: The command, as for `python -m`.
        level: `avx2`, or nothing for the best.
        arguments: Those of the command.
    """
    if not level:
        return False
    if any(os.environ.get(name) != value for name, value in AVX2.items()):
        command = [sys.executable, "-m", module, *arguments]
        os.execve(sys.executable, command, {**os.environ, **AVX2})
    detect.detected()  # the processor is still this one
    wide = ("avx512", "amx")
    here = frozenset(f for f in processor.features() if not f.startswith(wide))
    processor.features = functools.cache(lambda: here)
    return True
