"""Quantiles and their kin, with and without NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import Axes, ones_in, widened

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
_X, _LESS = Sample(((3, 4),)), Sample(((2, 3, 4),), {"axis": (0, 2), "q": 0.3, "keepdims": True})


def _quantiles(x: Value, q: Any, axis: Axes, method: str, keepdims: bool, skips_nans: bool
               ) -> Value:
    """Quantiles along axes, NaN for no numbers; those of several q are a new first axis."""
    if method not in METHODS:
        raise shape_error(f"ops.quantile(method={method!r}) must be one of {', '.join(METHODS)}")
    [x] = as_floats(x)
    shares = np.asarray(q, np.float64)
    if shares.ndim > 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise shape_error(f"ops.quantile takes q from 0 to 1, one or a list of them, not {q!r}")
    axes = normal_axes(axis, x.rank)
    others = tuple(a for a in range(x.rank) if a not in axes)
    rest = tuple(x.shape[a] for a in others)
    shape = ones_in(x.shape, axes) if keepdims else rest
    if not x.size:
        return OPS.full((*shares.shape, *shape), math.nan, x.dtype)
    rows = OPS.reshape(OPS.transpose(x, (*others, *axes)), (math.prod(rest), -1))
    missing = OPS.isnan(rows)
    exact = widened(x).dtype  # 16 bits would round positions
    count = OPS.sum(OPS.cast(OPS.logical_not(missing), exact), axis=-1, keepdims=True)
    ordered = OPS.sort(rows, axis=-1)  # NaN last
    place = OPS.maximum(count - 1.0, 0.0) * shares.reshape(1, -1).astype(exact.working)
    low = OPS.floor(place)
    if method == "nearest":
        low = OPS.round(place)
    elif method == "higher":
        low = OPS.ceil(place)
    high = OPS.ceil(place) if method in ("linear", "midpoint") else low
    lower, upper = (widened(OPS.take_along_axis(ordered, OPS.cast(position, "int32"), -1))
                    for position in (low, high))
    share = OPS.full((), 0.5, exact) if method == "midpoint" else place - low
    alone = OPS.equal(lower, upper)  # also two infinities, whose difference is NaN
    y = OPS.where(alone, lower, lower + (OPS.where(alone, lower, upper) - lower) * share)
    lost = OPS.equal(count, 0.0) if skips_nans else OPS.any(missing, axis=-1, keepdims=True)
    y = OPS.transpose(OPS.where(lost, math.nan, y), (1, 0))
    return OPS.cast(OPS.reshape(y, (*shares.shape, *shape)), x.dtype)


@composition(Sample(((3, 4),), {"q": [0.2, 0.5]}), _LESS)
def quantile(x: Value, q: Any, axis: Axes = None, method: str = "linear",
             keepdims: bool = False) -> Value:
    """The number below which a share of the numbers lies.

    Args:
        x: Tensor of numbers.
        q: The share, from 0 to 1, or a list of such.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        method: How to interpolate between two numbers: `"linear"`, `"lower"`, `"higher"`,
            `"midpoint"` or `"nearest"`. Default: `"linear"`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes; with a first axis for a list of shares.
    """
    return _quantiles(x, q, axis, method, keepdims, False)


@composition(Sample(((3, 4),), {"q": 30}))
def percentile(x: Value, q: Any, axis: Axes = None, method: str = "linear",
               keepdims: bool = False) -> Value:
    """The quantile for a share in percent.

    Args:
        x: Tensor of numbers.
        q: The share, from 0 to 100, or a list of such.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        method: As that of `quantile`. Default: `"linear"`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes; with a first axis for a list of shares.
    """
    return _quantiles(x, np.asarray(q, np.float64) / 100, axis, method, keepdims, False)


@composition(_X)
def median(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The number in the middle, or the mean of the two there.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes.
    """
    return _quantiles(x, 0.5, axis, "linear", keepdims, False)


@composition(Sample(((3, 4),), {"q": [0.2, 0.5]}), _LESS)
def nanquantile(x: Value, q: Any, axis: Axes = None, method: str = "linear",
                keepdims: bool = False) -> Value:
    """The quantile of the numbers that are not NaN.

    Args:
        x: Tensor of numbers.
        q: The share, from 0 to 1, or a list of such.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        method: As that of `quantile`. Default: `"linear"`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes; with a first axis for a list of shares.
    """
    return _quantiles(x, q, axis, method, keepdims, True)


@composition(Sample(((3, 4),), {"q": 30}))
def nanpercentile(x: Value, q: Any, axis: Axes = None, method: str = "linear",
                  keepdims: bool = False) -> Value:
    """The percentile of the numbers that are not NaN.

    Args:
        x: Tensor of numbers.
        q: The share, from 0 to 100, or a list of such.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        method: As that of `quantile`. Default: `"linear"`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes; with a first axis for a list of shares.
    """
    return _quantiles(x, np.asarray(q, np.float64) / 100, axis, method, keepdims, True)


@composition(_X)
def nanmedian(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The median of the numbers that are not NaN.

    Args:
        x: Tensor of numbers.
        axis: Axis or axes of the numbers. `None` means all. Default: `None`.
        keepdims: Whether to keep those axes, with size 1. Default: `False`.

    Returns:
        A float tensor without those axes.
    """
    return _quantiles(x, 0.5, axis, "linear", keepdims, True)
