"""Gradients of `scan(checkpoint=)`: every bit is that of the gradient that keeps all values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from tests.cases import device_programs
from tests.cases.available import COMPUTING
from tests.parity import HERE, NARROW, SUBGROUPS, Arrays, C, Job, Module, interpreted
from ztorch import ops
from ztorch.dtypes import DType, f16, f32
from ztorch.graph import loop_totals
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits

STEPS, BATCH, WIDTH = 11, 2, 3
SIZES = (1, 4, 7, 10)  # of segments
ONE = SIZES[1:2]
Cell = Callable[..., Value]


def lstm(x: Value, w: Value, u: Value, b: Value, h: Value, size: int | None, reverse: bool) -> Value:
    """Weights and a bias that all steps share, and that the loss reads, too."""
    n = h.shape[-1]

    def turn(state: tuple[Value, Value], row: Value) -> tuple[tuple[Value, Value], Value]:
        h, c = state
        z = row @ w + h @ u + b
        i, f, g, o = (z[:, k * n:(k + 1) * n] for k in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return (h, c), h

    (last, c), every = ops.scan(turn, (h, h * 0.5), x, reverse=reverse, checkpoint=size)
    return ops.sum(every * every) + ops.sum(last * c) + ops.sum(w * w)


def gru(x: Value, w: Value, u: Value, b: Value, h: Value, size: int | None, reverse: bool) -> Value:
    """Slopes of two products that have columns in common, and sums of each step."""
    n = h.shape[-1]

    def turn(h: Value, row: Value) -> tuple[Value, Value]:
        p, q = row @ w[:, :3 * n] + b[:3 * n], h @ u[:, :3 * n]
        z, r = (ops.sigmoid(p[:, k * n:(k + 1) * n] + q[:, k * n:(k + 1) * n]) for k in range(2))
        h = z * h + (1.0 - z) * ops.tanh(p[:, 2 * n:] + r * q[:, 2 * n:]) * b[0]
        return h, h * w[0, 0]

    last, every = ops.scan(turn, h, x, reverse=reverse, checkpoint=size)
    return ops.sum(every * every) + ops.sum(last)


def nested(x: Value, w: Value, u: Value, b: Value, h: Value, size: int | None, reverse: bool) -> Value:
    """A loop in the loop, in segments of its own."""
    n = h.shape[-1]

    def turn(h: Value, row: Value) -> tuple[Value, Value]:
        return ops.scan(lambda h, k: (ops.tanh(row @ w[:, :n] + h @ u[:, :n] * k + b[:n]),) * 2, h,
                        ops.cast(ops.iota((5,), 0), x.dtype), checkpoint=size and min(size, 2))

    last, every = ops.scan(turn, h, x, reverse=reverse, checkpoint=size)
    return ops.sum(every * every) + ops.sum(last)


def jobs(cell: Cell, reverse: bool, sizes: Sequence[int] = ONE, d: DType = f32) -> list[Job]:
    """The gradient without segments, and in those of each size."""
    random = np.random.default_rng(3)
    shapes = ((STEPS, BATCH, WIDTH), (WIDTH, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH,), (BATCH, WIDTH))
    arrays = [random.normal(0, 0.5, shape) for shape in shapes]
    made = []
    for size in (None, *sizes):
        leaves = [leaf("input", f"v{k}", shape, d) for k, shape in enumerate(shapes)]
        slopes = gradients(cell(*leaves, size, reverse), leaves)
        made.append(Job(Graph({f"d{k}": g for k, g in enumerate(slopes)}),
                        dict(zip(leaves, arrays, strict=True)), f"{cell.__name__} in segments of {size}"))
    return made


def need_equal(every: Sequence[Job], results: Iterable[Arrays]) -> None:
    first, *others = results
    for job, got in zip(every[1:], others, strict=True):
        for number, (a, b) in enumerate(zip(got, first, strict=True)):
            assert np.array_equal(a, b), f"gradient {number}: {job.label}"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are those of groups of 4 steps and a rest of 3, not one sum of all steps."""
    monkeypatch.setattr(loop_totals, "GROUP_ROWS", 4 * BATCH)


def check(every: Sequence[Job]) -> None:
    """On any number of threads."""
    module = Module(every, HERE[-1])
    for threads in (1, 2, 3):
        need_equal(every, [module.run(k, threads) for k in range(len(every))])
    for got, exact in zip(module.run(1), every[0].oracle(), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cell", "reverse"), [(lstm, False), (gru, True), (nested, False)])
def test_sums_of_groups_have_the_same_bits(cell: Cell, reverse: bool, groups: None) -> None:
    check(jobs(cell, reverse, SIZES))


def test_one_sum_of_all_steps_has_the_same_bits() -> None:
    check(jobs(gru, False, ONE))


@pytest.mark.parametrize("target", [*HERE[:-1], *C])
def test_on_other_levels(target: str, groups: None) -> None:
    every = jobs(lstm, False)
    module = Module(every, target)
    need_equal(every, [module.run(k) for k in range(len(every))])


def test_in_16_bits(groups: None) -> None:
    every = jobs(gru, False, ONE, f16)
    module = Module(every, HERE[-1])
    need_equal(every, [module.run(k) for k in range(len(every))])


@pytest.mark.parametrize("limits", [NARROW, SUBGROUPS], ids=["narrow", "subgroups"])
def test_on_interpreted_machines(limits: Limits, groups: None) -> None:
    every = jobs(gru, True)
    need_equal(every, [interpreted(job, limits) for job in every])


@pytest.mark.parametrize("backend", COMPUTING)
def test_on_devices(backend: str, groups: None) -> None:
    every = jobs(lstm, True)
    module = device_programs.Module(every, backend)
    need_equal(every, [module.run(k) for k in range(len(every))])


def test_only_states_where_segments_begin_are_kept() -> None:
    """Of the others, one segment's at a time: outputs of all steps, their slopes, and little more."""
    x, w, u, b, h = (leaf("input", f"v{k}", shape, f32) for k, shape in enumerate(
        [(640, 16, 8), (8, 32), (8, 32), (32,), (16, 8)]))
    arenas = []
    for size in (None, 32):
        slopes = gradients(lstm(x, w, u, b, h, size, False), [w, u, b])
        job = Job(Graph({f"d{k}": g for k, g in enumerate(slopes)}), {})
        for v in (x, w, u, b, h):
            job.feeds[v] = np.zeros(v.shape)
        arenas.append(Module([job], HERE[-1]).compiled.spec.arena_bytes / (4 * x.size))
    assert arenas[1] < 2.7 < 6 < arenas[0]


def test_states_that_only_segments_of_an_inner_loop_need() -> None:
    """The gradient reads some states of a loop in a loop: nothing keeps the others."""
    a, w = leaf("input", "a", (2, 3), f32), leaf("input", "w", (3, 3), f32)

    def outer(s: Value, _: None) -> tuple[Value, Value]:
        (p, _, _), _ = ops.scan(
            lambda t, _: ((t[0], ops.broadcast_to(s, (3, 3)), t[2] * t[2]), None), (a, w, w[:1]),
            length=5, checkpoint=3)
        return ops.sum(p, axis=0), w * 0.5

    _, kept = ops.scan(outer, a[0], length=2)
    slopes = gradients(ops.sum(kept * kept), [a, w])
    weights = np.arange(9.0).reshape(3, 3)
    job = Job(Graph({"a": slopes[0], "w": slopes[1]}), {a: np.ones((2, 3)), w: weights})
    for got in (interpreted(job, NARROW), Module([job], HERE[-1]).run(0)):
        np.testing.assert_array_equal(got[0], np.zeros((2, 3)))
        np.testing.assert_array_equal(got[1], weights)  # 2 iterations of 2 * (w / 2) / 2
