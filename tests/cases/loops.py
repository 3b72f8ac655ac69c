"""Loops and branches, as functions of values that everything which runs kernels is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import vectorized
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value


@dataclass(frozen=True)
class LoopCase:
    """A function with a loop, and the shapes of its arguments."""

    name: str
    function: Callable[..., Value]
    shapes: tuple[tuple[int, ...], ...]

    def leaves(self, d: DType) -> list[Value]:
        return [leaf("input", f"x{k}", shape, d) for k, shape in enumerate(self.shapes)]

    def feeds(self, leaves: list[Value]) -> dict[Value, Any]:
        rng = np.random.default_rng(len(self.name))
        return {v: rng.uniform(-1, 1, v.shape).astype(v.dtype.numpy) for v in leaves}


def _sums(x: Value) -> Value:
    last, kept = ops.scan(lambda s, r: (s + r, s * r), ops.full(x.shape[1:], 0.5, x.dtype), x)
    return kept + last


def _backwards(x: Value, s: Value) -> Value:
    last, kept = ops.scan(lambda s, r: (ops.tanh(s * 0.5 + r), s), s, x, reverse=True)
    return kept * last


def _gates(x: Value, w: Value, u: Value, h: Value) -> Value:
    """One product before the loop, one in it, two states."""
    def turn(state: tuple[Value, Value], row: Value) -> tuple[tuple[Value, Value], Value]:
        h, c = state
        z = row @ w + h @ u
        n = h.shape[-1]
        i, f, g = (z[:, k * n:(k + 1) * n] for k in range(3))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return (ops.tanh(c), c), ops.tanh(c)

    (last, c), kept = ops.scan(turn, (h, h * 0.5), x)
    return ops.concat(kept, ops.expand_dims(last, 0), ops.expand_dims(c, 0), axis=0)


def _pieces(x: Value, u: Value, h: Value) -> Value:
    """Some columns of two products have one slope, as the gates of a GRU but the last do."""
    def turn(h: Value, row: Value) -> tuple[Value, Value]:
        n = h.shape[-1]
        a, b, c, d = (row[:, k * n:(k + 1) * n] for k in range(4))
        p, q, r, s = ((h @ u)[:, k * n:(k + 1) * n] for k in range(4))
        h = ops.tanh(a + p) * h + ops.tanh(b + q) * ops.sin(c * r) + ops.tanh(d + s)
        return h, h

    last, kept = ops.scan(turn, h, x)
    return kept * last


def _plain(x: Value, u: Value, h: Value) -> Value:
    """A state that a product reads: it cannot be written in place."""
    last, kept = ops.scan(lambda s, row: (ops.tanh(row + s @ u),) * 2, h, x)
    return kept + last


def _nested(x: Value, w: Value) -> Value:
    def outer(s: Value, row: Value) -> tuple[Value, Value]:
        inner, kept = ops.scan(lambda d, r: (d * ops.sin(r) * 0.5 + s * 0.25, d), row, w, reverse=True)
        return inner, ops.sum(kept, axis=0)

    last, kept = ops.scan(outer, w[0], x)
    return kept * last


def _parts(x: Value, u: Value, h: Value) -> Value:
    """The sequence of a loop, in the other direction, is a part of a sequence of the loop outside."""
    def outer(s: Value, part: Value) -> tuple[Value, Value]:
        return ops.scan(lambda s, row: (ops.tanh(row + s @ u),) * 2, s, part, reverse=True)

    last, kept = ops.scan(outer, h, ops.sin(x))
    return kept * last


def _swapped(x: Value) -> Value:
    """States that change places, and one that never changes."""
    (a, b, c), kept = ops.scan(lambda s, r: ((s[1], s[0] + r, s[2]), s[0] * s[2]),
                               (x[0], x[1], x[2]), x)
    return kept + a - b * c


def _shared(x: Value, w: Value) -> Value:
    """A value that all turns share is read as a view, in a sum and where it is broadcast."""
    def turn(s: Value, row: Value) -> tuple[Value, Value]:
        return s + ops.sum(ops.transpose(w) * row) * w[0, 0], ops.exp(w[:, 0]) * s

    last, kept = ops.scan(turn, ops.full((), 0.1, x.dtype), x)
    return kept * last


def _counted(x: Value) -> Value:
    """A counter beside a state, no sequence, and no rows of a whole line."""
    (k, s), kept = ops.scan(
        lambda s, _: ((s[0] + 1, s[1] * 0.9 + ops.cast(s[0], x.dtype)), ops.cast(s[0], x.dtype)),
        (ops.full((), 0, "int32"), x), length=7)
    return s + ops.cast(k, x.dtype) + ops.sum(kept)


def _segments(x: Value, u: Value, h: Value) -> Value:
    """Seven turns of which the gradient finds three states, in both directions."""
    last, kept = ops.scan(lambda s, row: (ops.tanh(row + s @ u),) * 2, h, x, checkpoint=3)
    back, rows = ops.scan(lambda s, r: (ops.sin(s + r), s * r), last, kept, reverse=True,
                          checkpoint=2)
    return rows + back


def _block(x: Value, w: Value) -> Value:
    def block(x: Value) -> Value:
        return ops.tanh(ops.exp(x @ w) * 0.3) @ w

    return ops.checkpoint(block, ops.checkpoint(block, x)) * x


def _while(x: Value) -> Value:
    return ops.while_loop(lambda s: ops.sum(s * s) < 40.0, lambda s: s * 1.5 + ops.sin(x), x,
                          max_steps=9)


def _cond(x: Value) -> Value:
    first = ops.cond(ops.sum(x) > 0.0, lambda: ops.sin(x) @ x, lambda: x * x)
    second = ops.cond(ops.sum(x) <= 0.0, lambda: x + 1.0, lambda: ops.exp(x) @ x)
    return first + second


def _escapes(x: Value, y: Value) -> Value:
    """Each element ends by itself, after some turns or after all."""
    def inside(s: tuple[Value, ...]) -> Value:
        return s[0] * s[0] + s[1] * s[1] < 1.0

    def turn(s: tuple[Value, ...]) -> tuple[Value, ...]:
        a, b, count = s
        goes = inside(s)
        return (ops.where(goes, a * 1.1 - b * 0.5 + x * 0.1, a), ops.where(goes, b + a * 0.5, b),
                count + ops.cast(goes, "int32"))

    a, b, count = ops.while_loop(lambda s: ops.any(inside(s)), turn,
                                 (x * 0.5, y * 0.5, ops.full(x.shape, 0, "int32")), max_steps=11)
    return a + b + ops.cast(count, x.dtype)


def _roots(x: Value) -> Value:
    """A loop for each element, as `vmap` makes it: a flag of each, and none of all."""
    one = leaf("input", "one", (), x.dtype)
    root = ops.while_loop(lambda s: ops.abs(s * s - one - 1.5) > 0.001,
                          lambda s: (s + (one + 1.5) / s) * 0.5, one + 1.5, max_steps=9)
    return vectorized([root], {one: x}, x.size)[root]


def _rows(x: Value, w: Value) -> Value:
    """Sequences along the last axis, a row of numbers for all, and arrays that iterations flip."""
    def turn(s: tuple[Value, Value], row: tuple[Value, Value]
             ) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        state, up = s
        state = ops.where(up, state * 0.5 + row[0], state - row[1] * w)
        return (state, ops.logical_xor(up, state > 0.25)), (ops.cast(up, x.dtype), state)

    start = ops.full(x.shape[:-1], 0.0, x.dtype)
    (last, _), (flips, kept) = ops.scan(turn, (start, start < 1.0), (
        ops.transpose(x, (2, 0, 1)), ops.sin(ops.transpose(x, (2, 0, 1)))), reverse=True)
    return ops.transpose(kept + flips, (1, 2, 0)) + ops.expand_dims(last, -1)


def _table(x: Value, w: Value) -> Value:
    """Entries of an array that all iterations share, at computed indices."""
    def turn(s: Value, row: Value) -> tuple[Value, Value]:
        at = ops.cast(ops.abs(s) * 7.0, "int32") % w.shape[0]
        return ops.sin(s + row) + ops.take(w, at, 0) * 0.5, s

    last, kept = ops.scan(turn, x[0], x)
    return kept + last


def _inside(x: Value, w: Value) -> Value:
    """Loops for each element, with loops inside them."""
    one, row = leaf("input", "one", (), x.dtype), leaf("input", "row", w.shape[1:], x.dtype)

    def turn(s: tuple[Value, Value], r: Value) -> tuple[tuple[Value, Value], Value]:
        state, count = s
        state, _ = ops.scan(lambda d, q: (d * 0.5 + ops.sin(q) * r + state * one * 0.1, None),
                            state, row, reverse=True)
        (state, count) = ops.while_loop(lambda d: d[0] > 0.3, lambda d: (d[0] * 0.5, d[1] + 1),
                                        (state, count), max_steps=6)
        return (state, count), state * r

    (last, count), kept = ops.scan(turn, (one, ops.full((), 0, "int32")), row[:3])
    y = kept * last + ops.cast(count, x.dtype)
    return vectorized([y], {one: x, row: w}, x.size)[y]


LOOPS = [  # the first one, which the inner loop takes, runs both ways and inside another
    LoopCase("nested", _nested, ((3, 4), (5, 4))),
    LoopCase("sums", _sums, ((5, 3),)), LoopCase("sums of one turn", _sums, ((1, 16),)),
    LoopCase("backwards", _backwards, ((4, 2, 3), (2, 3))),
    LoopCase("gates", _gates, ((4, 3, 5), (5, 21), (7, 21), (3, 7))),
    LoopCase("gates in lines", _gates, ((3, 16, 8), (8, 48), (16, 48), (16, 16))),
    LoopCase("pieces", _pieces, ((3, 2, 12), (3, 12), (2, 3))),
    LoopCase("plain", _plain, ((6, 2, 9), (9, 9), (2, 9))),
    LoopCase("parts", _parts, ((3, 2, 2, 5), (5, 5), (2, 5))),
    LoopCase("parts in lines", _parts, ((2, 3, 2, 8), (8, 8), (2, 8))),
    LoopCase("swapped", _swapped, ((5, 4),)),
    LoopCase("shared", _shared, ((4, 3), (3, 3))), LoopCase("counted", _counted, ((3,),)),
    LoopCase("segments", _segments, ((7, 2, 5), (5, 5), (2, 5))),
    LoopCase("block", _block, ((3, 4), (4, 4))),
    LoopCase("escapes", _escapes, ((5, 7), (5, 7))), LoopCase("roots", _roots, ((37,),)),
    LoopCase("rows", _rows, ((3, 5, 6), (5,))), LoopCase("table", _table, ((4, 75), (6,))),
    LoopCase("inside", _inside, ((21,), (21, 4))),
    LoopCase("while", _while, ((6,),)), LoopCase("cond", _cond, ((3, 3),)),
]


def loop_value(case: LoopCase, d: DType) -> Job:
    leaves = case.leaves(d)
    return Job(Graph({"y": case.function(*leaves)}), case.feeds(leaves), f"{case.name} in {d}")


def loop_gradient(case: LoopCase, d: DType) -> Job:
    leaves = case.leaves(d)
    y = case.function(*leaves)
    slopes = gradients(ops.sum(y * y), leaves)
    return Job(Graph({f"d{k}": g for k, g in enumerate(slopes)}), case.feeds(leaves),
               f"{case.name} gradient in {d}")


def loop_makers() -> Iterator[tuple[str, Callable[..., Job], LoopCase, DType]]:
    """What makes the jobs of each function in float32 and float64, and of its gradient, which a dash marks."""
    for case in LOOPS:
        for d in (f32, f64):
            yield "loop", loop_value, case, d
            yield "loop'", loop_gradient, case, d
