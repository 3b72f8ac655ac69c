"""Images read at fractional positions: AffineGrid, GridSample, RoiAlign and DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.casts import narrowed, widened
from ztorch.interchange.onnx.nodes.resizing import cubic_weights

Taps = list[tuple[Value, Value]]  # of one axis: positions, as floats, and their weights


def read_at(x: Value, taps: Sequence[Taps], padding: str = "zeros",
            borders: Sequence[tuple[float, float]] = ()) -> Value:
    """Interpolates images at points.

    Args:
        x: Images, (batch, channels, *sizes).
        taps: For each axis the positions to read, each (batch, points), with their weights.
        padding: Beyond the borders: `"zeros"`, `"border"` or `"reflection"`. Default: `"zeros"`.
        borders: The range of positions of each axis, for reflection. Default: `()`.

    Returns:
        (batch, channels, points).
    """
    batch, channels, *sizes = x.shape
    flat = OPS.reshape(x, (batch, channels, -1))
    total = None
    for corner in itertools.product(*taps):
        offset, product = None, None
        for k, (position, weight) in enumerate(corner):
            last = sizes[k] - 1.0
            if padding == "zeros":
                inside = OPS.bitwise_and(OPS.greater_equal(position, 0.0),
                                         OPS.less_equal(position, last))
                weight = OPS.where(inside, weight, 0.0)
            elif padding == "reflection":
                position = OPS.trunc(_reflect(position, *borders[k]))
            index = OPS.cast(OPS.clip(position, 0.0, last), "int32")
            offset = index if offset is None else offset * sizes[k] + index
            product = weight if product is None else product * weight
        assert offset is not None and product is not None
        indices = OPS.broadcast_to(OPS.expand_dims(offset, 1), (batch, channels, offset.shape[1]))
        weights = OPS.cast(OPS.expand_dims(product, 1), x.dtype)
        part = OPS.take_along_axis(flat, indices, 2) * weights
        total = part if total is None else total + part
    assert total is not None
    return total


def _reflect(x: Value, low: float, high: float) -> Value:
    """Positions reflected at both ends of a range."""
    length = high - low
    if length <= 0:
        return OPS.full_like(x, low)
    folded = OPS.remainder(OPS.abs(x - low), 2 * length)
    return OPS.where(OPS.greater(folded, length), 2 * length - folded, folded) + low


def linear_taps(x: Value) -> Taps:
    """The two neighbors of each position."""
    low = OPS.floor(x)
    return [(low, 1.0 - (x - low)), (low + 1.0, x - low)]


def _cubic_taps(x: Value) -> Taps:
    """The four neighbors of each position."""
    low = OPS.floor(x)
    return [(low + (k - 1.0), w) for k, w in enumerate(cubic_weights(x - low))]


@node("AffineGrid")
def _affine_grid(n: Node) -> Result:
    """Computed here because the standard's definition is wrong for a batch of one image."""
    theta, shape, corners = n.value(0), n.ints("size", 1), n.attr("align_corners", 0)
    if shape is None or len(shape) != theta.shape[1] + 2 or shape[0] != theta.shape[0]:
        raise ValueError(f"theta of {theta.shape} makes no grids of {shape}")
    sizes = shape[2:]
    lines = [np.linspace(-1, 1, size) if corners and size > 1 else
             (2 * np.arange(size) + 1) / size - 1 for size in reversed(sizes)]
    points = np.stack([*np.meshgrid(*reversed(lines), indexing="ij")[::-1], np.ones(sizes)], -1)
    y = OPS.matmul(constant(points.reshape(1, -1, len(sizes) + 1), theta.dtype),
                   OPS.swapaxes(theta, 1, 2))
    return OPS.reshape(y, (*theta.shape[:1], *sizes, len(sizes)))


@node("GridSample")
def _grid_sample(n: Node) -> Result:
    x, grid = widened(n.value(0)), n.value(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        n.attr("mode", "linear"), n.attr("mode", "linear"))
    padding, corners = n.attr("padding_mode", "zeros"), n.attr("align_corners", 0)
    batch, sizes, points = x.shape[0], x.shape[2:], grid.shape[1:-1]
    taps, borders = [], []
    for k, size in enumerate(sizes):
        at = OPS.reshape(grid[..., len(sizes) - 1 - k], (batch, -1))
        at = (at + 1.0) * ((size - 1) / 2) if corners else (at + 1.0) * (size / 2) - 0.5
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        if mode == "nearest":
            at = OPS.round(at)
        if padding == "border":
            out = OPS.bitwise_or(OPS.less(at, low), OPS.greater(at, high))
            at = OPS.where(out, OPS.clip(at, 0.0, size - 1.0), at)
        elif padding == "reflection":
            at = _reflect(at, low, high)
        elif padding != "zeros":
            n.unsupported(f"padding_mode={padding!r}")
        borders.append((low, high))
        if mode == "nearest":
            taps.append([(OPS.trunc(at) if padding == "reflection" else at, OPS.ones_like(at))])
        elif mode in ("linear", "cubic"):
            taps.append(linear_taps(at) if mode == "linear" else _cubic_taps(at))
        else:
            n.unsupported(f"mode={mode!r}")
    y = OPS.reshape(read_at(x, taps, padding, borders), (*x.shape[:2], *points))
    return narrowed(y, n.value(0).dtype)


@node("RoiAlign", but="sampling_ratio=0 only for constant regions")
def _roi_align(n: Node) -> Result:
    x, rois, rows = n.value(0), n.value(1), n.value(2)
    count = rois.shape[0]
    bins = (n.attr("output_height", 1), n.attr("output_width", 1))
    half = n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel" and n.opset >= 16
    scale, mode = n.attr("spatial_scale", 1.0), n.attr("mode", "avg")
    rois = rois * scale - (0.5 if half else 0.0)
    x = OPS.take(x, rows, 0)  # the image of each region
    results: list[Value] = []
    samples = n.attr("sampling_ratio", 0)
    if not count:
        return OPS.zeros((0, x.shape[1], *bins), x.dtype)
    if not samples:  # as many as the elements of a bin, which differ between regions
        regions = n.array(1).astype(np.float32) * scale
        spans = regions[:, [3, 2]] - regions[:, [1, 0]]
        spans = spans if half else np.maximum(spans, 1.0)
        counts = np.maximum(np.ceil(spans / np.array(bins)), 1).astype(int)
    else:
        counts = np.full((count, 2), samples)
    groups = {(int(a), int(b)): np.flatnonzero((counts == (a, b)).all(1)) for a, b in counts}
    order = np.concatenate([*groups.values()])
    for per_bin, members in groups.items():
        at = constant(members.astype(np.int32))
        results.append(_regions(OPS.take(x, at, 0), OPS.take(rois, at, 0), bins, per_bin, half,
                                mode))
    y = OPS.concat(*results, axis=0) if len(results) > 1 else results[0]
    if (order == np.arange(count)).all():
        return y
    return OPS.take(y, constant(np.argsort(order).astype(np.int32)), 0)


def _regions(x: Value, rois: Value, bins: tuple[int, int], per_bin: tuple[int, ...], half: bool,
             mode: str) -> Value:
    """The bins of one region of each image."""
    count, channels, *sizes = x.shape
    taps: list[Taps] = []
    inside = None
    for k in range(2):
        start, end = rois[:, 1 - k], rois[:, 3 - k]
        span = end - start if half else OPS.maximum(end - start, 1.0)
        steps = (np.arange(bins[k] * per_bin[k]) + 0.5) / (per_bin[k] * bins[k])
        at = OPS.expand_dims(start, 1) + OPS.expand_dims(span, 1) * constant(steps, x.dtype)
        in_range = OPS.bitwise_and(OPS.greater_equal(at, -1.0), OPS.less_equal(at, float(sizes[k])))
        at = OPS.clip(at, 0.0, sizes[k] - 1.0)
        shape = (count, -1, 1) if k == 0 else (count, 1, -1)
        grid = (count, bins[0] * per_bin[0], bins[1] * per_bin[1])
        in_range = OPS.broadcast_to(OPS.reshape(in_range, shape), grid)
        inside = in_range if inside is None else OPS.bitwise_and(inside, in_range)
        at = OPS.reshape(OPS.broadcast_to(OPS.reshape(at, shape), grid), (count, -1))
        taps.append(linear_taps(at))
    assert inside is not None
    parts_of = (count, channels, bins[0], per_bin[0], bins[1], per_bin[1])
    inside = OPS.reshape(inside, (count, 1, -1))
    if mode == "max":  # of the weighted elements, not of their sums
        parts = [read_at(x, [[row], [column]], "border") for row in taps[0] for column in taps[1]]
        y = OPS.max(OPS.stack(*parts, axis=0), axis=0)
        return OPS.max(OPS.reshape(OPS.where(inside, y, 0.0), parts_of), axis=(3, 5))
    y = OPS.where(inside, read_at(x, taps, "border"), 0.0)
    return OPS.mean(OPS.reshape(y, parts_of), axis=(3, 5))


@node("DeformConv")
def _deform_conv(n: Node) -> Result:
    x, kernel, offset = n.value(0), n.value(1), n.value(2)
    batch, channels = x.shape[:2]
    count, size, out = kernel.rank - 2, kernel.shape[2:], offset.shape[2:]
    stride, dilation = (n.ints(name) or (1,) * count for name in ("strides", "dilations"))
    pads, groups = n.ints("pads") or (0,) * (2 * count), n.attr("group", 1)
    shifts = n.attr("offset_group", 1)
    offset = OPS.reshape(offset, (batch * shifts, *size, count, *out))
    taps: list[Taps] = []
    for k in range(count):
        shape = [1] * (1 + 2 * count)
        shape[1 + k], shape[1 + count + k] = size[k], out[k]
        fixed = (np.arange(size[k])[:, None] * dilation[k] - pads[k]
                 + np.arange(out[k]) * stride[k]).reshape(shape)
        key = (slice(None),) * (1 + count) + (k,)
        at = offset[key] + constant(fixed, x.dtype)
        taps.append(linear_taps(OPS.reshape(at, (batch * shifts, -1))))
    images = OPS.reshape(x, (batch * shifts, channels // shifts, *x.shape[2:]))
    columns = OPS.reshape(read_at(images, taps), (
        batch, shifts, channels // shifts, math.prod(size), math.prod(out)))
    if n.has(4):
        mask = OPS.reshape(n.value(4), (batch, shifts, 1, math.prod(size), math.prod(out)))
        columns = columns * mask
    columns = OPS.reshape(columns, (batch, groups, -1, math.prod(out)))
    weights = OPS.reshape(kernel, (groups, kernel.shape[0] // groups, -1))
    y = OPS.reshape(OPS.matmul(weights, columns), (batch, -1, *out))
    return y + OPS.reshape(n.value(3), (-1, *(1,) * count)) if n.has(3) else y
