"""Functions of `zt.array_api` that need more than one op: variances, repeated elements, slices, and
indices that count from the end."""

from __future__ import annotations

import math
from typing import Any

from ztorch.arrays.tensor import Tensor, compute
from ztorch.graph.op import normal_axes


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated: all the same number of times, or each a number of times that a tensor
    holds. The values of that tensor are computed first."""
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    y: Tensor = compute("repeat", (x, counts), {"axis": axis})
    return y


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements of x along an axis, at the positions in an integer tensor; negative positions count
    from the end."""
    [along] = normal_axes(axis, x.ndim)
    at = from_start(indices, x.shape[along])
    y: Tensor = compute("take_along_axis", (x, at), {"axis": axis})
    return y


def from_start(indices: Tensor, size: int) -> Tensor:
    """Positions counted from the start; negative ones count from the end in the input."""
    if indices.dtype.kind == "u":
        return indices
    if indices.dtype.bits < 32:  # a narrower dtype may not hold the size
        indices = compute("cast", (indices, "int32"), {})
    negative = compute("less", (indices, 0), {})
    y: Tensor = compute("where", (negative, compute("add", (indices, size), {}), indices), {})
    return y


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without that axis."""
    if -x.ndim <= axis < x.ndim and not x.shape[axis]:
        return ()
    parts: tuple[Tensor, ...] = compute("unstack", (x,), {"axis": axis})
    return parts


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False
        ) -> Tensor:
    """The standard deviation along axes; NaN where a correction leaves no elements."""
    return _spread("std", x, axis, correction, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False
        ) -> Tensor:
    """The variance along axes; NaN where a correction leaves no elements."""
    return _spread("var", x, axis, correction, keepdims)


def _spread(op: str, x: Tensor, axis: Any, correction: float, keepdims: Any) -> Tensor:
    count = math.prod(x.shape[k] for k in normal_axes(axis, x.ndim))
    undefined = correction and count <= correction
    y: Tensor = compute(op, (x,), {"axis": axis, "correction": 0 if undefined else correction,
                                   "keepdims": keepdims})
    return y * math.nan if undefined else y
