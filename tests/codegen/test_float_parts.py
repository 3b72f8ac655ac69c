"""The parts of floats by a machine's own words: the numbers of the rewriting, in vectors of any size."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, run_kernels
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f32, f64
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.opcodes import OPCODES

LANES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 40, 64)
PARTS = ("raw_exponent", "raw_significand")


def _kernel(opcode: str, d: DType, n: int, lanes: int) -> Kernel:
    b = Builder(f"{opcode}_{d}_{lanes}")
    b.memory("x", d, n)
    b.memory("y", d, n, access="w")
    with b.loop(0, n, lanes) as i:
        b.store("y", i, b.emit(opcode, b.load("x", i, lanes=lanes)))
    return b.kernel()


@pytest.mark.parametrize("opcode", PARTS)
def test_native_opcodes_give_the_parts(opcode: str) -> None:
    if "avx512" not in HERE:
        pytest.skip("this processor has no AVX-512")
    assert {f"{opcode}_f32", f"{opcode}_f64"} <= set(renderer(TARGETS["avx512"]).words)
    kernels, held, wanted = [], [], []
    for d in (f32, f64):
        info = np.finfo(d.numpy)
        ends = [0.0, -0.0, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 1.0,
                0.75, np.nextafter(d.numpy.type(0.75), d.numpy.type(0)), 1.5, np.nextafter(d.numpy.type(1.5), d.numpy.type(0))]
        for lanes in LANES:
            x = np.resize(np.array([*ends, *np.exp(np.arange(-40.0, 40.0))], d.numpy), 3 * lanes + 120 // lanes * lanes)
            kernels.append(_kernel(opcode, d, x.size, lanes))
            held.append({"x": x, "y": np.zeros_like(x)})
            wanted.append(OPCODES[opcode].meaning(x))  # type: ignore[misc]
    run_kernels(kernels, held, "avx512")
    for kernel, buffers, y in zip(kernels, held, wanted, strict=True):
        np.testing.assert_array_equal(buffers["y"], y, err_msg=kernel.name)
