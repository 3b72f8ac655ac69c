"""Writers of windows outside of convolutions and pools, as slices that are concatenated, and of
blended neighbors, as a product."""

from __future__ import annotations

import math

import numpy as np

from ztorch.graph.op import first_value
from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import primitive
from ztorch.interchange.onnx.writer import Writer

MOST_POSITIONS = 1024  # in a window: each takes two nodes or more


@primitive("pick")
def _pick(w: Writer, v: Value) -> None:
    """A slice for each position in the window, concatenated along a last axis."""
    [x] = v.args
    axes, counts, stride, dilation = (v.attrs[k] for k in ("axes", "counts", "stride", "dilation"))
    sizes, inner = x.shape[:len(axes)], x.shape[len(axes):]
    if any(w.varies(inner[axis]) for axis in axes):
        raise w.unsupported("its windows move along an open axis")
    if math.prod(sizes) > MOST_POSITIONS:
        raise w.unsupported(f"its windows have {math.prod(sizes)} positions, more than "
                            f"{MOST_POSITIONS}")
    tensor = w.tensor(x)
    repeated = tensor.shape == inner and not tensor.order  # the same tensor for each position
    name = tensor.name if repeated else w.name(x)
    leading = range(len(axes))
    parts = []
    for position in np.ndindex(*sizes):
        tensor_name = name
        if not repeated:
            begin, after = w.integers(position), w.integers(k + 1 for k in position)
            part = w.node("Slice", [name, begin, after, w.integers(leading)])
            tensor_name = w.node("Squeeze", [part, w.integers(leading)])
        starts = [k * d for k, d in zip(position, dilation, strict=True)]
        ends = [k + (n - 1) * s + 1 for k, n, s in zip(starts, counts, stride, strict=True)]
        part = w.node("Slice", [tensor_name, w.integers(starts), w.integers(ends), w.integers(axes),
                                w.integers(stride)])
        parts.append(w.node("Unsqueeze", [part, w.integers([len(inner)])]))
    joined = w.node("Concat", parts, axis=len(inner))
    w.record(v, w.node("Reshape", [joined, w.shape(v.shape, infer=True)]))


@primitive("blend")
def _blend(w: Writer, v: Value) -> None:
    x, places, weights = v.args
    matrix = np.zeros((v.shape[1], x.shape[1]), weights.dtype.working)
    for at, weight in zip(first_value(places), first_value(weights), strict=True):
        np.add.at(matrix, (np.arange(len(matrix)), at), weight)
    w.record(v, w.node("MatMul", [w.array(matrix), w.name(x)]))
