"""The gradient of the largest elements of overlapping windows.

By the general rules, each element of each window gets its share, and windows are then added up. A
processor does that for each phase of the stride by itself. The threads of other machines compute
each element of the gradient from the windows that it is in, so no windows are written to memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value
from ztorch.ops.windows import Shape


def windows_last(x: Value, axes: Shape, size: Shape, stride: Shape) -> tuple[Value, Shape]:
    """All windows of x, and the axes of their elements: right before the channels, which stay last,
    where they fill vectors."""
    windows, last = OPS.windows(x, axes, size, stride), x.rank - 1
    order = (*range(last), *range(last + 1, windows.rank), last)
    return OPS.transpose(windows, order), tuple(range(last, windows.rank - 1))


def _hits(y: Value, x: Value, axes: Shape, size: Shape, stride: Shape) -> tuple[Value, Shape]:
    """1 for each element of a window that is as large as the largest, y; and their axes."""
    windows, places = windows_last(OPS.stop_gradient(x), axes, size, stride)
    return OPS.cast(OPS.equal(windows, _at(y, places, windows.shape)), x.dtype), places


def _at(x: Value, places: Shape, shape: Shape) -> Value:
    """A number of each window, for each of its elements."""
    ones = tuple(1 if axis in places else n for axis, n in enumerate(shape))
    return OPS.broadcast_to(OPS.reshape(x, ones), shape)


def _pooled_grad(o: Any, g: Value, y: Value, result: Value, x: Value, **window: Shape) -> tuple:
    hits, places = _hits(y, x, **window)
    return None, UNPOOLED(g / o.sum(hits, axis=places), y, x, **window)


def _batch(one: Value, many: Examples, axes: Shape, **attrs: Shape) -> Value:
    return one.op(*many.spread(), axes=tuple(a + 1 for a in axes), **attrs)


def _unpooled_infer(share: Value, y: Value, x: Value, **window: Shape) -> tuple[Shape, DType]:
    return x.shape, x.dtype


def _unpooled_numpy(share: Any, y: Any, x: Any, axes: Shape, size: Shape, stride: Shape) -> Any:
    out = np.zeros_like(x)
    for place in np.ndindex(*size):
        at = [slice(None)] * x.ndim
        for axis, k, s in zip(axes, place, stride, strict=True):
            at[axis] = slice(k, k + (y.shape[axis] - 1) * s + 1, s)
        out[tuple(at)] += np.equal(x[tuple(at)], y).astype(x.dtype) * share
    return out


def _unpooled_grad(o: Any, g: Value, result: Value, share: Value, y: Value, x: Value,
                   **window: Shape) -> tuple:
    hits, places = _hits(y, x, **window)
    return o.sum(hits * windows_last(g, **window)[0], axis=places), None, None


def _by_windows(share: Value, y: Value, x: Value, axes: Shape, size: Shape,
                stride: Shape) -> Value:
    """The shares of all elements of windows, added up."""
    hits, places = _hits(y, x, axes, size, stride)
    last = x.rank - 1
    order = (*range(last), hits.rank - 1, *places)  # windows, in the form of `windows`
    shares = OPS.transpose(hits * _at(share, places, hits.shape), order)
    return OPS.overlap_add(shares, axes, tuple(x.shape[a] for a in axes), stride)


def _by_elements(share: Value, y: Value, x: Value, **window: Shape) -> Value:
    """The same from the windows of each element: a share of zero where there is none."""
    largest, shares = (_REACHING(v, x, **window) for v in (y, share))
    hits = OPS.cast(OPS.equal(OPS.broadcast_to(x, largest.shape), largest), x.dtype)
    return OPS.sum(hits * shares, axis=tuple(range(len(window["axes"]))))


def _turns(size: Shape, stride: Shape) -> Shape:
    """The most windows that an element is in, along each axis."""
    return tuple(-(-k // s) for k, s in zip(size, stride, strict=True))


def _reaching_numpy(v: Any, x: Any, axes: Shape, size: Shape, stride: Shape) -> Any:
    out = np.zeros((*_turns(size, stride), *x.shape), v.dtype)
    for turn in np.ndindex(*_turns(size, stride)):
        part, inside = v, np.ones((), bool)
        for axis, t, k, s in zip(axes, turn, size, stride, strict=True):
            at = np.arange(x.shape[axis])
            window = at // s - t
            test = (window >= 0) & (window < v.shape[axis]) & (at % s + t * s < k)
            part = np.take(part, np.clip(window, 0, v.shape[axis] - 1), axis)
            inside = inside & test.reshape(-1, *(1,) * (x.ndim - axis - 1))
        out[turn] = np.where(inside, part, 0)
    return out


def _reaching_body(e: Any, index: Any, axes: Shape, size: Shape, stride: Shape) -> Any:
    turn, at, inside = index[:len(axes)], list(index[len(axes):]), None
    for axis, t, k, s in zip(axes, turn, size, stride, strict=True):
        place = at[axis] % s + t * s  # in the window
        at[axis] = at[axis] // s - t
        tests = [e.within((at[axis],), (0,), (e.shape(0)[axis],))]
        if k % s:
            tests.append(e.within((place,), (0,), (k,)))
        for test in tests:
            inside = test if inside is None else inside if test is None else e.b.and_(inside, test)
    v = e.read(0, tuple(at), where=inside)
    return v if inside is None else e.b.select(inside, v, 0)


# For each turn, a number of the window that reaches an element of x, the last one first; zero where
# there is none.
_REACHING = Op("reaching", "map", lambda v, x, axes, size, stride: (
    (*_turns(size, stride), *x.shape), v.dtype), _reaching_numpy, body=_reaching_body, cost=4)


# The largest elements of windows, with the tensor whose windows they are of.
POOLED = Op("pooled", "map", lambda result, x, **attrs: (result.shape, result.dtype),
            numpy=lambda result, x, **attrs: result, grad=_pooled_grad,
            body=lambda e, index, **attrs: e.read(0, index), movement=True, alias=True,
            batch=_batch)
# The sum of the shares of all windows in which an element is the largest.
UNPOOLED = Op("unpooled", "map", _unpooled_infer, _unpooled_numpy, _unpooled_grad, cost=64,
              batch=_batch, others=_by_elements, serial=_by_windows)
