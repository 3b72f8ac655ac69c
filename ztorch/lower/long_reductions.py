"""Long reductions as two short ones, so that workers can share the first."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.lower.loops import summing
from ztorch.lower.tuning import (
    LONG_REDUCTION,
    LONG_REDUCTION_PARTS,
    LONG_REDUCTION_RESULTS,
)


def split_reduction(v: Value) -> Value:
    """A long reduction to few results becomes two, so that workers can share the first. Where it
    is cut depends on sizes only, so every number of workers adds in the same order."""
    if v.op.kind != "reduce" or not v.size or v.args[0].size // v.size < LONG_REDUCTION or (
            v.size > LONG_REDUCTION_RESULTS):
        return v
    x, axes = v.args[0], v.attrs["axes"]
    longest = max(axes, key=lambda a: x.shape[a])
    n = x.shape[longest]
    parts = next((p for p in range(LONG_REDUCTION_PARTS, 1, -1) if n % p == 0), 1)
    if parts == 1:
        return v
    split = OPS.reshape(x, (*x.shape[:longest], parts, n // parts, *x.shape[longest + 1:]))
    first = tuple(a + (a >= longest) for a in axes)
    partial = v.op(widened(split), axes=first)
    at = sum(1 for k in range(longest) if k not in axes)
    return OPS.cast(v.op(partial, axes=(at,)), v.dtype)


def widened(x: Value) -> Value:
    """x in the dtype that sums of it are held in."""
    return OPS.cast(x, summing(x.dtype))
