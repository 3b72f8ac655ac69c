"""NonMaxSuppression, which chooses boxes, and MaxRoiPool, which pools regions of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import LIMIT
from ztorch.interchange.onnx.node import NeedsNumbers, Node, Result, node
from ztorch.ops.control import scan

_PADDING = -1  # marks rows of a result without a box


@node("NonMaxSuppression", but="of constant boxes and scores, or with pad_results=True")
def _non_max_suppression(n: Node) -> Result:
    most = int(n.number(2)) if n.has(2) else 0
    overlap = float(n.number(3)) if n.has(3) else 0.0
    lowest = float(n.number(4)) if n.has(4) else -math.inf
    by_center = bool(n.attr("center_point_box", 0))
    try:
        boxes, scores = n.array(0).astype(np.float64), n.array(1)
    except NeedsNumbers as error:
        if not n.pads_results:
            raise NeedsNumbers(f"{error}; or pass pad_results=True, for a result with as many "
                               "rows as it can choose", error.inputs) from None
        return _choose_at_run_time(n.value(0), n.value(1), most, overlap, lowest, by_center)
    low, high = _corners(np, boxes, by_center)
    if scores.size * boxes.shape[1] > 64 * LIMIT:
        raise ValueError(f"{boxes.shape[1]} boxes")
    rows = [(batch, kind, box) for batch in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in _choose(low[batch], high[batch], scores[batch, kind], most, overlap,
                               lowest)]
    return np.array(rows, np.int64).reshape(-1, 3)


def _corners(xp: Any, boxes: Any, by_center: bool) -> tuple[Any, Any]:
    """The lower and the upper corner of each box, by NumPy or by ops of a graph."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if by_center:
        return first - second * 0.5, first + second * 0.5
    return xp.minimum(first, second), xp.maximum(first, second)


def _choose(low: np.ndarray, high: np.ndarray, scores: np.ndarray, most: int, overlap: float,
            lowest: float) -> list[int]:
    """The boxes of one class that are kept, best first."""
    area = np.prod(high - low, axis=1)
    chosen: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(chosen) >= most:
            break
        if not scores[box] > lowest:
            continue
        begin, end = np.maximum(low[box], low[chosen]), np.minimum(high[box], high[chosen])
        common = np.prod(np.maximum(end - begin, 0), axis=1)
        union = area[box] + area[chosen] - common
        if not (common > overlap * union).any():
            chosen.append(int(box))
    return chosen


def _choose_at_run_time(boxes: Value, scores: Value, most: int, overlap: float, lowest: float,
                        by_center: bool) -> Value:
    """The rows of all classes, chosen ones first. Each iteration of a loop takes the best box of
    every class, and drops the boxes that overlap with it."""
    batch, kinds, count = scores.shape
    iterations = max(min(most, count), 0)
    low, high = _corners(OPS, boxes, by_center)
    area = OPS.prod(high - low, axis=-1)  # (batch, count)

    def step(candidates: Value, _: Value) -> tuple[Value, Value]:
        best = OPS.argmax(candidates, axis=-1)  # (batch, kinds)
        exists = OPS.greater(OPS.max(candidates, axis=-1), -math.inf)
        at = OPS.expand_dims(best, -1)
        begin, end = (OPS.expand_dims(OPS.take_along_axis(
            x, OPS.broadcast_to(at, (batch, kinds, 2)), 1), 2) for x in (low, high))
        begin = OPS.maximum(begin, OPS.expand_dims(low, 1))  # (batch, kinds, count, 2)
        end = OPS.minimum(end, OPS.expand_dims(high, 1))
        common = OPS.prod(OPS.maximum(end - begin, 0.0), axis=-1)
        union = OPS.take_along_axis(area, best, 1)
        union = OPS.expand_dims(union, -1) + OPS.expand_dims(area, 1) - common
        dropped = OPS.logical_or(OPS.greater(common, overlap * union),
                                 OPS.equal(OPS.iota(candidates.shape, 2), at))
        return OPS.where(dropped, -math.inf, candidates), OPS.where(exists, best, _PADDING)

    eligible = OPS.where(OPS.greater(scores, lowest), scores, -math.inf)
    _, best_boxes = scan(step, eligible, constant(np.arange(iterations, dtype=np.int32)))
    best_boxes = OPS.transpose(best_boxes, (1, 2, 0))
    number = np.arange(batch * kinds).reshape(batch, kinds, 1)
    is_box = OPS.greater_equal(best_boxes, 0)
    rows = OPS.stack(*(OPS.reshape(OPS.where(is_box, x, _PADDING), (-1,)) for x in (
        constant((number // kinds).astype(np.int32)), constant((number % kinds).astype(np.int32)),
        best_boxes)), axis=1)
    order = OPS.argsort(OPS.cast(OPS.logical_not(OPS.reshape(is_box, (-1,))), "int32"))
    return OPS.cast(OPS.take(rows, order, 0), "int64")


@node("MaxRoiPool")
def _max_roi_pool(n: Node) -> Result:
    x, rois, bins = n.value(0), n.value(1), n.ints("pooled_shape") or ()
    corners = rois[:, 1:] * n.attr("spatial_scale", 1.0)
    corners = OPS.trunc(corners + OPS.where(OPS.less(corners, 0.0), -0.5, 0.5))  # rounds as C does
    y = OPS.take(x, OPS.cast(rois[:, 0], "int32"), 0)  # the image of each region
    empty = None
    for axis in (3, 2):
        begins, ends = _bins(corners[:, 3 - axis], corners[:, 5 - axis], bins[axis - 2],
                             x.shape[axis])
        at = OPS.iota((1, 1, x.shape[axis]), 2, x.dtype)
        inside = OPS.bitwise_and(OPS.greater_equal(at, OPS.expand_dims(begins, 2)),
                                 OPS.less(at, OPS.expand_dims(ends, 2)))
        inside = OPS.expand_dims(OPS.expand_dims(inside, 1), 1)  # (regions, 1, 1, bins, size)
        other_size = y.shape[2] if axis == 3 else y.shape[3]
        lines = y if axis == 3 else OPS.transpose(y, (0, 1, 3, 2))
        lines = OPS.reshape(lines, (*y.shape[:2], other_size, 1, x.shape[axis]))
        y = OPS.max(OPS.where(inside, lines, -math.inf), axis=-1)
        has_none = OPS.less_equal(ends, begins)
        has_none = OPS.reshape(has_none, (-1, 1, 1, bins[1]) if axis == 3 else (
            -1, 1, bins[0], 1))
        empty = has_none if empty is None else OPS.logical_or(empty, has_none)
        y = y if axis == 3 else OPS.transpose(y, (0, 1, 3, 2))
    return OPS.where(empty, 0.0, y)


def _bins(start: Value, end: Value, count: int, size: int) -> tuple[Value, Value]:
    """The start and end of each bin of each region, (regions, bins), on an axis of that size."""
    size_of_bin = OPS.expand_dims(OPS.maximum(end - start + 1.0, 1.0) / float(count), 1)
    numbers = constant(np.arange(count)[None], start.dtype)
    start = OPS.expand_dims(start, 1)
    begins, ends = OPS.floor(numbers * size_of_bin), OPS.ceil((numbers + 1.0) * size_of_bin)
    return (OPS.clip(start + begins, 0.0, float(size)), OPS.clip(start + ends, 0.0, float(size)))
