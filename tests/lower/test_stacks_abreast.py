"""Stacks of a loop side by side: the gates of an LSTM in rows, under the rows of their gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import Job, agree, interpreted, plan_of
from tests.workers_apart import run_apart, skipped_inside
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.machines.processors import processor

ZEN4 = replace(TARGETS["avx512"].limits, processor=processor("zen4"))


def _fed(graph: Graph) -> Job:
    random = np.random.default_rng(3)
    return Job(graph, {v: random.uniform(-0.5, 0.5, v.shape).astype(np.float32)
                       for v in graph.leaves("input")})


def _lstm(rows: int, units: int) -> Job:
    """Its last state, and gradients of its weights and its sequence."""
    xs, u, h = (leaf("input", name, shape, f32) for name, shape in (
        ("xs", (5, rows, units)), ("u", (units, 4 * units)), ("h", (rows, units))))
    w = leaf("input", "w", (units, 4 * units), f32)

    def step(states: tuple[Value, Value], x: Value) -> tuple[tuple[Value, Value], None]:
        h, c = states
        z = ops.matmul(h, u) + ops.matmul(x, w)
        i, f, g, o = (z[:, k * units:(k + 1) * units] for k in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return (ops.sigmoid(o) * ops.tanh(c), c), None

    (last, _), _ = ops.scan(step, (h, h * 0.5), xs)
    slopes = gradients(ops.sum(last * last), [u, w, h, xs])
    return _fed(Graph({"y": last, **{f"g{k}": g for k, g in enumerate(slopes)}}))


@pytest.mark.parametrize(("rows", "units"), [(16, 32), (4, 16), (6, 5)])
def test_gates_and_their_gradients_share_rows(rows: int, units: int) -> None:
    job = _lstm(rows, units)
    agree(job, interpreted(job, ZEN4), terms=50)
    agree(job, interpreted(job, ZEN4, workers=2, backwards=True), terms=50)
    agree(job, run_apart(job, ZEN4), terms=50)


def test_two_workers_train_an_lstm_without_meeting() -> None:
    """Two kernels forward and two back, since none puts the gradients of gates together."""
    plan = plan_of(_lstm(16, 32).alone("j"), ZEN4)[0]
    assert plan.apart == 2
    assert len(skipped_inside(plan)) == 4 and all(skipped_inside(plan))


def _stored_over(swapped: bool, flipped: bool, again: bool) -> Job:
    """A loop stores two stacks over its sequence, and a second one two others over them: where it
    has read them, elsewhere, or where it reads `again`."""
    n = 16
    x, w, v = (leaf("input", name, shape, f32) for name, shape in (
        ("x", (6, 4, 2 * n)), ("w", (n, 2 * n)), ("v", (n, n))))

    def first(h: Value, row: Value) -> tuple[Value, tuple[Value, Value]]:
        z = ops.tanh(h @ w + row)
        a, b = ops.sin(z[:, :n]), ops.cos(z[:, n:])
        return ops.tanh(a * b), (a, b)

    def second(h: Value, rows: tuple[Value, Value]) -> tuple[Value, Value]:
        a, b = (ops.flip(r, axis=0) if flipped else r for r in rows)
        a, b = (b, a) if swapped else (a, b)
        p, q = ops.tanh(a + h), ops.tanh(b - h)
        if again:
            q = ops.tanh(ops.tanh(p @ v + a * b) @ v)
        stored = ops.concat(p, q, axis=-1)
        return ops.tanh(stored @ ops.transpose(w)), stored

    h, stacks = ops.scan(first, ops.full((4, n), 0.1, f32), ops.tanh(x))
    last, stored = ops.scan(second, h, stacks, reverse=True)
    return _fed(Graph({"last": last, "sum": ops.sum(stored * 2.0, axis=(0, 1))}))


@pytest.mark.parametrize(("swapped", "flipped", "again"), [
    (False, False, False), (True, False, False), (False, True, False), (False, False, True)])
def test_nothing_is_overwritten_that_is_still_read(swapped: bool, flipped: bool,
                                                   again: bool) -> None:
    job = _stored_over(swapped, flipped, again)
    agree(job, interpreted(job, ZEN4), terms=50)
    agree(job, interpreted(job, ZEN4, workers=3, backwards=True), terms=50)
