"""Windows outside of convolutions and pooling, as slices side by side."""

from __future__ import annotations

import math

import numpy as np

from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import primitive
from ztorch.interchange.onnx.writer import Writer

MOST_PLACES = 1024  # of a window: each is two nodes or more


@primitive("pick")
def _pick(w: Writer, v: Value) -> None:
    """The windows: a slice for each place in the window, side by side in a last axis."""
    [x] = v.args
    axes, counts, stride, dilation = (v.attrs[k] for k in ("axes", "counts", "stride", "dilation"))
    sizes, inner = x.shape[:len(axes)], x.shape[len(axes):]
    if any(w.varies(inner[axis]) for axis in axes):
        raise w.unsupported("its windows move along an axis of any size")
    if math.prod(sizes) > MOST_PLACES:
        raise w.unsupported(f"its windows have {math.prod(sizes)} places, more than {MOST_PLACES}")
    tensor = w.tensor(x)
    repeated = tensor.shape == inner and not tensor.order  # the same tensor for each place
    name = tensor.name if repeated else w.name(x)
    leading = range(len(axes))
    seen = []
    for place in np.ndindex(*sizes):
        here = name
        if not repeated:
            here = w.node("Squeeze", [w.node("Slice", [
                name, w.integers(place), w.integers(k + 1 for k in place), w.integers(leading)]),
                w.integers(leading)])
        starts = [k * d for k, d in zip(place, dilation, strict=True)]
        ends = [k + (n - 1) * s + 1 for k, n, s in zip(starts, counts, stride, strict=True)]
        part = w.node("Slice", [here, w.integers(starts), w.integers(ends), w.integers(axes),
                                w.integers(stride)])
        seen.append(w.node("Unsqueeze", [part, w.integers([len(inner)])]))
    joined = w.node("Concat", seen, axis=len(inner))
    w.give(v, w.node("Reshape", [joined, w.shape(v.shape, infer=True)]))
