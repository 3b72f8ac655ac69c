"""Each opcode on each dtype, on registers and literals, computes on every device that is here what
the interpreter does, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.codegen.test_render import kernel_for, opcodes_of, same
from tests.devices.available import COMPUTING, device
from tests.devices.programs import run_kernels
from ztorch.dtypes import ALL, DType, f32, f64, i32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret

computing = pytest.mark.parametrize("backend", COMPUTING)


@computing
@pytest.mark.parametrize("d", ALL, ids=repr)
def test_every_opcode(backend: str, d: DType) -> None:
    device(backend)
    for opcode in opcodes_of(d):
        kernel, want = kernel_for(opcode, d, 1, i32)
        got = {n: a.copy() for n, a in want.items()}
        try:
            run_kernels([kernel], [got], backend)
        except Unsupported as error:
            assert backend in str(error)  # says who lacks what
            continue
        interpret(kernel, want)
        same(got, want, f"{opcode} {d!r} on {backend}", opcode in ("min", "max"))
