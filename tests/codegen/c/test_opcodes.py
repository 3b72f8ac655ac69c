"""Words of C: each opcode on each dtype computes the same as the interpreter, to the bit, whatever the
compiler, and no compiler warns about the text."""

from __future__ import annotations

import ctypes
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.cases.covering import pairs
from tests.cases.opcodes import kernel_for, opcodes_of, same
from tests.cases.random_kernels import random_buffers, random_kernel
from tests.codegen.c.compilers import (
    COMPILERS,
    STRICT,
    bits,
    every_compiler,
    needs_compiler,
    run,
)
from tests.parity import answer, run_kernels
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.codegen.templates import environment
from ztorch.dtypes import ALL, DType, boolean
from ztorch.host.settings import using
from ztorch.ir.interpret import interpret
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose

pytestmark = needs_compiler
C = TARGETS["c"]


# Each run takes each dtype by one of the compilers, a full run by all.
@pytest.mark.parametrize(("compiler", "d"), pairs(COMPILERS, ALL), ids=str)
def test_every_opcode(compiler: str, d: DType) -> None:
    made = [(o, *kernel_for(o, d, 1)) for o in opcodes_of(d)]
    supports = renderer(C).supports
    ready = [decompose(kernel, supports, "c") for _, kernel, _ in made]
    got = [{n: a.copy() for n, a in held.items()} for _, _, held in made]
    with using(cc=" ".join((compiler, *STRICT))):
        run_kernels(ready, got, "c")
    for (opcode, _, held), kernel, actual in zip(made, ready, got, strict=True):
        same(actual, answer(kernel, held), f"{opcode} {d!r} by {compiler}", opcode in ("min", "max"))


@pytest.mark.slow
@every_compiler
def test_random_kernels(compiler: str) -> None:
    kernels = [random_kernel(Random(seed), dtypes=tuple(d for d in ALL if d is not boolean),
                             lanes=(1,)) for seed in range(60)]
    for kernel in kernels:
        verify(kernel)
    held = [random_buffers(k, Random(seed)) for seed, k in enumerate(kernels)]
    got = [{n: a.copy() for n, a in h.items()} for h in held]
    with using(cc=compiler):
        run_kernels([decompose(k, renderer(C).supports, "c") for k in kernels], got, "c")
    for seed, (kernel, want, actual) in enumerate(zip(kernels, held, got, strict=True)):
        interpret(kernel, want)
        same(actual, want, f"random kernel {seed} by {compiler}", signless=True)


FUNCTIONS = {"abs": np.abs, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil,
             "round": np.rint, "sqrt": np.sqrt}


@pytest.mark.parametrize("errno", ["-fmath-errno", "-fno-math-errno"])
@every_compiler
def test_functions_are_right_for_any_bits(compiler: str, errno: str, tmp_path: Path) -> None:
    """With errno, roots are computed digit by digit; without, by the processor."""
    types = {"f32": ("float", np.float32, np.uint32), "f64": ("double", np.float64, np.uint64)}
    page = environment().get_template("c/floating.c.j2")
    text = "#include <stdint.h>\n" + page.render(used=[f"{n}_{f}" for n in FUNCTIONS for f in types])
    for n in FUNCTIONS:
        for f, (t, _, _) in types.items():
            text += (f"\nvoid all_{n}_{f}({t} *x, {t} *y, long n) {{\n  long i;\n"
                     f"  for (i = 0; i < n; i++)\n    y[i] = {n}_{f}(x[i]);\n}}\n")
    (tmp_path / "f.c").write_text(text)
    run(compiler, "-std=c99", "-O2", errno, "-shared", "-fPIC", "f.c", "-o", "f.so", cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    random, count = np.random.default_rng(0), 200_000
    for f, (_, real, whole) in types.items():
        x = random.integers(0, np.iinfo(whole).max, count, whole, endpoint=True).view(real)
        x[::2] = random.normal(size=count // 2) * 10.0 ** random.integers(-3, 10, count // 2)
        x[:1000] = np.arange(-500, 500) / 2
        x[1000:2000] = random.integers(0, 1 << 20, 1000).astype(whole).view(real)  # the tiniest
        x[2000:2005] = 0.0, -0.0, np.inf, -np.inf, np.nan
        y = np.empty_like(x)
        for n, function in FUNCTIONS.items():
            getattr(library, f"all_{n}_{f}")(ctypes.c_void_p(x.ctypes.data),
                                             ctypes.c_void_p(y.ctypes.data), ctypes.c_long(count))
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(bits(y), bits(function(x)), f"{n} {f}")


