"""a * b + c in float64 with one rounding, which NumPy lacks: the C library's function for each element,
called by a loop that LLVM compiles, since a loop of Python takes longer than all else that a kernel does."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.codegen.llvm import binding

LOOP = """
declare double @llvm.fma.f64(double, double, double)

define void @fused(ptr %a, ptr %b, ptr %c, ptr %out, i64 %count) {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  %pa = getelementptr double, ptr %a, i64 %k
  %pb = getelementptr double, ptr %b, i64 %k
  %pc = getelementptr double, ptr %c, i64 %k
  %po = getelementptr double, ptr %out, i64 %k
  %xa = load double, ptr %pa
  %xb = load double, ptr %pb
  %xc = load double, ptr %pc
  %y = call double @llvm.fma.f64(double %xa, double %xb, double %xc)
  store double %y, ptr %po
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@functools.cache
def _loop() -> tuple[Callable[..., None], Any]:
    """The compiled loop, and what must live as long."""
    llvm = binding()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(LOOP), machine)
    engine.finalize_object()
    kinds = *[ctypes.c_void_p] * 4, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("fused")), engine


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once.

    >>> x = np.array([1 + 2.0**-52])
    >>> fma64(x, x, -x * x) == 2.0**-104
    array([ True])
    """
    a, b, c = (np.ascontiguousarray(x, np.float64) for x in np.broadcast_arrays(a, b, c))
    out = np.empty(a.shape)
    if out.size:
        _loop()[0](*(x.ctypes.data for x in (a, b, c, out)), out.size)
    return out
