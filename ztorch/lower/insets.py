"""Values that are stored inside larger ones: within a border, beside the other parts of a
concatenation, or in turns with them. Kernels write them there directly, so nothing is copied."""

from __future__ import annotations

import math
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.value import Op, Value, not_evaluated
from ztorch.lower.index import Index
from ztorch.lower.positions import flatten, unflatten

Shape = tuple[int, ...]


def _inset_shape(x: Value, *before: Value, shape: Shape, low: Shape) -> tuple[Shape, DType]:
    return shape, x.dtype


def _inset_body(e: Any, index: Any, shape: Shape, low: Shape) -> Any:
    return e.read(0, tuple(i - a for i, a in zip(index, low, strict=True)))


def _border_shape(fill: Value, shape: Shape, low: Shape, inner: Shape) -> tuple[Shape, DType]:
    return shape, fill.dtype


def _interleaved_shape(*xs: Value, shape: Shape, run: int) -> tuple[Shape, DType]:
    return shape, xs[0].dtype


def _interleaved_body(e: Any, index: Any, shape: Shape, run: int) -> Any:
    flat = _position_in_part(flatten(index, shape), run, e.count)
    first, *_ = [e.read(k, unflatten(flat, e.shape(k))) for k in range(e.count)]
    return first


# A tensor that contains x at the offset `low`. The rest of the buffer is unchanged: a border, or
# another inset.
INSET = Op("inset", "map", _inset_shape, not_evaluated, body=_inset_body, cost=1)
# A tensor that is `fill` around an inside of shape `inner`, which is not stored.
BORDER = Op("border", "map", _border_shape, not_evaluated,
            body=lambda e, index, **attrs: e.read(0, ()), cost=1, partial=True)
# Values of one size, in turns: `run` elements of each, then the next ones of each. A kernel
# computes one element of all of them at a time. The body gives the first.
INTERLEAVED = Op("interleaved", "map", _interleaved_shape, not_evaluated,
                 body=_interleaved_body, cost=1)


def part_of(v: Value) -> Value:
    """The value whose elements a kernel computes for v: the part of an inset, the first of
    interleaved values, else v itself."""
    return v.args[0] if v.op in (INSET, INTERLEAVED) else v


def position(v: Value, flat: Index) -> Index:
    """The position of an element of `part_of(v)` in v."""
    if v.op is INTERLEAVED:
        run = v.attrs["run"]
        return flat // run * (run * len(v.args)) + flat % run
    if v.op is not INSET:
        return flat
    index = unflatten(flat, v.args[0].shape)
    return flatten([i + a for i, a in zip(index, v.attrs["low"], strict=True)], v.shape)


def position_in_part(v: Value, flat: Index) -> Index:
    """The position in each of the interleaved values of v, for one of the first in v."""
    return _position_in_part(flat, v.attrs["run"], len(v.args))


def _position_in_part(flat: Index, run: int, count: int) -> Index:
    return flat // (run * count) * run + flat % run


def content_before(v: Value) -> Value | None:
    """The earlier content of the buffer in which v is an inset."""
    return v.args[1] if v.op is INSET and len(v.args) > 1 else None


def stored(v: Value) -> int:
    """The number of elements of v that a kernel stores."""
    return v.size - math.prod(v.attrs["inner"]) if v.op is BORDER else part_of(v).size
