"""Reads of tensors whose rows are filled up along open axes: nodes read their real parts.

Without padding, all of these return their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node
from ztorch.layers.padded_axes import place
from ztorch.layers.real_positions import spread
from ztorch.real_sizes import Step


def is_padded(n: Node, x: Value, axes: Iterable[int]) -> bool:
    """Whether rows of a tensor are filled up along any of these axes."""
    return not n.context.padding.parts(x).isdisjoint(axes)


def hidden(n: Node, x: Value, axes: Iterable[int], fill: Any) -> Value:
    """A tensor whose padding along axes is replaced by a number, so that the axes may be mixed."""
    padding, axes = n.context.padding, set(axes)
    real = padding.real_along(x, axes)
    if real is None:
        return x
    left = {at: mask for at, mask in padding.places(x).items()
            if place(x, at[1], mask.size)[0] not in axes}
    return padding.declare_places(OPS.where(real, x, OPS.full(x.shape, fill, x.dtype)), left)


def alike(n: Node, y: Value, x: Value) -> Value:
    """A result that is filled up as a tensor of its shape is."""
    padded = n.context.padding.places(x)
    return n.context.padding.declare_places(y, padded) if padded else y


def resized(n: Node, y: Value, x: Value, steps: Mapping[int, Step]) -> Value:
    """A result whose real sizes along axes are a step from those of another tensor."""
    padding = n.context.padding
    if not (padded := padding.of(x)):
        return y
    for axis, step in steps.items():
        if axis in padded:
            padding.resize(padded, axis, step, y.shape[axis])
    return padding.declare(y, padded)


def real_count(n: Node, x: Value, axes: Iterable[int]) -> Value | float:
    """How many real elements a row has along axes: a number for all, or one that broadcasts to
    reduced axes that are kept."""
    count: Value | float = 1.0
    for axis in axes:
        real = n.context.padding.real_along(x, {axis})
        count = count * (float(x.shape[axis]) if real is None else OPS.maximum(
            OPS.sum(OPS.cast(real, x.dtype), axis, True), 1.0))
    return count


def standardized(n: Node, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """Mean 0 and variance 1 over the real elements along axes."""
    if not is_padded(n, x, axes):
        return OPS.standardize(x, axis=axes if len(axes) > 1 else axes[0], epsilon=epsilon)
    count = real_count(n, x, axes)
    centred = alike(n, x - OPS.sum(hidden(n, x, axes, 0), axes, True) / count, x)
    variance = OPS.sum(OPS.square(hidden(n, centred, axes, 0)), axes, True) / count
    return centred * OPS.rsqrt(variance + epsilon)


def row_sizes(n: Node, x: Value, axis: int) -> Value | None:
    """The real size of each row along an axis, (batch, 1); None where all are real."""
    mask = n.context.padding.of(x).get(axis)
    return None if mask is None else OPS.sum(OPS.cast(mask.value, "int32"), 1, True)


def picked(n: Node, x: Value, axis: int, at: Value) -> Value:
    """The elements of each row at positions along an axis, (batch, positions). Whoever picks knows
    which are real."""
    shape = tuple(at.shape[1] if k == axis else m for k, m in enumerate(x.shape))
    wide = OPS.broadcast_to(spread(OPS.maximum(at, 0), x.rank, axis), shape)
    return OPS.take_along_axis(x, wide, axis)


def part_of(n: Node, x: Value, axis: int, start: int, stop: int, step: int,
            from_end: tuple[bool, bool]) -> Value:
    """A slice along an axis that is filled up.

    Args:
        n: The node.
        x: The tensor.
        axis: The axis.
        start: The first position.
        stop: The position behind the last one; -1 before the first one.
        step: From one position to the next one.
        from_end: Whether start and stop are counted from the end.
    """
    size = x.shape[axis]
    key = (*(slice(None),) * axis, slice(start, None if stop < 0 else stop, step))
    sizes = row_sizes(n, x, axis)
    if sizes is None or (start, stop, step, from_end[1]) == (0, 1, 1, False):
        return x[key]
    if step == -1 and start == size - 1 and stop < 0:
        return alike(n, picked(n, x, axis, sizes - 1 - OPS.iota((1, size), 1, "int32")), x)
    if start == size - 1 and stop >= size and from_end[0]:
        y = picked(n, x, axis, sizes - 1)
        return n.context.padding.declare(y, {
            a: m for a, m in n.context.padding.of(x).items() if a != axis})
    if step < 1 or from_end[0] or not (stop >= size or from_end[1]):
        n.mixes(f"takes positions {start} to {stop} along axis {axis}: those from one to the end, "
                "to a number from the end, the first or the last one are known for every size")
    left_out = max(size - stop, 0)
    return resized(n, x[key], x, {axis: (1, step - 1 - start - left_out, step)})


def joined(n: Node, parts: list[Value], axis: int) -> Value:
    """Tensors one after the other along an axis: each begins where the one before really ends."""
    padding, y = n.context.padding, OPS.concat(*parts, axis=axis)
    axis %= y.rank
    if not any(is_padded(n, x, {axis}) for x in parts):
        return y
    masks = {m for x in parts if (m := padding.of(x).get(axis))}
    if len(masks) > 1:
        n.mixes(f"joins tensors of different sizes along axis {axis}")
    [mask] = masks
    sizes = OPS.sum(OPS.cast(mask.value, "int32"), 1, True)
    at = OPS.iota((1, y.shape[axis]), 1, "int32")
    begin: Value | int = 0  # of a part, for each row
    whole, moved = 0, at
    for x in parts:
        moved = OPS.where(OPS.greater_equal(at, begin), at - begin + whole, moved)
        whole += x.shape[axis]
        begin = begin + (sizes if axis in padding.of(x) else x.shape[axis])
    last_alone = all(axis not in padding.of(x) for x in parts[:-1])
    if not last_alone:
        y = picked(n, y, axis, OPS.broadcast_to(moved, (mask.batch, y.shape[axis])))
    padded = {a: m for x in parts for a, m in padding.of(x).items() if a != axis} | {axis: mask}
    times = sum(axis in padding.of(x) for x in parts)
    fixed = sum(x.shape[axis] for x in parts if axis not in padding.of(x))
    padding.resize(padded, axis, (times, fixed, 1), y.shape[axis])
    return padding.declare(y, padded)


def padded_by(n: Node, x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """A tensor with more positions at both ends of an axis, taken from its real ones."""
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
    return resized(n, picked(n, x, axis, at), x, {axis: (1, before + after, 1)})

