"""Operations on tensors whose rows are padded along open axes, so that padding does not count.

Tensors without padding are computed as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node
from ztorch.layers.axis_movement import place
from ztorch.layers.real_positions import spread
from ztorch.real_sizes import Step


def is_padded(n: Node, x: Value, axes: Iterable[int]) -> bool:
    """Whether rows of a tensor are padded along any of these axes."""
    return not n.context.padding.parts(x).isdisjoint(axes)


def masked(n: Node, x: Value, axes: Iterable[int], fill: Any) -> Value:
    """A tensor with its padding along axes replaced by a number, for reductions along them."""
    padding, axes = n.context.padding, set(axes)
    real = padding.real_along(x, axes)
    if real is None:
        return x
    other_axes = {at: mask for at, mask in padding.places(x).items()
                  if place(x, at[1], mask.size)[0] not in axes}
    return padding.declare_places(OPS.where(real, x, OPS.full(x.shape, fill, x.dtype)), other_axes)


def padded_like(n: Node, y: Value, x: Value) -> Value:
    """Declares that a result has the padding of another tensor of its shape."""
    padded = n.context.padding.places(x)
    return n.context.padding.declare_places(y, padded) if padded else y


def resized(n: Node, y: Value, x: Value, steps: Mapping[int, Step]) -> Value:
    """Declares that a result has the padding of x, with real sizes changed by a step along axes."""
    padding = n.context.padding
    if not (padded := padding.of(x)):
        return y
    for axis, step in steps.items():
        if axis in padded:
            padding.resize(padded, axis, step, y.shape[axis])
    return padding.declare(y, padded)


def real_count(n: Node, x: Value, axes: Iterable[int]) -> Value | float:
    """The number of real elements of a row along axes: one number for all rows, or a tensor that
    broadcasts to a reduction with keepdims."""
    count: Value | float = 1.0
    for axis in axes:
        real = n.context.padding.real_along(x, {axis})
        count = count * (float(x.shape[axis]) if real is None else OPS.maximum(
            OPS.sum(OPS.cast(real, x.dtype), axis, True), 1.0))
    return count


def standardized(n: Node, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """x with mean 0 and variance 1 over the real elements along axes."""
    if not is_padded(n, x, axes):
        return OPS.standardize(x, axis=axes if len(axes) > 1 else axes[0], epsilon=epsilon)
    count = real_count(n, x, axes)
    centered = padded_like(n, x - OPS.sum(masked(n, x, axes, 0), axes, True) / count, x)
    variance = OPS.sum(OPS.square(masked(n, centered, axes, 0)), axes, True) / count
    return centered * OPS.rsqrt(variance + epsilon)


def row_sizes(n: Node, x: Value, axis: int) -> Value | None:
    """The real size of each row along an axis, (batch, 1); None if the axis is not padded."""
    mask = n.context.padding.of(x).get(axis)
    return None if mask is None else OPS.sum(OPS.cast(mask.value, "int32"), 1, True)


def picked(x: Value, axis: int, at: Value) -> Value:
    """The elements of each row at positions along an axis, (batch, positions). The caller declares
    the padding of the result."""
    shape = tuple(at.shape[1] if k == axis else m for k, m in enumerate(x.shape))
    wide = OPS.broadcast_to(spread(OPS.maximum(at, 0), x.rank, axis), shape)
    return OPS.take_along_axis(x, wide, axis)


def part_of(n: Node, x: Value, axis: int, start: int, stop: int, step: int,
            from_end: tuple[bool, bool]) -> Value:
    """A slice along a padded axis.

    Args:
        n: The node.
        x: The tensor.
        axis: The axis.
        start: The first position.
        stop: The position after the last one; -1 if the slice runs backwards to the first one.
        step: The distance between positions.
        from_end: Whether `start` and `stop` count from the end of a row.
    """
    size = x.shape[axis]
    key = (*(slice(None),) * axis, slice(start, None if stop < 0 else stop, step))
    sizes = row_sizes(n, x, axis)
    if sizes is None or (start, stop, step, from_end[1]) == (0, 1, 1, False):
        return x[key]
    if step == -1 and start == size - 1 and stop < 0:
        return padded_like(n, picked(x, axis, sizes - 1 - OPS.iota((1, size), 1, "int32")), x)
    if start == size - 1 and stop >= size and from_end[0]:
        y = picked(x, axis, sizes - 1)
        return n.context.padding.declare(y, {
            a: m for a, m in n.context.padding.of(x).items() if a != axis})
    if step < 1 or from_end[0] or not (stop >= size or from_end[1]):
        n.mixes(f"positions {start} to {stop} along the open axis {axis}: a slice may run to the "
                "end, or to a fixed distance from it, or take the first or the last position")
    cut_off = max(size - stop, 0)
    return resized(n, x[key], x, {axis: (1, step - 1 - start - cut_off, step)})


def concatenated(n: Node, parts: list[Value], axis: int) -> Value:
    """Concatenates tensors along an axis, each after the real part of the one before."""
    padding, y = n.context.padding, OPS.concat(*parts, axis=axis)
    axis %= y.rank
    if not any(is_padded(n, x, {axis}) for x in parts):
        return y
    masks = {m for x in parts if (m := padding.of(x).get(axis))}
    if len(masks) > 1:
        n.mixes(f"concatenates tensors whose rows have different sizes along axis {axis}")
    [mask] = masks
    sizes = OPS.sum(OPS.cast(mask.value, "int32"), 1, True)
    at = OPS.iota((1, y.shape[axis]), 1, "int32")
    begin: Value | int = 0  # of a part, for each row
    offset, source = 0, at
    for x in parts:
        source = OPS.where(OPS.greater_equal(at, begin), at - begin + offset, source)
        offset += x.shape[axis]
        begin = begin + (sizes if axis in padding.of(x) else x.shape[axis])
    only_last_is_padded = all(axis not in padding.of(x) for x in parts[:-1])
    if not only_last_is_padded:
        y = picked(y, axis, OPS.broadcast_to(source, (mask.batch, y.shape[axis])))
    padded = {a: m for x in parts for a, m in padding.of(x).items() if a != axis} | {axis: mask}
    times = sum(axis in padding.of(x) for x in parts)
    fixed = sum(x.shape[axis] for x in parts if axis not in padding.of(x))
    padding.resize(padded, axis, (times, fixed, 1), y.shape[axis])
    return padding.declare(y, padded)


def extended(n: Node, x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """A tensor with more positions at both ends of an axis, which repeat its real ones."""
    sizes = row_sizes(n, x, axis)
    assert sizes is not None
    at = OPS.iota((1, before + x.shape[axis] + after), 1, "int32") - before
    last = sizes - 1
    if mode == "wrap":
        at = OPS.where(OPS.greater(at, last), at - sizes, at)
        at = OPS.where(OPS.less(at, 0), at + sizes, at)
    elif mode == "reflect":
        at = OPS.abs(at)
        at = last - OPS.abs(last - at)
    else:
        at = OPS.minimum(OPS.maximum(at, 0), last)
    return resized(n, picked(x, axis, at), x, {axis: (1, before + after, 1)})
