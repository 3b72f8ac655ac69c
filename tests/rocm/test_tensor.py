"""Products of matrices by AMD's own words, against the interpreter of the IR, which lays matrices out in
another way: equal only if each thread has what AMD says it has."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.ir.matrices import numbers, products
from tests.rocm import machine
from tests.rocm.tensor import INSTRUCTIONS
from ztorch.codegen import amdgcn, assemble
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import f64
from ztorch.errors import Unsupported
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel, MmaShape
from ztorch.ir.verify import verify

ROWS = [t for t in TARGETS.values() if t.assembler == "amdgcn"]
CASES = [pytest.param(t, s, id=f"{t.chip} {s}") for t in ROWS for s in t.limits.grid.mma]
TURNS = tuple(itertools.product((False, True), repeat=3))
each = pytest.mark.parametrize(("target", "shape"), CASES)


def kernel_for(target: Target, shape: MmaShape, **more) -> Kernel:
    kernel = products(shape, subgroup=target.limits.grid.subgroup, **more)
    verify(kernel)
    return kernel


def compare(kernel: Kernel, shape: MmaShape, got: dict, want: dict) -> None:
    if shape.into is f64:  # sums are of another order
        np.testing.assert_allclose(got["y"], want["y"], rtol=0, atol=shape.k * 2.0**-50)
    else:
        np.testing.assert_array_equal(got["y"], want["y"])


@each
@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize(("space", "align"), [("shared", 16), ("shared", 0), ("global", 0)])
def test_products(target: Target, shape: MmaShape, turned: tuple[bool, bool, bool], space: str, align: int) -> None:
    kernel = kernel_for(target, shape, turned=turned, space=space, align=align)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=target.limits.grid.subgroup)
    machine.run([kernel], [got], target)
    compare(kernel, shape, got, want)
