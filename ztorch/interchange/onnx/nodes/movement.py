"""Shapes, and ops that only move elements. Shape arithmetic is done while importing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, broadcast_shapes, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import Foreign
from ztorch.interchange.onnx.known import LIMIT
from ztorch.interchange.onnx.node import Node, Result, Tensor, node
from ztorch.interchange.onnx.padded_tensors import (
    concatenated,
    extended,
    is_padded,
    masked,
    part_of,
    resized,
)

# -- constants -------------------------------------------------------------------------------------


@node("Constant", but="no strings or sparse tensors")
def _constant(n: Node) -> Result:
    [(name, value)] = n.spec.attrs.items()
    if name.startswith(("sparse", "value_string")) or isinstance(value, Foreign):
        n.unsupported(f"a constant with {name!r}")
    if name == "value":
        return n.stored(value)
    return np.asarray(value, np.int64 if "int" in name else np.float32)


@node("Shape")
def _shape(n: Node) -> Result:
    shape = n.shape(0)
    return np.array(shape[slice(n.attr("start", 0), n.attr("end", len(shape)))], np.int64)


@node("Size")
def _size(n: Node) -> Result:
    return np.array(math.prod(n.shape(0)), np.int64)


@node("ConstantOfShape")
def _constant_of_shape(n: Node) -> Result:
    shape = tuple(int(m) for m in n.array(0))
    value = n.stored(n.attr("value", np.zeros(1, np.float32)))
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape}")
    if isinstance(value, np.ndarray) and math.prod(shape) <= LIMIT:
        return np.full(shape, value.reshape(()), value.dtype)
    return OPS.broadcast_to(n.as_value(value), shape)


@node("Range")
def _range(n: Node) -> Result:
    start, stop, step = (n.number(k) for k in range(3))
    if step == 0 or (stop - start) / step > LIMIT:
        raise ValueError(f"a range from {start} to {stop} in steps of {step}")
    return n.numbers_like(0, np.arange(start, stop, step))


# -- shapes ----------------------------------------------------------------------------------------


@node("Reshape", moves=True)
def _reshape(n: Node) -> Result:
    x, shape = n.value(0), [int(m) for m in n.array(1)]
    if not n.attr("allowzero", 0):
        shape = [x.shape[k] if m == 0 else m for k, m in enumerate(shape)]
    return OPS.reshape(x, tuple(shape))


@node("Flatten", moves=True)
def _flatten(n: Node) -> Result:
    x, axis = n.value(0), n.attr("axis", 1)
    at = axis + x.rank if axis < 0 else axis
    return OPS.reshape(x, (math.prod(x.shape[:at]), math.prod(x.shape[at:])))


@node("Squeeze", moves=True)
def _squeeze(n: Node) -> Result:
    x, axes = n.value(0), n.ints("axes", 1)
    removed = ({k for k, m in enumerate(x.shape) if m == 1} if axes is None else
               {range(x.rank)[a] for a in axes})
    return OPS.reshape(x, tuple(m for k, m in enumerate(x.shape) if k not in removed))


@node("Unsqueeze", moves=True)
def _unsqueeze(n: Node) -> Result:
    x, axes = n.value(0), n.ints("axes", 1) or ()
    rank = x.rank + len(axes)
    new = {range(rank)[a] for a in axes}
    if len(new) != len(axes):
        raise ValueError(f"axes {axes} name one twice")
    old = iter(x.shape)
    return OPS.reshape(x, tuple(1 if k in new else next(old) for k in range(rank)))


@node("Expand")
def _expand(n: Node) -> Result:
    x = n.value(0)
    return OPS.broadcast_to(x, broadcast_shapes(x.shape, tuple(int(m) for m in n.array(1))))


@node("Tile")
def _tile(n: Node) -> Result:
    x, times = n.value(0), [int(m) for m in n.array(1)]
    if len(times) != x.rank or min(times, default=0) < 0:
        raise ValueError(f"repeats {times} for {x.rank} axes")
    split = tuple(m for size in x.shape for m in (1, size))
    wide = tuple(m for pair in zip(times, x.shape, strict=True) for m in pair)
    return OPS.reshape(OPS.broadcast_to(OPS.reshape(x, split), wide),
                       tuple(t * m for t, m in zip(times, x.shape, strict=True)))


# -- order and parts -------------------------------------------------------------------------------


@node("Transpose", moves=True)
def _transpose(n: Node) -> Result:
    x, order = n.value(0), n.ints("perm")
    if order is not None and sorted(order) != list(range(x.rank)):
        raise ValueError(f"perm={order} is not an order of {x.rank} axes")
    return OPS.transpose(x, order)


@node("Concat")
def _concat(n: Node) -> Result:
    return concatenated(n, n.values(), n.attr("axis"))


@node("Split")
def _split(n: Node) -> Result:
    x = n.value(0)
    axis, count = range(x.rank)[n.attr("axis", 0)], len(n.spec.outputs)
    size = x.shape[axis]
    sizes = n.ints("split", 1)
    if sizes is None:
        longest = -(-size // count)
        sizes = (*(longest,) * (count - 1), size - longest * (count - 1))
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 0:
        raise ValueError(f"parts of {sizes} do not make {size}")
    parts: list[Tensor] = []
    before = (slice(None),) * axis
    for k in range(count):
        at = sum(sizes[:k])
        key = (*before, slice(at, at + sizes[k]))
        parts.append(x[key])
    return tuple(parts)


@node("Slice")
def _slice(n: Node) -> Result:
    x = n.value(0)
    starts, ends = n.ints("starts", 1) or (), n.ints("ends", 2) or ()
    axes = n.ints("axes", 3) or tuple(range(len(starts)))
    steps = n.ints("steps", 4) or (1,) * len(starts)
    keys = [slice(None)] * x.rank
    for k, (a, start, end, step) in enumerate(zip(axes, starts, ends, steps, strict=True)):
        first = start if step > 0 else max(start, -x.shape[a])  # as NumPy does for positive steps
        positions = range(x.shape[a])[first:end:step]  # ends beyond the axis are clipped
        if positions and is_padded(n, x, {a % x.rank}):
            moved = [part[k] for at in (1, 2) if (part := n.varies_with_sizes(at, len(starts)))]
            x = part_of(n, x, a % x.rank, positions.start, positions.stop, step, (
                start < 0 or moved[0], end < 0 or moved[1]))
            continue
        last = positions.stop if positions.stop >= 0 else None
        keys[a] = slice(positions.start, last, step) if positions else slice(0, 0)
    return x[tuple(keys)] if keys else x


_LONGEST = 1 << 24  # positions of an axis that a Pad may list while importing: 64 MiB


@node("Pad", moves=True)
def _pad(n: Node) -> Result:
    x, mode = n.value(0), n.attr("mode", "constant")
    axes = [range(x.rank)[a] for a in (n.ints("", 3) or range(x.rank))]
    pads = n.ints("pads", 1) or ()
    number = n.attr("value", 0.0) if n.opset < 11 else n.number(2) if n.has(2) else 0
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads {pads} for {len(axes)} axes")
    low, high = [0] * x.rank, [0] * x.rank
    for k, a in enumerate(axes):
        low[a], high[a] = pads[k], pads[k + len(axes)]
    crop = tuple(slice(max(-a, 0), m - max(-b, 0))
                 for m, a, b in zip(x.shape, low, high, strict=True))
    open_axes = [axis for axis in n.context.padding.parts(x) if low[axis] or high[axis]]
    if mode != "constant":
        if any(min(low[axis], high[axis]) < 0 for axis in open_axes):
            n.mixes(f"mode={mode!r} with pads below zero")
        x = x[crop] if min((*low, *high), default=0) < 0 else x
        return _extended(n, x, [max(a, 0) for a in low], [max(b, 0) for b in high], open_axes, mode)
    before, after = tuple(max(a, 0) for a in low), tuple(max(b, 0) for b in high)
    if open_axes:
        steps = {axis: (1, a + b, 1) for axis, (a, b) in enumerate(zip(low, high, strict=True))}
        y = OPS.pad(masked(n, x, open_axes, number)[crop], before, after, number)
        return resized(n, y, x, steps)
    return OPS.pad(x[crop] if min((*low, *high), default=0) < 0 else x, before, after, number)


def _extended(n: Node, x: Value, low: Sequence[int], high: Sequence[int],
              open_axes: Sequence[int], mode: Any) -> Value:
    """x with elements of its own before and after each axis."""
    if mode not in ("reflect", "edge", "wrap"):
        n.unsupported(f"mode={mode!r}")
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        if not a and not b:
            continue
        if a + b > LIMIT or x.shape[axis] > _LONGEST:
            raise ValueError(f"pads of {a} and {b} on an axis of {x.shape[axis]:,}")
        if axis in open_axes:
            x = extended(n, x, axis, a, b, mode)
            continue
        index = np.pad(np.arange(x.shape[axis], dtype=np.int32), (a, b), mode)
        x = OPS.take(x, constant(index), axis=axis)
    return x


@node("CenterCropPad")
def _center_crop_pad(n: Node) -> Result:
    x, sizes = n.value(0), [int(m) for m in n.array(1)]
    axes = [range(x.rank)[a] for a in n.ints("axes") or range(x.rank)]
    if len(sizes) != len(axes) or min(sizes, default=0) < 0:
        raise ValueError(f"sizes {sizes} of {len(axes)} axes")
    low, high, keys = [0] * x.rank, [0] * x.rank, [slice(None)] * x.rank
    for axis, new in zip(axes, sizes, strict=True):
        old = x.shape[axis]
        begin = abs(old - new) // 2
        if new < old:
            keys[axis] = slice(begin, begin + new)
        else:
            low[axis], high[axis] = begin, new - old - begin
    return OPS.pad(x[tuple(keys)], tuple(low), tuple(high))


# -- positions -------------------------------------------------------------------------------------


@node("OneHot")
def _one_hot(n: Node) -> Result:
    labels, depth, (off, on) = n.value(0), int(n.number(1)), n.array(2)
    narrow = labels.dtype.is_float or labels.dtype.bits < 32  # the depth may not fit
    labels = OPS.cast(labels, "int64") if narrow else labels
    axis = range(labels.rank + 1)[n.attr("axis", -1)]
    zero = OPS.zeros_like(labels)
    labels = OPS.expand_dims(OPS.where(OPS.less(labels, zero), labels + depth, labels), axis)
    shape = tuple(depth if k == axis else m for k, m in enumerate(labels.shape))
    hit = OPS.equal(labels, OPS.iota(shape, axis, labels.dtype))
    on, off = (n.as_value(n.numbers_like(2, x)) for x in (on, off))
    return OPS.where(hit, on, off)


@node("Trilu")
def _triangle(n: Node) -> Result:
    x, k = n.value(0), int(n.number(1)) if n.has(1) else 0
    rows, columns = x.shape[-2:]
    if rows * columns > LIMIT:
        raise ValueError(f"a triangle of {rows} x {columns}")
    upper = bool(n.attr("upper", 1))
    inside = ~np.tri(rows, columns, k - 1, bool) if upper else np.tri(rows, columns, k, bool)
    return OPS.where(constant(inside), x, OPS.zeros_like(x))


@node("EyeLike")
def _eye(n: Node) -> Result:
    number, (rows, columns) = n.attr("dtype", 0), n.shape(0)
    kind = n.dtype_of(number) if number else n.value(0).dtype
    return OPS.eye(rows, columns, n.attr("k", 0), kind)


@node("Diagonal", domain="ztorch")
def _diagonal(n: Node) -> Result:
    """For programs of torch.export."""
    return OPS.diagonal(n.value(0), n.attr("offset", 0), *n.attr("axes"))
