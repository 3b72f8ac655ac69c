"""Each opcode on each dtype, on registers and literals, computes on every available device the same as the interpreter,
to the bit."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import among_devices, pairs
from tests.cases.device_programs import run_kernels, target_of
from tests.cases.grouping import together
from tests.cases.opcodes import kernel_for, numbers, opcodes_of, same
from tests.cases.random_kernels import EXACT, random_buffers, random_kernel
from tests.parity import answer
from ztorch.codegen.render import renderer
from ztorch.dtypes import ALL, DType, bf16, boolean, f16, f32, f64, i32, u32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.lower.passes import decompose

computing = pytest.mark.parametrize("backend", COMPUTING)
# WGSL lets an implementation assume that no float is infinite or NaN, and the one here does in
# arithmetic: it takes x - x and 0 * x for 0, and drops signs of zeros.
ASSUMED = {"add", "sub", "mul", "div"}


Buffers = dict[str, np.ndarray]
TRIED = [*among_devices([d for d in ALL if d.is_int], (i32, u32)),
         *(pytest.param(n, d) for d in (f32, f64, boolean) for n in COMPUTING),
         *pairs(("opencl", "vulkan"), (f16, bf16)),
         *(pytest.param(n, d) for d in (f16, bf16) for n in COMPUTING if n not in PLAYED)]


@pytest.mark.parametrize(("backend", "d"), [
    pytest.param(*p.values, id="{}-{!r}".format(*p.values),
                 marks=p.marks if p.values[1] in (f32, i32) else (*p.marks, pytest.mark.slow))
    for p in TRIED])
def test_every_opcode(backend: str, d: DType) -> None:
    words = renderer(target_of(device(backend)))
    made = {opcode: kernel_for(opcode, d, 1, i32) for opcode in opcodes_of(d)
            if not (backend == "webgpu" and d.is_float and opcode in ASSUMED)}
    for opcode, got in computed(made, backend).items():
        kernel, held = made[opcode]
        want = answer(decompose(kernel, words.supports, backend), held)
        same(numbers(kernel, got), numbers(kernel, want), f"{opcode} {d!r} on {backend}",
             opcode in ("min", "max"))


def computed(made: dict[str, tuple[Kernel, Buffers]], backend: str) -> dict[str, Buffers]:
    """The buffers of kernels after they ran, compiled together; in halves, where the device lacks one."""
    got = {name: {n: a.copy() for n, a in held.items()} for name, (_, held) in made.items()}
    try:
        run_kernels([kernel for kernel, _ in made.values()], [*got.values()], backend)
    except Unsupported as error:
        assert backend in str(error)  # names the backend and the missing feature
        if len(made) == 1:
            return {}
        kernels, half = [*made.items()], len(made) // 2
        return {**computed(dict(kernels[:half]), backend), **computed(dict(kernels[half:]), backend)}
    return got


@pytest.mark.parametrize("backend", COMPUTING)
def test_random_kernels(backend: str) -> None:
    """Structure and variables: loops, branches and exits from them. Without bitcasts, which make NaNs of any
    payload."""
    words = renderer(target_of(device(backend)))
    able = tuple(d for d in ALL if d.bits in (16, 32) and (backend != "webgpu" or d.is_int))
    opcodes = tuple(o for o in EXACT if o != "bitcast")
    kernels = [random_kernel(Random(seed), 10, able, opcodes, (1,), ("serial",))
               for seed in range(120)]
    kernels = [k for k in kernels if len(k.memories) <= 8  # more, and not every device takes them
               and (backend != "webgpu" or k.index is i32)]
    assert len(kernels) > 20
    wanted = [random_buffers(k, Random(seed)) for seed, k in enumerate(kernels)]
    got = [{n: a.copy() for n, a in held.items()} for held in wanted]
    run_kernels(kernels, got, backend)
    for seed, (kernel, want, actual) in enumerate(zip(kernels, wanted, got, strict=True)):
        interpret(decompose(kernel, words.supports, backend), want)
        same(numbers(kernel, actual), numbers(kernel, want), f"random kernel {seed} on {backend}",
             signless=True)


@computing
@pytest.mark.parametrize("d", [f32, f64], ids=repr)
def test_literals_are_exact(backend: str, d: DType) -> None:
    numbers = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e-45, 0.1, -1.5, 3.4e38, 1e300]
    b = Builder("literals", i32)
    b.memory("y", d, len(numbers), access="w")
    with np.errstate(over="ignore"):
        for k, x in enumerate(numbers):
            b.store("y", k, b.const(x, d))
        want = np.array(numbers).astype(d.numpy)
    got = {"y": np.ones(len(numbers), d.numpy)}
    try:
        run_kernels([b.kernel()], [got], backend)
    except Unsupported as error:
        assert d is f64 and backend in str(error)
        return
    same(got, {"y": want}, f"{d!r} on {backend}")
    assert np.signbit(got["y"][:2]).tolist() == [False, True]


@computing
@pytest.mark.parametrize("d", [f32, i32], ids=repr)
def test_masks(backend: str, d: DType) -> None:
    """Where the mask is false, a load is zero wherever it points, and a store changes nothing."""
    device(backend)
    b = Builder("masked", i32)
    b.memory("x", d, 4)
    b.memory("y", d, 8, access="rw")
    b.memory("z", d, 8, access="w")
    with b.loop(0, 8) as i:
        inside = b.lt(i, 4)
        x = b.load("x", b.mul(i, 1), mask=inside)
        b.store("y", i, x, mask=b.eq(b.rem(i, 3), 0))
        b.store("z", b.sub(i, 1), b.load("y", b.sub(i, 2), off=1, mask=b.gt(i, 0)), off=1)
    want = {"x": np.array([5, -6, 7, -8], d.numpy), "y": np.arange(10, 18).astype(d.numpy),
            "z": np.full(8, 99, d.numpy)}
    got = {n: a.copy() for n, a in want.items()}
    run_kernels([b.kernel()], [got], backend)
    interpret(b.kernel(), want)
    same(got, want, backend)
    assert got["y"].tolist() == [5, 11, 12, -8, 14, 15, 0, 17]


@together(by="backend")
@computing
@pytest.mark.parametrize("opcode", ["sub", "div", "eq", "ne", "le", "max", "mul", "add"])
def test_a_value_and_itself(backend: str, opcode: str) -> None:
    """inf - inf is not zero, and NaN is not itself, whatever a compiler sees."""
    if (backend, opcode) == ("webgpu", "sub"):
        return  # as above
    device(backend)
    numbers = np.array([1.5, 0.0, -0.0, math.inf, -math.inf, math.nan], np.float32)
    b = Builder("itself", i32)
    b.memory("x", f32, 6)
    b.memory("y", f32, 6, access="w")
    with b.loop(0, 6) as i:
        x = b.load("x", i)
        b.store("y", i, b.cast(b.emit(opcode, x, x), dtype=f32))
    want = {"x": numbers, "y": np.zeros(6, np.float32)}
    got = {n: a.copy() for n, a in want.items()}
    run_kernels([b.kernel()], [got], backend)
    interpret(b.kernel(), want)
    same(got, want, f"{opcode} on {backend}")
