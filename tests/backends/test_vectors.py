"""Neighbors that are loaded or stored at once, on every device that is here: aligned or not, beside elements
loaded or written one by one, and in products that do all of that."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tests.cases.available import COMPUTING, device
from tests.cases.covering import among_devices, share
from tests.cases.device_programs import Module, all_agree, run_kernels
from tests.cases.grid import ELEMENTWISE, REDUCING, job
from tests.cases.grouping import together
from tests.cases.vectors import loads, stores
from tests.parity import Job, agree
from ztorch import ops
from ztorch.dtypes import ALL, DType, bf16, boolean, f16, f32, f64, i8, i32, i64, u8
from ztorch.errors import Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.workgroups import threads, workgroups

everywhere = pytest.mark.parametrize("backend", COMPUTING)


def by_dtype(*others: DType) -> list[Any]:
    """float32 on every device. Each other dtype on one of those that a processor plays: loads and stores
    of all dtypes are tested on every device below."""
    return [pytest.param(*p.values, id="{}-{!r}".format(*p.values),
                         marks=p.marks if p.values[1] is f32 else (*p.marks, pytest.mark.slow))
            for p in among_devices((f32, *others), (f32,))]


@together(by="backend")
@everywhere
@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("d", [pytest.param(d, marks=() if d in (f32, i32) else pytest.mark.slow)
                               for d in ALL if d is not boolean], ids=repr)
def test_loads(backend: str, d: DType, lanes: int) -> None:
    device(backend)
    rng = np.random.default_rng(0)
    want = {"x": rng.integers(1, 100, 32).astype(d.numpy),
            "shifted": rng.integers(1, 100, 33).astype(d.numpy),
            "y": np.zeros(16 * lanes, d.numpy), "z": np.ones(8, d.numpy)}
    got = {n: a.copy() for n, a in want.items()}
    try:
        run_kernels([loads(d, lanes)], [got], backend)
    except Unsupported as error:
        assert backend in str(error) and d not in (f32, i32)
        return
    interpret(loads(d, lanes), want)
    for name, w in want.items():
        np.testing.assert_array_equal(got[name], w, err_msg=name)


@together(by="backend")
@everywhere
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("d", [pytest.param(d, marks=() if d in (f32, i32) else pytest.mark.slow)
                               for d in ALL if d is not boolean], ids=repr)
def test_stores(backend: str, d: DType, aligned: bool) -> None:
    device(backend)
    want = {"x": np.arange(1, 33).astype(d.numpy), "y": np.zeros(36, d.numpy)}
    got = {n: a.copy() for n, a in want.items()}
    try:
        run_kernels([stores(d, aligned)], [got], backend)
    except Unsupported as error:
        assert backend in str(error) and d not in (f32, i32)
        return
    interpret(stores(d, aligned), want)
    np.testing.assert_array_equal(got["y"], want["y"])


@pytest.mark.parametrize(("backend", "d"), by_dtype(f16, bf16, f64, i8, u8, i32, i64))
def test_elementwise(backend: str, d: DType) -> None:
    few = ("aligned parts", "other parts", "transposed", "compared")  # which mean the same for all
    made = [ELEMENTWISE[name] for name in (ELEMENTWISE if d is f32 else few)]
    all_agree(backend, [job(make, *shapes, d=d) for make, *shapes in made], implicit_simd=False)


@pytest.mark.parametrize(("backend", "d"), by_dtype(f16, bf16, f64, i32, i64))
def test_reducing(backend: str, d: DType) -> None:
    few = ("columns of few", "between", "two axes", "parts of rows", "other parts", "columns of any")
    all_agree(backend, [job(*REDUCING[name], d=d)
                        for name in (REDUCING if d is f32 else few)], implicit_simd=False)


@everywhere
def test_states_are_updated_in_place(backend: str) -> None:
    """Adam's step, three times: weights and moments are read and written at once, in place."""
    device(backend)
    rng = np.random.default_rng(1)
    x = leaf("input", "x", (260, 128), f32)
    w, m, v = (leaf("state", n, x.shape, f32, np.zeros(x.shape)) for n in "wmv")
    m2, v2 = 0.9 * m + 0.1 * x, 0.99 * v + 0.01 * x * x
    one = Job(Graph({"y": ops.sum(w)}, {"w": w - 0.1 * m2 / (ops.sqrt(v2) + 1e-3), "m": m2, "v": v2}),
              {x: rng.normal(size=x.shape), w: rng.normal(size=x.shape), m: rng.normal(size=x.shape),
               v: rng.uniform(1, 2, size=x.shape)})
    module = Module([one], backend, implicit_simd=False)
    for _ in range(2):
        agree(one, module.run(0), terms=x.size)


@together(by="backend")
@everywhere
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("lanes", [2, 4])
def test_values_of_many_threads_are_read_at_once(backend: str, lanes: int, space: str) -> None:
    """Each thread writes one element; in the second half of the turns they are far apart. No element
    of a neighbor may be lost."""
    device(backend)
    n, turns = 128, 16
    b = Builder("written", i32)
    b.memory("y", f32, n * turns, access="w")
    b.memory("x", f32, n, space, "rw")
    with workgroups(b, 1, GridLimits()) as _, threads(b, n) as t, b.loop(0, turns) as turn:
        far = b.add(b.mul(b.rem(t, 4), n // 4), b.div(t, 4))
        place = b.select(b.lt(turn, turns // 2), t, far)
        b.store("x", place, b.cast(b.add(b.mul(turn, n), place), dtype=f32))
        b.barrier()
        first = b.mul(b.rem(t, n // lanes), lanes)
        many = b.load("x", first, lanes=lanes, align=lanes * 4)
        total = b.extract(many, 0)
        for k in range(1, lanes):
            total = b.add(b.mul(total, 2.0), b.extract(many, k))
        b.store("y", b.add(b.mul(turn, n), t), total)
        b.barrier()
    got = {"y": np.zeros(n * turns, np.float32), "x": np.zeros(n, np.float32)}
    want = {name: a.copy() for name, a in got.items()}
    run_kernels([b.kernel()], [got], backend)
    interpret(b.kernel(), want)
    np.testing.assert_array_equal(got["y"], want["y"])


def twice(x: Value) -> Value:
    """An operand that the epilogue reads as well, element by element."""
    return ops.matmul(x, ops.transpose(x)) + x


def left(x: Value, y: Value) -> Value:
    return ops.matmul(ops.transpose(x), y)


PRODUCTS = {
    "whole": (ops.matmul, (64, 64), (64, 64)), "edges": (ops.matmul, (72, 36), (36, 132)),
    "odd": (ops.matmul, (33, 35), (35, 37)), "even": (ops.matmul, (34, 38), (38, 42)),
    "even in depth": (lambda x, y: ops.matmul(x, ops.transpose(y)), (36, 46), (44, 46)), "odd rows": (ops.matmul, (33, 36), (36, 40)),
    "odd columns": (ops.matmul, (36, 40), (40, 33)), "deep": (ops.matmul, (4, 600), (600, 8)),
    "batches": (ops.matmul, (3, 20, 24), (3, 24, 28)), "itself": (twice, (68, 68)),
    "left": (left, (40, 72), (40, 68)), "left odd": (left, (41, 70), (41, 66)),
    "right": (lambda x, y: ops.matmul(x, ops.transpose(y)), (68, 44), (72, 44)),
    "both": (lambda x, y: ops.transpose(ops.matmul(y, x)), (44, 68), (72, 44)),
    "from 4": (lambda x, y: ops.matmul(x[:, 4:44], y[4:44]), (36, 48), (48, 36)),
    "from 1": (lambda x, y: ops.matmul(x[:, 1:41], y[1:41, 3:]), (36, 48), (48, 39)),
    "a row for all": (lambda x, y, z: ops.relu(ops.matmul(x, y) + z), (20, 24), (24, 132), (132,)),
    "windows": (lambda x, w: ops.conv2d(x, w, padding="same"), (2, 9, 7, 8), (3, 3, 8, 12)),
    "even channels": (lambda x, w: ops.conv2d(x, w), (2, 9, 8, 6), (3, 3, 6, 10)),
    "odd channels": (lambda x, w: ops.conv2d(x, w), (2, 9, 8, 5), (3, 3, 5, 6))}


OTHERS = (f16, bf16, f64, i32)


@pytest.mark.parametrize(("backend", "d"), by_dtype(*OTHERS))
def test_products(backend: str, d: DType) -> None:
    """All in float32; each other dtype takes half of them, other ones than the next."""
    chosen = list(PRODUCTS.values()) if d is f32 else share(list(PRODUCTS.values()), OTHERS.index(d), of=2)
    jobs = []
    for make, *shapes in chosen:
        with suppress(TypeError):  # convolutions and ReLU are of floats
            jobs.append(job(make, *shapes, d=d))
    assert len(jobs) >= len(chosen) - 4
    all_agree(backend, jobs, implicit_simd=False)


@everywhere
def test_weights_are_written_where_their_products_read(backend: str) -> None:
    """A step down the gradient: read at once by one kernel, written one by one by another, the
    rows of a state in the arena's midst."""
    device(backend)
    x, before = leaf("input", "x", (20, 36), f32), leaf("state", "b", (7,), f32, np.zeros(7))
    w = leaf("state", "w", (36, 44), f32, np.zeros((36, 44)))
    y = ops.matmul(x, w)
    again = ops.matmul(ops.transpose(x), y * ops.sum(before))
    rng = np.random.default_rng(1)
    one = Job(Graph({"y": y}, {"w": w - 0.01 * again, "b": before + 1.0}),
              {x: rng.normal(size=x.shape), w: rng.normal(size=w.shape), before: np.ones(7)})
    module = Module([one], backend, implicit_simd=False)
    for _ in range(3):
        agree(one, module.run(0), terms=36)
