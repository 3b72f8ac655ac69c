"""Lanes, masks, structure and variables of the interpreter, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.dtypes import (
    f32,
    i32,
    i64,
)
from ztorch.errors import InterpretError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.verify import verify


def run(b: Builder, /, **buffers: np.ndarray) -> None:
    kernel = b.kernel()
    verify(kernel)
    interpret(kernel, buffers)


def test_lanes() -> None:
    b = Builder("lanes")
    b.memory("x", i32, 8)
    b.memory("y", i32, 20, access="w")
    x, z = b.load("x", 0, lanes=4), b.load("x", 4, lanes=4)
    b.store("y", 0, b.shuffle(x, z, (0, 4, 1, 5, 7, 7)))
    b.store("y", 6, b.extract(z, 2))
    b.store("y", 7, b.splat(b.extract(x, 3), 4))
    b.store("y", 11, b.iota(4, i32))
    b.store("y", 15, b.fold("add", x))
    b.store("y", 16, b.shuffle(b.const(9, i32, 4), b.splat(b.extract(x, 1), 4), (0, 4)))
    y = np.zeros(20, np.int32)
    run(b, x=np.arange(10, 18, dtype=np.int32), y=y)
    assert y.tolist() == [10, 14, 11, 15, 17, 17, 16, 13, 13, 13, 13, 0, 1, 2, 3, 46, 9, 11, 0, 0]


def test_masks_gather_and_scatter() -> None:
    b = Builder("masks")
    b.memory("x", f32, 5)
    b.memory("y", f32, 9, access="rw")
    mask = b.lt(b.iota(8), 5)
    x = b.load("x", 0, lanes=8, mask=mask)
    b.store("y", 1, b.add(x, 1.0), mask=mask)
    back = b.load("x", b.sub(4, b.iota(8)), mask=mask)  # backwards, three masked off
    b.store("y", b.add(b.mul(b.iota(8), 2), 1), back, off=-1, mask=b.lt(b.iota(8), 2))
    y = np.full(9, -1, np.float32)
    run(b, x=np.arange(5, dtype=np.float32), y=y)
    assert y.tolist() == [4, 1, 3, 3, 4, 5, -1, -1, -1]


def test_masked_off_lanes_are_zero_and_out_of_bounds_ones_are_not_touched() -> None:
    b = Builder("zero")
    b.memory("x", f32, 4)
    b.memory("y", f32, 8, access="w")
    b.store("y", 0, b.load("x", 3, lanes=8, mask=b.lt(b.iota(8), 1)))
    y = np.full(8, 7, np.float32)
    run(b, x=np.full(4, 5, np.float32), y=y)
    assert y.tolist() == [5, 0, 0, 0, 0, 0, 0, 0]


def test_structure() -> None:
    """Zero-trip loops, steps, if and else, variables that carry."""
    b = Builder("structure")
    b.memory("y", i64, 4, access="w")
    total, odd = b.var(i64, init=0), b.var(i64, init=0)
    with b.loop(3, 20, 4) as i:  # 3 7 11 15 19
        b.set(total, b.add(b.get(total), i))
        with b.if_(b.lt(i, 11), els=True) as t:
            b.set(odd, b.add(b.get(odd), 1))
            b.else_(t)
            b.set(odd, b.add(b.get(odd), 100))
    with b.loop(5, 5) as i:
        b.set(total, b.mul(i, 1000))
    b.store("y", 0, b.get(total))
    b.store("y", 1, b.get(odd))
    y = np.zeros(4, np.int64)
    run(b, y=y)
    assert y.tolist() == [55, 302, 0, 0]


def test_get_is_a_snapshot() -> None:
    b = Builder("snapshot")
    b.memory("y", f32, 4, access="w")
    v = b.var(f32, init=1.0)
    before = b.get(v)
    b.set(v, 2.0)
    b.store("y", 0, before)
    b.store("y", 1, b.get(v))
    y = np.zeros(4, np.float32)
    run(b, y=y)
    assert y.tolist() == [1, 2, 0, 0]


def test_load_is_a_snapshot() -> None:
    b = Builder("snapshot")
    b.memory("y", f32, 2, access="rw")
    old = b.load("y", 0)
    b.store("y", 0, b.const(5.0, f32))
    b.store("y", 1, old)
    y = np.ones(2, np.float32)
    run(b, y=y)
    assert y.tolist() == [5, 1]


def cpu_gemm(m: int, k: int, n: int) -> Kernel:
    """C = A B with a tile of 14 x 32 in variables."""
    b = Builder("gemm")
    b.memory("A", f32, m * k)
    b.memory("B", f32, k * n)
    b.memory("C", f32, m * n, access="w")
    with b.loop(0, m, 14, kind="parallel") as i, b.loop(0, n, 32) as j:
        acc = [[b.var(f32, 16, 0.0) for _ in range(2)] for _ in range(14)]
        first = b.mul(i, k)
        with b.loop(0, k) as t:
            row, at = b.add(b.mul(t, n), j), b.add(first, t)
            right = [b.load("B", row, off=16 * c, lanes=16, align=64) for c in range(2)]
            for r in range(14):
                left = b.splat(b.load("A", at, off=r * k), 16)
                for c in range(2):
                    b.set(acc[r][c], b.fma(left, right[c], b.get(acc[r][c])))
        out = b.add(b.mul(i, n), j)
        for r in range(14):
            for c in range(2):
                b.store("C", out, b.get(acc[r][c]), off=r * n + 16 * c)
    return b.kernel()


def test_cpu_gemm() -> None:
    kernel = cpu_gemm(28, 16, 64)
    verify(kernel)
    rng = np.random.default_rng(0)
    a, b = rng.random((28, 16), np.float32), rng.random((16, 64), np.float32)
    c = np.zeros((28, 64), np.float32)
    interpret(kernel, {"A": a, "B": b, "C": c})
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


# -- errors ----------------------------------------------------------------------------------------


def test_out_of_bounds_names_everything() -> None:
    b = Builder("over")
    b.memory("x", f32, 8)
    with b.loop(0, 8) as i:
        b.load("x", i, off=1)
    message = r"kernel over, instruction 1 \(load\): x\[8\] is out of bounds: 8 elements"
    with pytest.raises(InterpretError, match=message):
        run(b, x=np.zeros(8, np.float32))


@pytest.mark.parametrize("index", [-1, 5, 1 << 40])
@pytest.mark.parametrize("lanes", [1, 4])
def test_out_of_bounds(index: int, lanes: int) -> None:
    for store in (False, True):
        b = Builder("over")
        b.memory("x", f32, 8, access="rw")
        b.memory("i", i64, 1)
        at = b.load("i", 0)
        if store:
            b.store("x", at, b.const(0.0, f32, lanes), off=3)
        else:
            b.load("x", at, off=3 if index > 0 else 0, lanes=lanes)
        with pytest.raises(InterpretError, match="out of bounds"):
            run(b, x=np.zeros(8, np.float32), i=np.array([index if index > 0 else -4]))


def test_uninitialized_shared_memory() -> None:
    b = Builder("fresh")
    b.workgroup = (4, 1, 1)
    b.memory("s", f32, 8, space="shared", access="rw")
    t = b.identity("block_id")
    b.store("s", t, b.const(1.0, f32))
    b.barrier()
    b.load("s", b.mul(t, 2))
    with pytest.raises(InterpretError, match=r"s\[4\] is read but was never written"):
        run(b)


def test_unset_variable() -> None:
    b = Builder("unset")
    b.workgroup = (4, 1, 1)
    v = b.var(f32)
    with b.if_(b.lt(b.identity("block_id"), 2)):
        b.set(v, 1.0)
    b.get(v)
    with pytest.raises(InterpretError, match="never set by some threads"):
        interpret(b.kernel(), {})
    b = Builder("unset")
    b.get(b.var(f32))
    with pytest.raises(InterpretError, match="was never set"):
        interpret(b.kernel(), {})


def test_a_trip_of_a_parallel_loop_inherits_no_variable() -> None:
    b = Builder("carried")
    v = b.var(f32, init=0.0)
    with b.loop(0, 4, kind="parallel"):
        b.set(v, b.add(b.get(v), 1.0))
    with pytest.raises(InterpretError, match="was never set"):
        interpret(b.kernel(), {})


def test_access_is_honored() -> None:
    b = Builder("access")
    b.memory("x", f32, 4)
    b.store("x", 0, b.const(1.0, f32))
    with pytest.raises(InterpretError, match="x is read-only"):
        interpret(b.kernel(), {"x": np.zeros(4, np.float32)})
    b = Builder("access")
    b.memory("x", f32, 4, access="w")
    b.load("x", 0)
    with pytest.raises(InterpretError, match="x is write-only"):
        interpret(b.kernel(), {"x": np.zeros(4, np.float32)})


@pytest.mark.parametrize("given", [{}, {"x": np.zeros(4)}, {"x": np.zeros(5, np.float32)},
                                   {"x": np.zeros(8, np.float32)[::2]}])
def test_buffers_must_fit(given: dict[str, np.ndarray]) -> None:
    b = Builder("fit")
    b.memory("x", f32, 4)
    with pytest.raises(InterpretError, match="x"):
        interpret(b.kernel(), given)


def test_a_step_of_zero() -> None:
    for step in (0, -1):
        b = Builder("k")
        with b.loop(0, 4, step):
            pass
        with pytest.raises(InterpretError, match=f"the step is {step}, not positive"):
            interpret(b.kernel(), {})


def test_while_ends_a_loop_for_each_thread() -> None:
    """Powers of two below a limit of each thread; one with lanes goes on while any lane does."""
    b = Builder("powers", index=i32)
    b.workgroup = (4, 1, 1)
    b.memory("limit", i32, 8)
    b.memory("y", i32, 4, access="w")
    b.memory("z", i32, 8, access="w")
    with b.loop(0, 4, kind="block") as t:
        x, limit = b.var(i32, 1, 1), b.load("limit", t)
        with b.loop(0, 20) as k:
            b.while_(k, b.lt(b.get(x), limit))
            b.set(x, b.mul(b.get(x), 2))
        b.store("y", t, b.get(x))
        with b.if_(b.eq(t, 0)):
            v = b.var(i32, 8, 1)
            with b.loop(0, 20) as k:
                b.while_(k, b.lt(b.get(v), b.load("limit", 0, lanes=8)))
                b.set(v, b.add(b.get(v), b.iota(8, i32)))
            b.store("z", 0, b.get(v))
    y, z = np.zeros(4, np.int32), np.zeros(8, np.int32)
    run(b, limit=np.array([1, 2, 33, 1 << 30, 0, 0, 0, 22], np.int32), y=y, z=z)
    assert y.tolist() == [1, 2, 64, 1 << 20]
    assert z.tolist() == (1 + np.arange(8) * 20).tolist()  # lane 3 never ends


def test_while_ends_only_the_innermost_loop_in_each_iteration() -> None:
    b = Builder("nested")
    b.memory("y", i64, 4, access="w")
    x = b.var(i64)
    with b.loop(0, 4) as i:
        b.set(x, b.const(0, i64))
        with b.loop(0, 9) as k:
            b.while_(k, b.lt(b.get(x), b.mul(i, i)))
            b.set(x, b.add(b.get(x), 2))
        b.store("y", i, b.get(x))
    y = np.zeros(4, np.int64)
    run(b, y=y)
    assert y.tolist() == [0, 2, 4, 10]
