"""Loops whose length is data, in lanes: they read and write what the loop does, and no more."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE
from ztorch.dtypes import f32, i32
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.verify import verify
from ztorch.lower.cpu.vectorized_loops import vectorize_loops

LANES = Limits(512, 32, True, mask_registers=True)


@pytest.mark.parametrize(("off", "step"), [(0, 16), (1, 1)])
def test_an_element_that_the_next_iteration_reads_is_written_before(off: int, step: int) -> None:
    """Access offsets count, not only indices: y[i + 1] = y[i] + 1 runs in order."""
    b = Builder("shift", exact=False)
    b.memory("n", b.index, 1)
    b.memory("y", f32, 64, access="rw")
    with b.loop(0, b.load("n", 0)) as i:
        b.store("y", i, b.add(b.load("y", i), 1.0), off=off)
    kernel = vectorize_loops(b.kernel(), Limits(512, 32, True, mask_registers=True))
    assert [i.args[2].number for i in kernel.body if i.opcode == "loop"] == [step]


def in_lanes(b: Builder) -> Kernel:
    kernel = vectorize_loops(b.kernel(), LANES)
    verify(kernel)
    assert any(i.dest.lanes > 1 for i in kernel.body)
    return kernel


@pytest.mark.parametrize("turns", [0, 1, 3, 4, 6, 10])
def test_lanes_beyond_the_end_read_nothing(turns: int) -> None:
    """Every third element of a row that ends with the array."""
    b = Builder("thirds", exact=False)
    _ = b.memory("n", i32, 1), b.memory("x", f32, 30), b.memory("y", f32, 1, access="w")
    total = b.var(f32, init=0.0)
    stop = b.min(b.cast(b.load("n", 0), dtype=b.index), 10)
    with b.loop(0, stop) as k:
        b.set(total, b.add(b.get(total), b.load("x", b.mul(k, 3))))
    b.store("y", 0, b.get(total))
    x, y = np.arange(1.0, 31.0, dtype=np.float32), np.zeros(1, np.float32)
    interpret(in_lanes(b), {"n": np.array([turns], np.int32), "x": x, "y": y})
    assert y[0] == x[:3 * turns:3].sum()


@pytest.mark.parametrize("turns", [0, 1, 7, 8, 9, 17, 30])
def test_machines_without_masked_stores_write_the_rest_one_by_one(turns: int) -> None:
    """An element beyond the loop keeps its value, and sums have all elements."""
    b = Builder("scaled", exact=False)
    _ = b.memory("n", i32, 1), b.memory("x", f32, 30), b.memory("y", f32, 30, access="rw")
    b.memory("sum", f32, 1, access="w")
    total = b.var(f32, init=0.5)
    with b.loop(0, b.min(b.cast(b.load("n", 0), dtype=b.index), 30)) as k:
        b.store("y", k, b.mul(b.load("x", k), 2.0))
        b.set(total, b.add(b.get(total), b.load("y", k)))
    b.store("sum", 0, b.get(total))
    kernel = vectorize_loops(b.kernel(), Limits(256, 16, True))
    verify(kernel)
    assert [i.args[2].number for i in kernel.body if i.opcode == "loop"] == [8, 1]
    x, y, result = (np.arange(1.0, 31.0, dtype=np.float32), np.full(30, -1, np.float32),
                    np.zeros(1, np.float32))
    interpret(kernel, {"n": np.array([turns], np.int32), "x": x, "y": y, "sum": result})
    np.testing.assert_array_equal(y, [*2 * x[:turns], *[-1.0] * (30 - turns)])
    assert result[0] == 0.5 + 2 * x[:turns].sum()


@pytest.mark.parametrize("start", [5, 40])
def test_a_loop_that_begins_behind_its_end(start: int) -> None:
    b = Builder("behind", exact=False)
    _ = b.memory("n", i32, 2), b.memory("x", f32, 30), b.memory("y", f32, 1, access="w")
    total = b.var(f32, init=0.0)
    first, end = (b.min(b.max(b.cast(b.load("n", k), dtype=b.index), 0), most)
                  for k, most in enumerate((40, 10)))
    with b.loop(first, end) as k:
        b.set(total, b.add(b.get(total), b.load("x", b.mul(k, 3))))
    b.store("y", 0, b.get(total))
    y = np.ones(1, np.float32)
    interpret(in_lanes(b), {"n": np.array([start, 3], np.int32), "x": np.ones(30, np.float32), "y": y})
    assert y[0] == 0


@pytest.mark.parametrize(("turns", "steps"), [(15, [1]), (16, [8, 1]), (70, [8, 1])])
def test_loops_of_a_known_number_of_iterations(turns: int, steps: list[int]) -> None:
    """Such as those that clear a table. Short ones stay as they are, and so do sums."""
    b = Builder("cleared", exact=False)
    _ = b.memory("y", f32, 80, access="rw")
    with b.loop(0, turns) as i:
        b.store("y", i, b.const(2.0, f32))
    kernel = vectorize_loops(b.kernel(), Limits(256, 16, True))
    verify(kernel)
    assert [i.args[2].number for i in kernel.body if i.opcode == "loop"] == steps
    y = np.full(80, -1, np.float32)
    interpret(kernel, {"y": y})
    np.testing.assert_array_equal(y, [*[2.0] * turns, *[-1.0] * (80 - turns)])
    b = Builder("total", exact=False)
    _ = b.memory("x", f32, 80), b.memory("y", f32, 1, access="w")
    total = b.var(f32, init=0.0)
    with b.loop(0, turns) as i:
        b.set(total, b.add(b.get(total), b.load("x", i)))
    b.store("y", 0, b.get(total))
    assert [i.args[2].number for i in vectorize_loops(b.kernel(), LANES).body if i.opcode == "loop"] == [1]


@zt.kernel
def scaled(counts, places, x, factors):
    """A factor that only rows with elements have."""
    out = np.empty(counts.shape[0], x.dtype)
    for _block, thread in zt.threads(1, counts.shape[0]):
        total = 0.0
        for k in range(counts[thread]):
            total += x[places[k]] * factors[(counts[thread] - 1) * 100000000]
        out[thread] = total
    return out


@pytest.mark.parametrize("level", HERE)
def test_a_loop_without_iterations_does_not_read_what_all_of_them_would(level: str) -> None:
    counts, places = np.array([0, 1, 0, 1], np.int32), np.arange(8, dtype=np.int32)
    x, factors = np.arange(2.0, 10.0, dtype=np.float32), np.array([3.0], np.float32)
    got = scaled.on("cpu" if level == HERE[-1] else f"cpu:{level}")(counts, places, x, factors)
    np.testing.assert_array_equal(got, [0.0, 6.0, 0.0, 6.0])
