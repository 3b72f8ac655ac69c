"""Grids, workgroups, barriers, subgroups, atomics, and the races that lockstep would hide."""

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


def tiled_gemm(m: int, n: int, k: int, tile: int = 8, barriers: tuple[bool, bool] = (True, True),
               guard: bool = True) -> Kernel:
    """C = A B, a tile of A and of B in shared memory at a time; the edges are masked."""
    b = Builder("tiled", index=i32)
    b.workgroup = (tile, tile, 1)
    b.memory("A", f32, m * k)
    b.memory("B", f32, k * n)
    b.memory("C", f32, m * n, access="w")
    b.memory("left", f32, tile * tile, space="shared", access="rw")
    b.memory("right", f32, tile * tile, space="shared", access="rw")
    with (b.loop(0, -(-m // tile), kind="grid", axis=1) as by,
          b.loop(0, -(-n // tile), kind="grid", axis=0) as bx,
          b.loop(0, tile, kind="block", axis=1) as ty,
          b.loop(0, tile, kind="block", axis=0) as tx):
        row, col = b.add(b.mul(by, tile), ty), b.add(b.mul(bx, tile), tx)
        place = b.add(b.mul(ty, tile), tx)
        acc = b.var(f32, init=0.0)
        with b.loop(0, k, tile) as t:
            x, y = b.add(t, tx), b.add(t, ty)
            in_a = b.and_(b.lt(row, m), b.lt(x, k)) if guard else None
            in_b = b.and_(b.lt(y, k), b.lt(col, n))
            b.store("left", place, b.load("A", b.add(b.mul(row, k), x), mask=in_a))
            b.store("right", place, b.load("B", b.add(b.mul(y, n), col), mask=in_b))
            if barriers[0]:
                b.barrier()
            for i in range(tile):
                product = b.mul(b.load("left", b.mul(ty, tile), off=i),
                                b.load("right", tx, off=i * tile))
                b.set(acc, b.add(b.get(acc), product))
            if barriers[1]:
                b.barrier()
        inside = b.and_(b.lt(row, m), b.lt(col, n))
        with b.if_(inside):
            b.store("C", b.add(b.mul(row, n), col), b.get(acc))
    return b.kernel()


def gemm_buffers(m: int, n: int, k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"A": rng.random((m, k), np.float32), "B": rng.random((k, n), np.float32),
            "C": np.zeros((m, n), np.float32)}


@pytest.mark.parametrize("size", [(16, 16, 16), (19, 13, 21), (3, 40, 1)])
def test_tiled_gemm(size: tuple[int, int, int]) -> None:
    kernel, x = tiled_gemm(*size), gemm_buffers(*size)
    verify(kernel)
    interpret(kernel, x)
    np.testing.assert_allclose(x["C"], x["A"] @ x["B"], rtol=1e-5)


@pytest.mark.parametrize("barriers", [(False, True), (True, False)])
def test_a_missing_barrier_is_a_race(barriers: tuple[bool, bool]) -> None:
    kernel, x = tiled_gemm(19, 13, 21, barriers=barriers), gemm_buffers(19, 13, 21)
    with pytest.raises(InterpretError, match=r"race on (left|right)|(left|right).*never written"):
        interpret(kernel, x)


def test_races_that_only_the_detector_finds() -> None:
    kernel, x = tiled_gemm(19, 13, 21, barriers=(True, False)), gemm_buffers(19, 13, 21)
    interpret(kernel, x, races=False)
    np.testing.assert_allclose(x["C"], x["A"] @ x["B"], rtol=1e-5)


def test_a_removed_guard_is_out_of_bounds() -> None:
    with pytest.raises(InterpretError, match=r"tiled.*load.*A\[\d+\] is out of bounds: 399"):
        interpret(tiled_gemm(19, 13, 21, guard=False), gemm_buffers(19, 13, 21))


def tree(n: int, barrier: bool = True, divergent: bool = False) -> Builder:
    b = Builder("tree")
    b.workgroup = (n, 1, 1)
    b.memory("x", f32, 4 * n)
    b.memory("y", f32, 4, access="w")
    b.memory("s", f32, n, space="shared", access="rw")
    t, g = b.identity("block_id"), b.identity("grid_id")
    b.store("s", t, b.load("x", b.add(b.mul(g, n), t)))
    half = n // 2
    while half:
        if barrier:
            b.barrier()
        with b.if_(b.lt(t, half)):
            b.store("s", t, b.add(b.load("s", t), b.load("s", t, off=half)))
            if divergent:
                b.barrier()
        half //= 2
    with b.if_(b.eq(t, 0)):
        b.store("y", g, b.load("s", t))
    return b


def test_tree_reduction() -> None:
    kernel = tree(32).kernel()
    verify(kernel)
    x, y = np.arange(128, dtype=np.float32), np.zeros(4, np.float32)
    interpret(kernel, {"x": x, "y": y}, grid=(4, 1, 1))
    assert y.tolist() == x.reshape(4, 32).sum(1).tolist()


def test_tree_reduction_without_barriers() -> None:
    with pytest.raises(InterpretError, match=r"tree.*race on s\[\d+\]"):
        interpret(tree(32, barrier=False).kernel(), {"x": np.zeros(128, np.float32),
                                                     "y": np.zeros(4, np.float32)}, grid=(4, 1, 1))


def test_divergent_barrier() -> None:
    with pytest.raises(InterpretError, match=r"tree, instruction \d+ \(barrier\): divergent"):
        interpret(tree(32, divergent=True).kernel(),
                  {"x": np.zeros(128, np.float32), "y": np.zeros(4, np.float32)}, grid=(4, 1, 1))


def test_subgroups() -> None:
    b = Builder("subgroups")
    b.workgroup = (16, 1, 1)
    b.memory("swapped", i32, 32, access="w")
    at = b.add(b.mul(b.identity("grid_id"), 16), b.identity("block_id"))
    x = b.cast(at, dtype=i32)
    b.store("swapped", at, b.shuffle_xor(x, 1))
    kernel = b.kernel()
    verify(kernel)
    y = {"swapped": np.zeros(32, np.int32)}
    interpret(kernel, y, grid=(2, 1, 1), subgroup=8)
    assert (y["swapped"] == np.arange(32) ^ 1).all()
    with pytest.raises(InterpretError, match="not a multiple of the subgroup 32"):
        interpret(kernel, y, grid=(2, 1, 1), subgroup=32)


def test_barriers_do_not_order_workgroups() -> None:
    b = Builder("across")
    b.memory("y", f32, 4, access="rw")
    g = b.identity("grid_id")
    b.store("y", g, b.const(1.0, f32))
    b.barrier()
    b.load("y", b.sub(3, g))
    kernel = b.kernel()
    verify(kernel)
    with pytest.raises(InterpretError, match="race on y"):
        interpret(kernel, {"y": np.zeros(4, np.float32)}, grid=(4, 1, 1))


def test_one_of_many_readers_in_other_workgroups_is_remembered() -> None:
    b = Builder("readers")
    b.memory("y", f32, 1, access="rw")
    b.load("y", 0)
    b.barrier()
    with b.if_(b.eq(b.identity("grid_id"), 3)):  # the last reader, but not the only one
        b.store("y", 0, b.const(1.0, f32))
    verify(b.kernel())
    with pytest.raises(InterpretError, match=r"race on y\[0\]"):
        interpret(b.kernel(), {"y": np.zeros(1, np.float32)}, grid=(4, 1, 1))


def test_all_threads_on_one_element_race() -> None:
    b = Builder("same")
    b.workgroup = (4, 1, 1)
    b.memory("y", f32, 1, access="w")
    b.store("y", 0, b.const(1.0, f32))
    with pytest.raises(InterpretError, match=r"race on y\[0\]"):
        interpret(b.kernel(), {"y": np.zeros(1, np.float32)})


def test_grid_loops_mean_the_same_in_any_launch() -> None:
    b = Builder("grid")
    b.memory("y", i64, 60, access="w")
    with b.loop(0, 5, kind="grid", axis=1) as i, b.loop(0, 12, kind="grid") as j:
        b.store("y", b.add(b.mul(i, 12), j), b.mul(i, j))
    kernel = b.kernel()
    verify(kernel)
    want = np.multiply.outer(np.arange(5), np.arange(12)).reshape(-1)
    for grid in (None, (1, 1, 1), (12, 5, 1), (7, 2, 1), (20, 8, 1)):
        y = np.full(60, -1)
        interpret(kernel, {"y": y}, grid=grid)
        assert (y == want).all(), grid


def test_threads_with_different_trip_counts() -> None:
    b = Builder("ragged")
    b.workgroup = (8, 1, 1)
    b.memory("y", i64, 8, access="w")
    t = b.identity("block_id")
    total = b.var(i64, init=0)
    with b.loop(0, t) as i:
        b.set(total, b.add(b.get(total), i))
    b.store("y", t, b.get(total))
    y = np.zeros(8, np.int64)
    run(b, y=y)
    assert y.tolist() == [0, 0, 1, 3, 6, 10, 15, 21]


def test_workers_share_a_loop() -> None:
    b = Builder("share")
    b.memory("y", i64, 10, access="w")
    first = b.identity("worker")
    with b.loop(0, 10) as i, b.if_(b.eq(b.rem(i, b.identity("workers")), first)):
        b.store("y", i, b.mul(i, i))
    kernel = b.kernel()
    verify(kernel)
    for workers in (1, 3, 16):
        y = np.zeros(10, np.int64)
        interpret(kernel, {"y": y}, workers=workers)
        assert y.tolist() == [i * i for i in range(10)]


def test_trips_of_a_parallel_loop_must_not_touch_each_other() -> None:
    b = Builder("neighbors")
    b.memory("y", f32, 9, access="rw")
    with b.loop(0, 8, kind="parallel") as i:
        b.store("y", i, b.load("y", i, off=1))
    verify(b.kernel())
    with pytest.raises(InterpretError, match=r"race on y\[1\]"):
        interpret(b.kernel(), {"y": np.zeros(9, np.float32)})
