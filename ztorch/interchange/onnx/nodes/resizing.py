"""Resize and Upsample: along each axis, a matrix with the weight of each old element in each new
one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import LIMIT
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.casts import narrowed, widened
from ztorch.interchange.onnx.nodes.convolution import channels_first, channels_last
from ztorch.interchange.onnx.padded_tensors import is_padded, picked, row_sizes
from ztorch.interchange.onnx.padded_tensors import resized as of_real_size
from ztorch.layers.real_positions import spread
from ztorch.ops.blending import blend


@dataclass(frozen=True)
class ResizedAxis:
    """One axis, and how it is resized."""

    axis: int
    old: int  # elements
    new: int
    scale: float  # new elements for each old one; need not equal new / old
    region: tuple[float, float]  # of tf_crop_and_resize: start and end, as fractions of the axis
    target: int | None  # its position in the input of sizes; None if scales are given


@node("Resize", "Upsample")
def _resize(n: Node) -> Result:
    source, mode = n.value(0), n.attr("mode", "nearest")
    x = source if mode == "nearest" else widened(source)
    for name in ("nearest_mode", "cubic_coeff_a", "antialias", "exclude_outside",
                 "extrapolation_value"):
        n.attr(name)  # read here, since only some modes use them
    for k in (1, 2):  # the region and scales: files of opset 11 have empty ones
        n.has(k)
    outside = None
    resized = [change for change in _axes(n, x)
               if change.new != change.old or change.scale != 1.0 or change.region != (0.0, 1.0)]
    for change in resized:
        if change.new < 1 or change.new * change.old > 16 * LIMIT:
            raise ValueError(f"{change.old} elements of an axis made {change.new}")
    for change in resized:
        if is_padded(n, x, {change.axis}):
            x = _resize_rows(n, x, change, mode)
            continue
        at = _sources(n, change)
        x = _nearest(n, x, change, at) if mode == "nearest" else _weighted(n, x, change, at, mode)
        if _transformation(n) == "tf_crop_and_resize":
            beyond = (at < 0) | (at > change.old - 1)
            shape = tuple(-1 if k == change.axis else 1 for k in range(x.rank))
            part = beyond.reshape(shape)
            outside = part if outside is None else outside | part
    if outside is not None and outside.any():
        number = n.attr("extrapolation_value", 0.0)
        x = OPS.where(constant(outside), number if x.dtype.is_float else int(number), x)
    return narrowed(x, source.dtype)


def _axes(n: Node, x: Value) -> list[ResizedAxis]:
    """Each resized axis, from the sizes or scales of the node."""
    axes = [range(x.rank)[a] for a in n.ints("axes") or range(x.rank)]
    old = [x.shape[a] for a in axes]
    scales_at = 1 if n.op == "Upsample" or n.opset < 11 else 2  # the input with the scales
    if n.has(3) and n.array(3).size:
        new = [int(m) for m in n.array(3).reshape(-1)]
        scales = [m / k for m, k in zip(new, old, strict=True)]
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(scales)
            new = [math.floor(scale * m + 0.5) for m in old]
            scales = [scale] * len(old)
    else:
        scales = [float(s) for s in (n.array(scales_at).reshape(-1) if n.has(scales_at) else
                                     n.attr("scales"))]
        new = [math.floor(m * s) for m, s in zip(old, scales, strict=True)]
    regions = [(0.0, 1.0)] * len(axes)
    if _transformation(n) == "tf_crop_and_resize":
        numbers = [float(a) for a in n.array(1).reshape(-1)]
        regions = list(zip(numbers[:len(axes)], numbers[len(axes):], strict=True))
    by_size = n.has(3) and n.array(3).size
    return [ResizedAxis(*row, k if by_size else None)
            for k, row in enumerate(zip(axes, old, new, scales, regions, strict=True))]


# Transformations in which a fixed scale gives the same sources for any size.
_SIZE_INDEPENDENT = ("half_pixel", "pytorch_half_pixel", "asymmetric")
_MARGIN = 2  # elements after the last one that a new element may be a mix of


def _resize_rows(n: Node, x: Value, change: ResizedAxis, mode: str) -> Value:
    """Resizes an axis along which rows have different sizes. Elements after the last real one are
    copies of it. Where sizes are given, each row has its own scale."""
    if n.attr("antialias", 0) or n.attr("exclude_outside", 0) or (
            n.attr("keep_aspect_ratio_policy", "stretch") != "stretch"):
        n.mixes("antialias, exclude_outside or keep_aspect_ratio_policy along an open axis")
    padding, axis = n.context.padding, change.axis
    sizes = row_sizes(n, x, axis)
    new: Value | int = change.new
    assert sizes is not None
    scale = Fraction(change.scale).limit_denominator(64)
    if change.target is None and abs(scale - Fraction(change.scale)) > 1e-6:
        n.mixes(f"scale {change.scale} along an open axis: export it with sizes")
    step = scale.numerator, 0, scale.denominator
    if change.target is None and _transformation(n) not in _SIZE_INDEPENDENT:
        new = OPS.floor_divide(sizes * step[0], step[2])
        return of_real_size(n, _interpolate_rows(n, x, change, mode, sizes, new), x, {axis: step})
    if change.target is None:
        at = OPS.minimum(OPS.iota((1, change.old + _MARGIN), 1, "int32"), sizes - 1)
        longer = picked(x, axis, at)
        wide = replace(change, old=change.old + _MARGIN)
        places = _sources(n, change)
        y = (_nearest if mode == "nearest" else _weighted)(n, longer, wide, places, *(
            () if mode == "nearest" else (mode,)))
        return of_real_size(n, y, x, {axis: step})
    padded = padding.of(x)
    if n.varies_with_sizes(3, change.target + 1)[change.target]:
        target = padding.of_size(padded[axis].axis, change.new)
        if target is None:
            n.mixes(f"a size of {change.new} that no tensor before it has: give scales")
        new, padded[axis] = OPS.sum(OPS.cast(target.value, "int32"), 1, True), target
    else:
        del padded[axis]
    return padding.declare(_interpolate_rows(n, x, change, mode, sizes, new), padded)


def _interpolate_rows(n: Node, x: Value, change: ResizedAxis, mode: str, old: Value,
                      new: Value | int) -> Value:
    """Interpolates rows, each from `old` real elements to `new` ones."""
    at = _row_sources(n, change, old, new)
    if mode == "nearest":
        nearest = _ROUNDINGS[n.attr("nearest_mode", "round_prefer_floor")](OPS, at)
        position = OPS.maximum(OPS.cast(nearest, "int32"), 0)
        return picked(x, change.axis, OPS.minimum(position, old - 1))
    first = OPS.floor(at)
    offset = at - first
    taps = ((1.0 - offset, offset) if mode == "linear" else
            cubic_weights(offset, n.attr("cubic_coeff_a", -0.75)))
    total: Value | None = None
    for shift, weight in enumerate(taps, 0 if mode == "linear" else -1):
        position = OPS.minimum(OPS.maximum(OPS.cast(first, "int32") + shift, 0), old - 1)
        weight = OPS.cast(spread(weight, x.rank, change.axis), x.dtype)
        part = picked(x, change.axis, position) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


def _row_sources(n: Node, change: ResizedAxis, old: Value, new: Value | int) -> Value:
    """The position of each new element among the old ones of its row, (batch, elements)."""
    k = OPS.cast(OPS.iota((1, change.new), 1, "int32"), "float32")
    m = OPS.cast(old, "float32")
    count = OPS.cast(new, "float32") if isinstance(new, Value) else float(new)
    transformation = _transformation(n)
    if transformation == "align_corners":
        return k * (m - 1.0) / OPS.maximum(count - 1.0 + 0.0 * m, 1.0)
    if transformation == "asymmetric":
        return k * m / count
    if transformation not in ("half_pixel", "pytorch_half_pixel"):
        n.mixes(f"coordinate_transformation_mode={transformation!r} along an open axis")
    at = (k + 0.5) * m / count - 0.5
    if transformation == "pytorch_half_pixel":
        at = OPS.where(OPS.equal(count + 0.0 * m, 1.0), 0.0, at)
    return at


# The nearest position by `nearest_mode`: functions of (OPS or NumPy, positions).
_ROUNDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "floor": lambda xp, at: xp.floor(at), "ceil": lambda xp, at: xp.ceil(at),
    "round_prefer_floor": lambda xp, at: xp.ceil(at - 0.5),
    "round_prefer_ceil": lambda xp, at: xp.floor(at + 0.5)}


def _transformation(n: Node) -> str:
    old = n.op == "Upsample" or n.opset < 11
    name: str = "asymmetric" if old else n.attr("coordinate_transformation_mode", "half_pixel")
    return name


def _sources(n: Node, change: ResizedAxis) -> np.ndarray:
    """The position of each new element among the old ones. In float32, like ONNX Runtime, because
    rounding decides which of two neighbors is nearest."""
    mode, scale = _transformation(n), np.float32(change.scale)
    k = np.arange(change.new, dtype=np.float32)
    exact = change.scale * change.old  # how many elements the scale would give
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and change.new > 1):
        return (k + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "pytorch_half_pixel":
        return np.zeros(1)
    if mode == "half_pixel_symmetric":
        offset = change.old / 2 * (1 - change.new / exact)
        return np.float32(offset) + (k + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "asymmetric":
        return k / scale
    if mode == "tf_half_pixel_for_nn":  # of opset 11 and 12
        return (k + np.float32(0.5)) / scale
    if mode == "align_corners":
        return k * ((change.old - 1) / (exact - 1) if exact != 1 else 0.0)
    if mode == "tf_crop_and_resize":
        start, end = change.region
        if change.new == 1:
            return np.array([(start + end) * (change.old - 1) / 2])
        return start * (change.old - 1) + k * ((end - start) * (change.old - 1) / (change.new - 1))
    n.unsupported(f"coordinate_transformation_mode={mode!r}")


def _nearest(n: Node, x: Value, change: ResizedAxis, at: np.ndarray) -> Value:
    mode = n.attr("nearest_mode", "round_prefer_floor")
    if n.op == "Upsample" or n.opset < 11:  # which have no nearest_mode; as in ONNX Runtime
        mode = "ceil" if change.scale < 1 else "floor"
    if mode not in _ROUNDINGS:
        raise ValueError(f"nearest_mode={mode!r}")
    axis = change.axis
    index = np.clip(_ROUNDINGS[mode](np, at), 0, change.old - 1).astype(np.int32)
    times, remainder = divmod(len(index), change.old)
    if not remainder and np.array_equal(index, np.repeat(np.arange(change.old), times)):
        if axis > 1:  # channels last, as convolutions around it compute
            size = tuple(times if k == axis else 1 for k in range(2, x.rank))
            return channels_first(OPS.upsample(channels_last(x), size))
        before, m, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
        wide = OPS.broadcast_to(OPS.expand_dims(x, axis + 1), (*before, m, times, *after))
        return OPS.reshape(wide, (*before, m * times, *after))
    return OPS.take(x, constant(index), axis=axis)


def _weighted(n: Node, x: Value, change: ResizedAxis, at: np.ndarray, mode: str) -> Value:
    """Blends the old elements near each new one."""
    if mode not in ("linear", "cubic"):
        n.unsupported(f"mode={mode!r}")
    matrix = weights(at, change.old, mode, n.attr("cubic_coeff_a", -0.75),
                     min(change.scale, 1.0) if n.attr("antialias", 0) else 1.0,
                     bool(n.attr("exclude_outside", 0)))
    return blend(x, matrix, change.axis)


def weights(at: np.ndarray, old: int, mode: str, a: float = -0.75, scale: float = 1.0,
            inside_only: bool = False) -> np.ndarray:
    """The weight of each of `old` elements in interpolated ones.

    Args:
        at: Positions of the interpolated elements among the old ones.
        old: The number of old elements. Positions beyond the ends read the first or the last one.
        mode: `"linear"` or `"cubic"`.
        a: Slope of the cubic curve at distance 1. Default: `-0.75`.
        scale: Below 1, the curve is wider by 1 / scale, which smooths. Default: `1.0`.
        inside_only: Whether positions beyond the ends have no weight. Default: `False`.

    >>> weights(np.array([0.25, 1.0]), 2, "linear").tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    reach = math.ceil((1 if mode == "linear" else 2) / scale)
    first = np.floor(at).astype(int) - reach + 1
    places = first[:, None] + np.arange(2 * reach)
    distance = np.abs(places - np.asarray(at, np.float64)[:, None]) * scale
    curve = np.clip(1 - distance, 0, None) if mode == "linear" else cubic(distance, a)
    if inside_only:
        curve = np.where((places >= 0) & (places < old), curve, 0)
    curve = curve / curve.sum(1, keepdims=True)
    matrix = np.zeros((len(at), old))
    rows = np.broadcast_to(np.arange(len(at))[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, old - 1)), curve)
    return matrix


def cubic(distance: Any, a: float) -> Any:
    """Keys' cubic convolution at a distance from its middle."""
    near = ((a + 2) * distance - (a + 3)) * distance ** 2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def cubic_weights(offset: Value, a: float = -0.75) -> Sequence[Value]:
    """The weights of four neighbors; `offset`: of a position from the second of them."""

    def near(d: Value) -> Value:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Value) -> Value:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return far(offset + 1.0), near(offset), near(1.0 - offset), far(2.0 - offset)
