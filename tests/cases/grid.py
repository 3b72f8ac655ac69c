"""Graphs whose kernels on machines of workgroups load and store neighbors at once."""

from __future__ import annotations

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import DType, f16, f32, i8, i32, i64
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value


def job(make, *shapes: tuple[int, ...], d: DType = f32) -> Job:
    rng = np.random.default_rng(3)
    leaves = [leaf("input", f"x{k}", shape, d) for k, shape in enumerate(shapes)]
    numbers = [rng.normal(size=v.shape) if d.is_float else rng.integers(-9, 9, v.shape)
               for v in leaves]
    feeds = {v: n.astype(d.numpy) for v, n in zip(leaves, numbers, strict=True)}
    return Job(Graph({"y": make(*leaves)}), feeds)


def forward(*xs: Value) -> Value:
    """In rows that are not aligned to vectors."""
    return ops.concat([x[:, 1:] for x in xs], axis=1) * 2.0


# Memory access of elementwise kernels. All have so many elements that threads take four.
ELEMENTWISE = {
    "flat": (lambda x, y: ops.tanh(x) * 2.0 + y, (40_000,), (40_000,)),
    "odd": (lambda x, y: ops.tanh(x) * 2.0 + y, (40_001,), (40_001,)),
    "a row for all": (lambda x, y: ops.maximum(x + y, 0.5), (260, 128), (128,)),
    "an odd row for all": (lambda x, y: ops.maximum(x + y, 0.5), (262, 127), (127,)),
    "a number a row": (lambda x, y: ops.exp(x - y), (260, 128), (260, 1)),
    "a number": (lambda x, y: ops.where(x > y, x, 1.0), (260, 128), (1, 1)),
    "aligned parts": (lambda x: x[2:, 4:] * x[:-2, :-4], (264, 132)),
    "other parts": (lambda x: x[2:, 4:] * x[:-2, 1:-3], (264, 132)),
    "odd rows": (lambda x: x[:, :128] * 2.0, (264, 130)),
    "transposed": (lambda x, y: ops.transpose(x) + y, (128, 260), (260, 128)),
    "one after another": (lambda x, y: ops.concat([x, y], axis=0) * 2.0, (140, 128), (120, 128)),
    "side by side": (forward, (260, 65), (260, 65)),
    "in a border": (lambda x: ops.pad(x, (1, 4), (2, 4)) + 1.0, (260, 120)),
    "in an odd border": (lambda x: ops.pad(x, (1, 3), (2, 5)) + 1.0, (260, 120)),
    "compared": (lambda x, y: ops.where(x > y, x > 0.0, y > 0.0), (260, 128), (260, 128)),
    "as other types": (lambda x: ops.cast(ops.cast(x * 9.0, i8), f16) + ops.cast(x, f16), (260, 128)),
    "wide": (lambda x: ops.cast(ops.cast(x * 9.0, i64) * 5, f32), (260, 128)),
    "lookups": (lambda x, y: ops.take(x, ops.cast(ops.abs(y) * 9.0, i32), axis=0) * 2.0, (60, 128), (260,)),
    "lookups in rows": (lambda x, y: ops.take(x, ops.cast(ops.abs(y) * 9.0, i32), axis=1) * 2.0,
                        (260, 60), (128,))}


def normal(x: Value, scale: Value, axis: int = -1) -> Value:
    centered = x - ops.mean(x, axis=axis, keepdims=True)
    return centered * ops.rsqrt(ops.mean(centered * centered, axis=axis, keepdims=True) + 1e-3) * scale


# Memory access of reducing kernels: rows of neighbors, and neighbors of many rows.
REDUCING = {
    "softmax": (ops.softmax, (260, 128)),
    "odd softmax": (ops.softmax, (260, 129)),
    "softmax of few": (ops.softmax, (3, 4000)),
    "softmax of short rows": (ops.softmax, (70, 8)),
    "normal rows": (normal, (260, 136), (136,)),
    "normal columns": (lambda x, y: normal(x, y, axis=0), (300, 132), (132,)),
    "odd columns": (lambda x, y: normal(x, y, axis=0), (300, 133), (133,)),
    "columns of few": (lambda x: ops.max(x, axis=0), (30, 132)),
    "between": (lambda x, y: ops.sum(x * y, axis=1), (20, 33, 64), (33, 1)),
    "two axes": (lambda x: ops.max(x, axis=(0, 2)), (30, 20, 72)),
    "parts of rows": (lambda x: ops.sum(x[:, 4:], axis=1), (70, 132)),
    "other parts": (lambda x: ops.sum(x[:, 3:131], axis=1), (70, 132)),
    "transposed": (lambda x, y: ops.sum(ops.transpose(x) * y, axis=1), (128, 300), (300, 128)),
    "in a border": (lambda x: ops.sum(ops.pad(x, (0, 4), (0, 4)), axis=1), (70, 128)),
    "all": (lambda x: ops.sum(x * x), (8192,)),
    "any": (lambda x: ops.any(x > 3.0, axis=1), (70, 128)),
    "columns of any": (lambda x: ops.any(x > 3.0, axis=0), (300, 128)),
    "as other types": (lambda x: ops.sum(ops.cast(ops.cast(x * 9.0, i8), i64), axis=0), (300, 128)),
    "lookups": (lambda x, y: ops.sum(ops.take(x, ops.cast(ops.abs(y) * 9.0, i32), axis=0), axis=1),
                (60, 128), (70,))}
