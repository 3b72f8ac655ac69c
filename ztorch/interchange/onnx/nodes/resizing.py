"""Resize and Upsample: along each axis a matrix with the share of each old element in each new."""

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
from ztorch.interchange.onnx.real_parts import is_padded, picked, row_sizes
from ztorch.interchange.onnx.real_parts import resized as of_real_size
from ztorch.layers.real_positions import spread


@dataclass(frozen=True)
class Resized:
    """One axis, and how it is resized."""

    axis: int
    old: int  # elements
    new: int
    scale: float  # new elements for each old one; need not be new / old
    region: tuple[float, float]  # of `tf_crop_and_resize`: start and end, as shares of the axis
    target: int | None  # the number of its size among those that are given; None for a scale


@node("Resize", "Upsample")
def _resize(n: Node) -> Result:
    own, mode = n.value(0), n.attr("mode", "nearest")
    x = own if mode == "nearest" else widened(own)
    for name in ("nearest_mode", "cubic_coeff_a", "antialias", "exclude_outside"):
        n.attr(name)  # each has a meaning in some modes alone
    outside = None
    resized = [one for one in _axes(n, x)
               if one.new != one.old or one.scale != 1.0 or one.region != (0.0, 1.0)]
    for one in resized:
        if one.new < 1 or one.new * one.old > 16 * LIMIT:
            raise ValueError(f"{one.old} elements of an axis made {one.new}")
    for one in resized:
        if is_padded(n, x, {one.axis}):
            x = _of_rows(n, x, one, mode)
            continue
        at = _sources(n, one)
        x = _nearest(n, x, one, at) if mode == "nearest" else _weighted(n, x, one, at, mode)
        if _transformation(n) == "tf_crop_and_resize":
            here = (at < 0) | (at > one.old - 1)
            shape = tuple(-1 if k == one.axis else 1 for k in range(x.rank))
            part = here.reshape(shape)
            outside = part if outside is None else outside | part
    if outside is not None and outside.any():
        number = n.attr("extrapolation_value", 0.0)
        x = OPS.where(constant(outside), number if x.dtype.is_float else int(number), x)
    return narrowed(x, own.dtype)


def _axes(n: Node, x: Value) -> list[Resized]:
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
    return [Resized(*row, k if by_size else None)
            for k, row in enumerate(zip(axes, old, new, scales, regions, strict=True))]


_FIXED = ("half_pixel", "pytorch_half_pixel", "asymmetric")  # sources, if the scale is fixed
_BEHIND = 2  # elements behind the last one that a new element may be made of


def _of_rows(n: Node, x: Value, one: Resized, mode: str) -> Value:
    """Resized along an axis whose rows end at different places: elements behind the last real one
    are like it, and a row's own sizes are the scale where sizes are given."""
    if n.attr("antialias", 0) or n.attr("exclude_outside", 0) or (
            n.attr("keep_aspect_ratio_policy", "stretch") != "stretch"):
        n.mixes("antialias, exclude_outside or keep_aspect_ratio_policy along an open axis")
    padding, axis = n.context.padding, one.axis
    sizes = row_sizes(n, x, axis)
    new: Value | int = one.new
    assert sizes is not None
    scale = Fraction(one.scale).limit_denominator(64)
    if one.target is None and abs(scale - Fraction(one.scale)) > 1e-6:
        n.mixes(f"scale {one.scale} along an open axis: export it with sizes")
    step = scale.numerator, 0, scale.denominator
    if one.target is None and _transformation(n) not in _FIXED:
        new = OPS.floor_divide(sizes * step[0], step[2])
        return of_real_size(n, _taken(n, x, one, mode, sizes, new), x, {axis: step})
    if one.target is None:
        at = OPS.minimum(OPS.iota((1, one.old + _BEHIND), 1, "int32"), sizes - 1)
        longer = padding.declare(picked(n, x, axis, at), {
            a: m for a, m in padding.of(x).items() if a != axis})
        wide = replace(one, old=one.old + _BEHIND)
        places = _sources(n, one)
        y = (_nearest if mode == "nearest" else _weighted)(n, longer, wide, places, *(
            () if mode == "nearest" else (mode,)))
        return of_real_size(n, y, x, {axis: step})
    padded = padding.of(x)
    if n.follow_sizes(3, one.target + 1)[one.target]:
        target = padding.of_size(padded[axis].axis, one.new)
        if target is None:
            n.mixes(f"a size of {one.new} that no tensor before it has: give scales")
        new, padded[axis] = OPS.sum(OPS.cast(target.value, "int32"), 1, True), target
    else:
        del padded[axis]
    return padding.declare(_taken(n, x, one, mode, sizes, new), padded)


def _taken(n: Node, x: Value, one: Resized, mode: str, old: Value, new: Value | int) -> Value:
    """The sums of the neighbours of new elements, from `old` to `new` elements in each row."""
    def fraction(a: Value | int) -> Value | float:
        return OPS.cast(a, "float32") if isinstance(a, Value) else float(a)

    k = OPS.cast(OPS.iota((1, one.new), 1, "int32"), "float32")
    m, count, way = fraction(old), fraction(new), _transformation(n)
    if way == "align_corners":
        at = k * (m - 1.0) / OPS.maximum(count - 1.0 + 0.0 * m, 1.0)
    elif way == "asymmetric":
        at = k * m / count
    elif way in ("half_pixel", "pytorch_half_pixel"):
        at = (k + 0.5) * m / count - 0.5
        at = OPS.where(OPS.equal(count + 0.0 * m, 1.0), 0.0, at) if way[0] == "p" else at
    else:
        n.mixes(f"coordinate_transformation_mode={way!r} along an open axis")
    if mode == "nearest":
        ways: dict[str, Callable[[Value], Value]] = {
            "floor": OPS.floor, "ceil": OPS.ceil,
            "round_prefer_floor": lambda a: OPS.ceil(a - 0.5),
            "round_prefer_ceil": lambda a: OPS.floor(a + 0.5)}
        nearest = ways[n.attr("nearest_mode", "round_prefer_floor")](at)
        place = OPS.maximum(OPS.cast(nearest, "int32"), 0)
        return picked(n, x, one.axis, OPS.minimum(place, old - 1))
    first = OPS.floor(at)
    rest = at - first
    taps = ((1.0 - rest, rest) if mode == "linear" else
            cubic_weights(rest, n.attr("cubic_coeff_a", -0.75)))
    total: Value | None = None
    for shift, share in enumerate(taps, 0 if mode == "linear" else -1):
        place = OPS.minimum(OPS.maximum(OPS.cast(first, "int32") + shift, 0), old - 1)
        part = picked(n, x, one.axis, place) * OPS.cast(spread(share, x.rank, one.axis), x.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def _transformation(n: Node) -> str:
    old = n.op == "Upsample" or n.opset < 11
    name: str = "asymmetric" if old else n.attr("coordinate_transformation_mode", "half_pixel")
    return name


def _sources(n: Node, one: Resized) -> np.ndarray:
    """The position of each new element among the old ones; in float32, as ONNX Runtime has it, for
    rounding decides which of two neighbours is the nearest."""
    mode, k, scale = _transformation(n), np.arange(one.new, dtype=np.float32), np.float32(one.scale)
    exact = one.scale * one.old  # how many elements the scale would give
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and one.new > 1):
        return (k + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "pytorch_half_pixel":
        return np.zeros(1)
    if mode == "half_pixel_symmetric":
        offset = one.old / 2 * (1 - one.new / exact)
        return np.float32(offset) + (k + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "asymmetric":
        return k / scale
    if mode == "align_corners":
        return k * ((one.old - 1) / (exact - 1) if exact != 1 else 0.0)
    if mode == "tf_crop_and_resize":
        start, end = one.region
        if one.new == 1:
            return np.array([(start + end) * (one.old - 1) / 2])
        return start * (one.old - 1) + k * ((end - start) * (one.old - 1) / (one.new - 1))
    n.unsupported(f"coordinate_transformation_mode={mode!r}")


def _nearest(n: Node, x: Value, one: Resized, at: np.ndarray) -> Value:
    mode = n.attr("nearest_mode", "round_prefer_floor")
    if n.op == "Upsample" or n.opset < 11:
        mode = "floor"
    rounded: dict[str, Callable[..., Any]] = {
        "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda a: np.ceil(a - 0.5),
        "round_prefer_ceil": lambda a: np.floor(a + 0.5)}
    if mode not in rounded:
        raise ValueError(f"nearest_mode={mode!r}")
    axis = one.axis
    index = np.clip(rounded[mode](at), 0, one.old - 1).astype(np.int32)
    times, rest = divmod(len(index), one.old)
    if not rest and np.array_equal(index, np.repeat(np.arange(one.old), times)):
        if axis > 1:  # with channels last, as the convolutions around it
            size = tuple(times if k == axis else 1 for k in range(2, x.rank))
            return channels_first(OPS.upsample(channels_last(x), size))
        before, m, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
        wide = OPS.broadcast_to(OPS.expand_dims(x, axis + 1), (*before, m, times, *after))
        return OPS.reshape(wide, (*before, m * times, *after))
    return OPS.take(x, constant(index), axis=axis)


def _weighted(n: Node, x: Value, one: Resized, at: np.ndarray, mode: str) -> Value:
    """Multiplies by a matrix with the share of each old element in each new one."""
    if mode not in ("linear", "cubic"):
        n.unsupported(f"mode={mode!r}")
    matrix = shares(at, one.old, mode, n.attr("cubic_coeff_a", -0.75),
                    min(one.scale, 1.0) if n.attr("antialias", 0) else 1.0,
                    bool(n.attr("exclude_outside", 0)))
    axis = one.axis
    before, after = x.shape[:axis], x.shape[axis + 1:]
    is_last = math.prod(after) == 1
    table = n.context.padding.declare(constant(matrix.T if is_last else matrix, x.dtype), {})
    if is_last:
        rows = OPS.reshape(x, (math.prod(before), one.old))
        return OPS.reshape(OPS.matmul(rows, table), (*before, len(at), *after))
    flat = OPS.reshape(x, (math.prod(before), one.old, math.prod(after)))
    return OPS.reshape(OPS.matmul(table, flat), (*before, len(at), *after))


def shares(at: np.ndarray, old: int, mode: str, a: float = -0.75, scale: float = 1.0,
           inside_only: bool = False) -> np.ndarray:
    """The share of each of `old` elements in elements that are at `at`.

    Args:
        at: Positions among the old elements.
        old: How many there are; beyond the ends they are like the last one.
        mode: `"linear"` or `"cubic"`.
        a: Slope of the cubic curve at distance 1. Default: `-0.75`.
        scale: How far the curve is stretched; below 1 it smooths. Default: `1.0`.
        inside_only: Whether elements beyond the ends have no share. Default: `False`.

    >>> shares(np.array([0.25, 1.0]), 2, "linear").tolist()
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


def cubic_weights(rest: Value, a: float = -0.75) -> Sequence[Value]:
    """The shares of four neighbours, by the distance of a position from the second of them."""

    def near(d: Value) -> Value:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Value) -> Value:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return far(rest + 1.0), near(rest), near(1.0 - rest), far(2.0 - rest)
