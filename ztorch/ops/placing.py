"""Writing a few elements of a tensor at positions that are data, as caches need it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.op import shape_error
from ztorch.graph.value import Op, Value


def _infer(x: Value, new: Value, position: Value, axis: int) -> tuple[tuple[int, ...], DType]:
    if new.shape != (*x.shape[:axis], 1, *x.shape[axis + 1:]) or position.shape != x.shape[:1] or (
            axis == 0 or new.dtype != x.dtype):
        raise shape_error(f"each row takes one entry along axis {axis}, and one position:",
                          x.shape, new.shape, position.shape)
    return x.shape, x.dtype


def _numpy(x: Any, new: Any, position: Any, axis: int) -> Any:
    place = np.asarray(position).reshape(-1, *(1,) * (x.ndim - 1))
    count = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return np.where(count == place, new, x)


def _body(e: Any, index: Any, axis: int) -> Any:
    place = e.b.cast(e.read(2, index[:1]), dtype=e.b.index)
    entry = e.read(1, (*index[:axis], 0, *index[axis + 1:]))
    return e.b.select(e.b.eq(place, e.value(index[axis])), entry, e.read(0, index))


# x, (rows, ...), with an entry of each row, of size 1 along the axis, at the row's position.
# Nothing is written where it is outside. Where x is overwritten, only entries are touched.
PLACED = Op("placed", "map", _infer, _numpy, body=_body, cost=3, partial=True)
