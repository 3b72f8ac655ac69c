"""Graphs of all kinds of kernels, and machines to schedule them for."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity import (
    GROUPS,
    NARROW,
    SCALAR,
    SUBGROUPS,
    Job,
)
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ops.scattering import summed_at

WIDE_GRID = Limits(0, 64, True, grid=GridLimits(subgroup=8, load_width=4, compute_units=1))
MATRICES = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).with_precision("tf32").limits

HOPPER = TARGETS["cuda:sm_90a"].on_device({"compute_units": 1}).limits


def job(make: Any, *shapes: tuple[int, ...]) -> Job:
    rng = np.random.default_rng(7)
    leaves = [leaf("input", f"x{k}", shape, f32) for k, shape in enumerate(shapes)]
    return Job(Graph({"y": make(*leaves)}), {v: rng.normal(size=v.shape).astype(np.float32) for v in leaves})


def normalized(x: Value) -> Value:
    far = x - ops.mean(x, -1, keepdims=True)
    return far * ops.rsqrt(ops.mean(far * far, -1, keepdims=True) + 1e-3)


def turns(x: Value, w: Value) -> Value:
    return ops.scan(lambda s, row: (ops.tanh(s * w + row),) * 2, w, x)[1]


JOBS = {
    "product": job(lambda a, b, c: ops.maximum(ops.matmul(a, b) + c, 0.0), (19, 13), (13, 52), (52,)),
    "one row": job(ops.matmul, (1, 24), (24, 70)),
    "batch of products": job(ops.matmul, (2, 9, 8), (2, 8, 24)),
    "windows": job(lambda x, w: ops.conv(x, w, padding="same"), (1, 4, 8, 4), (3, 3, 4, 16)),
    "kernel gradient": job(lambda x, w, g: gradients(ops.sum(ops.conv(x, w, padding="same", groups=12) * g), [w])[0],
                           (1, 4, 9, 12), (3, 3, 1, 12), (1, 4, 9, 12)),
    "depthwise": job(lambda x, w: ops.tanh(ops.conv(x, w, padding="same", groups=12)), (1, 4, 9, 12), (3, 3, 1, 12)),
    "softmax": job(lambda x: ops.softmax(x, axis=-1), (3, 88)),
    "layer norm": job(normalized, (2, 3, 72)),
    "sums of columns": job(lambda x: ops.sum(ops.exp(x), axis=0), (12, 76)),
    "maxima of columns": job(lambda x: ops.max(x, axis=1), (3, 5, 36)),
    "elements": job(lambda x, b: ops.tanh(x[:, ::2]) * b, (3, 6, 40), (40,)),
    "turns": job(turns, (5, 90), (90,)),
    "sums at places": job(lambda x, y: summed_at(x, ops.cast(ops.floor(y * 9), "int32"), 11), (1, 90, 24), (1, 90, 1)),
    "transpose": job(lambda x: ops.exp(ops.transpose(x, (0, 2, 1))), (2, 20, 36)),
}
MACHINES = {"scalar": SCALAR, "narrow": NARROW, "avx2": TARGETS["avx2"].limits, "groups": GROUPS,
            "subgroups": SUBGROUPS, "wide grid": WIDE_GRID, "matrices": MATRICES}
