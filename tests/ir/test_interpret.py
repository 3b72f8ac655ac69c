"""Every opcode against plain Python; memory, threads and barriers against what must be refused."""

from __future__ import annotations

import itertools
import math
import time
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.ir import oracle
from ztorch.dtypes import (
    ALL,
    DType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    from_storage,
    i8,
    i32,
    i64,
    to_storage,
    u8,
    u16,
    u64,
)
from ztorch.errors import InterpretError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel, Operand
from ztorch.ir.opcodes import OPCODES, SCALAR
from ztorch.ir.verify import verify

NUMBERS = [d for d in ALL if d.kind != "b"]


def run(b: Builder, /, **buffers: np.ndarray) -> None:
    kernel = b.kernel()
    verify(kernel)
    interpret(kernel, buffers)


def edges(d: DType) -> list[Any]:
    """Numbers of a dtype at which opcodes go wrong."""
    if d.kind == "b":
        return [False, True]
    if d.is_int:
        low = -(1 << (d.bits - 1)) if d.kind == "s" else 0
        high = low + (1 << d.bits) - 1
        whole = (0, 1, 2, 3, 7, -1, -2, -7, 100, low, low + 1, high, high - 1, high // 2)
        return [n for n in whole if low <= n <= high]
    digits, largest = oracle.PRECISION[d.name]
    huge = math.ldexp(2.0 - math.ldexp(1.0, 1 - digits), largest)
    tiny = math.ldexp(1.0, 1 - largest)
    some = [0.0, 1.0, 0.5, 1.5, 2.5, 3.75, 1 / 3, 10.7, 100.0, huge, tiny,
            math.ldexp(tiny, -2), math.inf]
    return [oracle.rounded(d, s * x) for x in some for s in (1.0, -1.0)] + [math.nan]


def array(values: list[Any], d: DType) -> np.ndarray:
    """Python numbers as they lie in memory; bool as u8."""
    if d.kind == "b":
        return np.array(values, np.uint8)
    return to_storage(d, np.array(values, d.working))


def apply(opcode: str, sources: list[DType], result: DType, rows: list[tuple],
          lanes: int = 16) -> list[Any]:
    """An opcode on every row of operands, in full vectors and one masked remainder."""
    n = len(rows)
    b = Builder("apply")
    buffers = {}
    for name, d, column in zip("abc", sources, zip(*rows, strict=True), strict=False):
        b.memory(name, u8 if d == boolean else d, n)
        buffers[name] = array(list(column), d)
    b.memory("y", u8 if result == boolean else result, n, access="w")

    def vector(i: Operand | int, off: int, mask: Operand | None) -> None:
        xs = [b.load(name, i, off, lanes, mask=mask) for name in "abc"[:len(sources)]]
        xs = [b.ne(x, 0) if d == boolean else x for x, d in zip(xs, sources, strict=True)]
        y = b.raw(opcode, result, lanes, tuple(xs))
        b.store("y", i, y, off, mask)

    whole = n - n % lanes
    with b.loop(0, whole, lanes) as i:
        vector(i, 0, None)
    if n % lanes:
        vector(whole, 0, b.lt(b.iota(lanes), n % lanes))
    buffers["y"] = np.zeros(n, u8.numpy if result == boolean else result.numpy)
    run(b, **buffers)
    got = from_storage(result, buffers["y"]) if result != boolean else buffers["y"].astype(bool)
    return got.tolist()


def same(got: Any, want: Any, any_zero: bool = False) -> bool:
    if isinstance(want, float):
        if math.isnan(want):
            return math.isnan(got)
        sign = any_zero or want != 0 or math.copysign(1, got) == math.copysign(1, want)
        return bool(got == want and sign)
    return bool(got == want and type(got) is type(want))


def rows_for(opcode: str, d: DType) -> list[tuple]:
    row, values = OPCODES[opcode], edges(d)
    if opcode == "select":
        return [(c, a, b) for c in (False, True) for a in values for b in values[:3]]
    if opcode in ("shl", "shr"):
        return [(a, b) for a in values for b in (0, 1, d.bits // 2, d.bits - 1)]
    rows = list(itertools.product(values, repeat=row.arity))
    return rows if len(rows) < 800 else Random(0).sample(rows, 800)


def test_the_oracle_knows_every_opcode() -> None:
    assert {*oracle.EXACT, *oracle.NEAR, "cast", "bitcast", "mulhi"} == set(SCALAR)


@pytest.mark.parametrize(("opcode", "d"), [
    (opcode, d) for opcode in oracle.EXACT for d in ALL if d.kind in OPCODES[opcode].kinds], ids=repr)
def test_exact_opcode(opcode: str, d: DType) -> None:
    row, rows = OPCODES[opcode], rows_for(opcode, d)
    result = boolean if row.result == "bool" else d
    sources = [boolean, d, d] if opcode == "select" else [d] * row.arity
    got = apply(opcode, sources, result, rows)
    for operands, g in zip(rows, got, strict=True):
        want = oracle.EXACT[opcode](*operands)
        want = oracle.fit(result, want)
        if opcode == "fma" and d == f64:  # defined as split: two roundings
            want = operands[0] * operands[1] + operands[2]
        assert same(g, want, opcode in ("min", "max")), f"{opcode}{operands} is {want}, not {g}"


@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
@pytest.mark.parametrize("opcode", sorted(oracle.NEAR))
def test_near_opcode(opcode: str, d: DType) -> None:
    rows = rows_for(opcode, d)
    got = apply(opcode, [d] * OPCODES[opcode].arity, d, rows)
    for operands, g in zip(rows, got, strict=True):
        exact = oracle.NEAR[opcode](*operands)
        want = oracle.rounded(d, exact)
        near = math.isfinite(want) and abs(g - want) <= 4 * oracle.ulp(d, want)
        assert same(g, want) or near, f"{opcode}{operands} is {want}, not {g}"


@pytest.mark.parametrize("d", [u8, u16, u64], ids=repr)
def test_mulhi(d: DType) -> None:
    rows = rows_for("mulhi", d)
    assert apply("mulhi", [d, d], d, rows) == [a * b >> d.bits for a, b in rows]


@pytest.mark.parametrize("target", ALL, ids=repr)
@pytest.mark.parametrize("source", ALL, ids=repr)
def test_cast(source: DType, target: DType) -> None:
    rows = [(x,) for x in edges(source)]
    got = apply("cast", [source], target, rows)
    for (x,), g in zip(rows, got, strict=True):
        want = oracle.cast(x, source, target)
        if target == bf16 and source.bits > 32:  # on its way through float32
            want = oracle.rounded(bf16, oracle.cast(x, source, f32))
        assert same(g, want), f"{source!r} {x} as {target!r} is {want}, not {g}"


@pytest.mark.parametrize(("source", "target"), [
    (s, t) for s in NUMBERS for t in NUMBERS if s.bits == t.bits], ids=repr)
def test_bitcast(source: DType, target: DType) -> None:
    rows = [(x,) for x in edges(source) if not math.isnan(x)]
    got = apply("bitcast", [source], target, rows)
    for (x,), g in zip(rows, got, strict=True):
        assert same(g, oracle.from_bits(oracle.bits(x, source), target))


@pytest.mark.parametrize("stored", NUMBERS, ids=repr)
@pytest.mark.parametrize("computed", [f32, bf16, i32, boolean], ids=repr)
def test_memory_converts(stored: DType, computed: DType) -> None:
    values = edges(stored)
    b = Builder("convert")
    b.memory("x", stored, len(values))
    b.memory("y", stored, len(values), access="w")
    with b.loop(0, len(values)) as i:
        b.store("y", i, b.load("x", i, dtype=computed))
    y = array([0] * len(values), stored)
    run(b, x=array(values, stored), y=y)
    for x, got in zip(values, from_storage(stored, y).tolist(), strict=True):
        if computed == bf16 and stored.bits > 32:
            x = oracle.cast(x, stored, f32)
            want = oracle.cast(oracle.rounded(bf16, x), computed, stored)
        else:
            want = oracle.cast(oracle.cast(x, stored, computed), computed, stored)
        assert same(got, want)


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


def test_cpu_gemm_and_its_speed() -> None:
    kernel = cpu_gemm(28, 16, 64)
    verify(kernel)
    rng = np.random.default_rng(0)
    a, b = rng.random((28, 16), np.float32), rng.random((16, 64), np.float32)
    c = np.zeros((28, 64), np.float32)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        interpret(kernel, {"A": a, "B": b, "C": c})
        times.append(time.perf_counter() - start)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert min(times) < 0.1


# -- threads ---------------------------------------------------------------------------------------


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


def test_lockstep_hides_what_only_the_detector_sees() -> None:
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
    for name in ("sum", "top", "swapped"):
        b.memory(name, i32, 32, access="w")
    at = b.add(b.mul(b.identity("grid_id"), 16), b.identity("block_id"))
    x = b.cast(at, dtype=i32)
    b.store("sum", at, b.subgroup("add", x))
    b.store("top", at, b.subgroup("max", x))
    b.store("swapped", at, b.shuffle_xor(x, 1))
    kernel = b.kernel()
    verify(kernel)
    y = {name: np.zeros(32, np.int32) for name in ("sum", "top", "swapped")}
    interpret(kernel, y, grid=(2, 1, 1), subgroup=8)
    x8 = np.arange(32).reshape(4, 8)
    assert (y["sum"] == np.repeat(x8.sum(1), 8)).all()
    assert (y["top"] == np.repeat(x8.max(1), 8)).all()
    assert (y["swapped"] == np.arange(32) ^ 1).all()
    with pytest.raises(InterpretError, match="not whole subgroups of 32"):
        interpret(kernel, y, grid=(2, 1, 1), subgroup=32)


@pytest.mark.parametrize("d", [f16, bf16, f32, f64, i8, i32, i64], ids=repr)
def test_atomics_never_lose_one(d: DType) -> None:
    b = Builder("histogram")
    b.workgroup = (32, 1, 1)
    b.memory("x", i64, 64)
    b.memory("y", d, 4, access="rw")
    at = b.add(b.mul(b.identity("grid_id"), 32), b.identity("block_id"))
    b.atomic_add("y", b.load("x", at), b.const(1, d))
    kernel = b.kernel()
    verify(kernel)
    x = np.arange(64) * 7 % 4
    y = to_storage(d, np.zeros(4, d.working))
    interpret(kernel, {"x": x, "y": y}, grid=(2, 1, 1))
    assert from_storage(d, y).tolist() == np.bincount(x).tolist()


def test_an_atomic_and_a_plain_access_race() -> None:
    b = Builder("mixed")
    b.workgroup = (4, 1, 1)
    b.memory("y", f32, 4, access="rw")
    t = b.identity("block_id")
    b.atomic_add("y", 0, b.const(1.0, f32))
    b.load("y", t)
    with pytest.raises(InterpretError, match=r"race on y\[0\]"):
        interpret(b.kernel(), {"y": np.zeros(4, np.float32)})


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


def test_threads_that_take_different_numbers_of_trips() -> None:
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
    b = Builder("neighbours")
    b.memory("y", f32, 9, access="rw")
    with b.loop(0, 8, kind="parallel") as i:
        b.store("y", i, b.load("y", i, off=1))
    verify(b.kernel())
    with pytest.raises(InterpretError, match=r"race on y\[1\]"):
        interpret(b.kernel(), {"y": np.zeros(9, np.float32)})


# -- what is refused -------------------------------------------------------------------------------


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


def test_uninitialised_shared_memory() -> None:
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


def test_access_is_honoured() -> None:
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
