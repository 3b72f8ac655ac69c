"""Sliding windows over a tensor.

Taking windows only chooses which element to read, so it is free until something copies them. The
gradient adds up the contributions of overlapping windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples, with_first
from ztorch.graph.op import OPS, Sample, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value

Shape = tuple[int, ...]
Sizes = int | tuple[int, ...]


# -- geometry --------------------------------------------------------------------------------------


def for_each(label: str, size: Sizes, count: int) -> Shape:
    """A positive number for each of `count` axes; a single one stands for all."""
    sizes = (size,) * count if isinstance(size, int) else tuple(size)
    if len(sizes) != count or any(n < 1 for n in sizes):
        raise shape_error(f"{label} {size} must be {count} positive numbers, or one for all axes")
    return sizes


def spans(size: Shape, dilation: Shape) -> Shape:
    """The extent of a window along each axis, gaps included.

    >>> spans((3, 2), (1, 4))
    (3, 5)
    """
    return tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))


def paddings(padding: Any, lengths: Shape, span: Shape, stride: Shape) -> tuple[Shape, Shape]:
    """(low, high) of each axis. "same" makes ceil(length / stride) windows, and where it needs an
    odd number of elements, the one more comes last.

    >>> paddings("same", (8, 7), (3, 2), (2, 1))
    ((0, 0), (1, 1))
    """
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise shape_error(f"padding {padding!r} is neither 'valid' nor 'same'",
                              fix="a pair (before, after) for each axis works as well")
        if padding == "valid":
            return (0,) * len(span), (0,) * len(span)
        total = [max((-(-n // s) - 1) * s + k - n, 0)
                 for n, k, s in zip(lengths, span, stride, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    pairs = [tuple(pair) for pair in padding]
    if len(pairs) != len(span) or any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise shape_error(f"padding {padding} must be a pair (before, after) for each of "
                          f"{len(span)} axes")
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def pad_axes(x: Value, low: Shape, high: Shape, value: float = 0) -> Value:
    """x padded on the axes between the batch and the channels."""
    return OPS.pad(x, (0, *low, 0), (0, *high, 0), value)


# -- a copy for each position in a window, and its view of the image -------------------------------


def _pick_infer(x: Value, axes: Shape, counts: Shape, stride: Shape,
                dilation: Shape) -> tuple[Shape, DType]:
    shape = list(x.shape[len(axes):])
    for axis, count in zip(axes, counts, strict=True):
        shape[axis] = count
    return (*shape, *x.shape[:len(axes)]), x.dtype


def _pick_body(e: Any, index: Any, axes: Shape, counts: Shape, stride: Shape,
               dilation: Shape) -> Any:
    at, place = list(index[:-len(axes)]), index[-len(axes):]
    for axis, k, s, d in zip(axes, place, stride, dilation, strict=True):
        at[axis] = at[axis] * s + k * d
    return e.read(0, (*place, *at))


def _places(sizes: Shape, axes: Shape, counts: Shape, stride: Shape, dilation: Shape,
            rank: int) -> Any:
    """Each place in a window, with the slices of the elements that it sees."""
    for place in np.ndindex(*sizes):
        at = [slice(None)] * rank
        for axis, k, n, s, d in zip(axes, place, counts, stride, dilation, strict=True):
            at[axis] = slice(k * d, k * d + (n - 1) * s + 1, s)
        yield place, tuple(at)


def _pick_numpy(x: Any, axes: Shape, counts: Shape, stride: Shape, dilation: Shape) -> Any:
    sizes, rank = x.shape[:len(axes)], x.ndim - len(axes)
    parts = [x[place][at]
            for place, at in _places(sizes, axes, counts, stride, dilation, rank)]
    return np.stack(parts, -1).reshape(*parts[0].shape, *sizes)


def _pick_grad(o: Any, g: Value, y: Value, x: Value, axes: Shape, counts: Shape, stride: Shape,
               dilation: Shape) -> tuple:
    lengths = tuple(x.shape[len(axes) + a] for a in axes)
    return (PLACE(g, axes=axes, lengths=lengths, stride=stride, dilation=dilation),)


def _place_infer(x: Value, axes: Shape, lengths: Shape, stride: Shape,
                 dilation: Shape) -> tuple[Shape, DType]:
    shape = list(x.shape[:-len(axes)])
    for axis, n in zip(axes, lengths, strict=True):
        shape[axis] = n
    return (*x.shape[-len(axes):], *shape), x.dtype


def _place_body(e: Any, index: Any, axes: Shape, lengths: Shape, stride: Shape,
                dilation: Shape) -> Any:
    place, at, inside = index[:len(axes)], list(index[len(axes):]), None
    for axis, k, s, d in zip(axes, place, stride, dilation, strict=True):
        first = at[axis] - k * d  # start of the window that has this element at position k
        tests = [e.within((first,), (0,), ((e.shape(0)[axis] - 1) * s + 1,))]
        if s > 1:
            tests.append(e.b.eq(e.value(first % s), 0))
        for t in tests:
            inside = t if inside is None else inside if t is None else e.b.and_(inside, t)
        at[axis] = first // s
    x = e.read(0, (*at, *place), where=inside)
    return x if inside is None else e.b.select(inside, x, 0)


def _place_numpy(x: Any, axes: Shape, lengths: Shape, stride: Shape, dilation: Shape) -> Any:
    sizes, shape = x.shape[-len(axes):], list(x.shape[:-len(axes)])
    counts = tuple(shape[a] for a in axes)
    for axis, n in zip(axes, lengths, strict=True):
        shape[axis] = n
    out = np.zeros((*sizes, *shape), x.dtype)
    for place, at in _places(sizes, axes, counts, stride, dilation, len(shape)):
        position = (..., *place)
        out[place][at] = x[position]
    return out


def _place_grad(o: Any, g: Value, y: Value, x: Value, axes: Shape, lengths: Shape, stride: Shape,
                dilation: Shape) -> tuple:
    counts = tuple(x.shape[a] for a in axes)
    return (_PICK(g, axes=axes, counts=counts, stride=stride, dilation=dilation),)


def _pick_batch(one: Value, many: Examples, axes: Shape, **attrs: Any) -> Value:
    [x], places = many.args, len(axes)
    inner = OPS.transpose(x, (*range(1, places + 1), 0, *range(places + 1, x.rank)))
    return one.op(inner, axes=tuple(a + 1 for a in axes), **attrs)


def _place_batch(one: Value, many: Examples, axes: Shape, **attrs: Any) -> Value:
    y = one.op(many.args[0], axes=tuple(a + 1 for a in axes), **attrs)
    return OPS.transpose(y, with_first(len(axes), y.rank))


# Each is the other's gradient.
_PICK = Op("pick", "map", _pick_infer, _pick_numpy, _pick_grad, _pick_body, movement=True,
           batch=_pick_batch)
PLACE = Op("place", "map", _place_infer, _place_numpy, _place_grad, _place_body, cost=4,
            batch=_place_batch)


def _windowed_grad(o: Any, g: Value, y: Value, result: Value, x: Value, axes: Shape,
                   stride: Shape) -> tuple:
    return g, OPS.overlap_add(g, axes, tuple(x.shape[a] for a in axes), stride)


def _windowed_batch(one: Value, many: Examples, axes: Shape, stride: Shape) -> Value:
    return one.op(*many.spread(), axes=tuple(a + 1 for a in axes), stride=stride)


# Windows more than one element apart, with the tensor that they are of. Its gradient adds them up
# by phases of the stride.
_WINDOWED = Op("windowed", "map", lambda result, x, **attrs: (result.shape, result.dtype),
               numpy=lambda result, x, **attrs: result, grad=_windowed_grad,
               body=lambda e, index, **attrs: e.read(0, index), movement=True, alias=True,
               batch=_windowed_batch)


# -- windows ---------------------------------------------------------------------------------------


def _windows_numpy(x: Any, axes: Shape, size: Sizes, stride: Sizes = 1, dilation: Sizes = 1) -> Any:
    rank = x.ndim
    sizes, strides, gaps = (
        (n,) * len(axes) if isinstance(n, int) else n for n in (size, stride, dilation))
    for axis, k, s, d in zip(axes, sizes, strides, gaps, strict=True):
        x = np.lib.stride_tricks.sliding_window_view(x, (k - 1) * d + 1, axis)[..., ::d]
        x = x[tuple(slice(None, None, s if a == axis else None) for a in range(rank))]
    return x


@op(Sample(((2, 5, 7),), {"axes": (1,), "size": 3}, dtypes="fs"),
    Sample(((2, 7, 9, 2),), {"axes": (1, 2), "size": (3, 2), "stride": (2, 3), "dilation": (1, 2)}),
    Sample(((2, 7, 4, 2),), {"axes": (1, 2), "size": 2, "stride": 2}),
    Sample(((7, 3),), {"axes": (0,), "size": 1, "stride": 3}), numpy=_windows_numpy)
def windows(x: Value, axes: Shape, size: Sizes, stride: Sizes = 1, dilation: Sizes = 1) -> Value:
    """All windows of x. Their elements are new last axes; their positions replace `axes`.

    Args:
        x: Tensor of any dtype.
        axes: Axes along which windows move.
        size: Size of the window: an integer, or one for each axis.
        stride: Step of the window: an integer, or one for each axis. Default: `1`.
        dilation: Distance between the elements that a window reads: an integer, or one for each
            axis. Default: `1`.

    Returns:
        A tensor with `len(axes)` more axes, of the dtype of `x`.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> from ztorch.graph.op import constant
        >>> evaluate([windows(constant(np.arange(5.0)), (0,), 3)], {})[0].tolist()
        [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    """
    axes = tuple(normal_axes(a, x.rank)[0] for a in axes)
    size, stride, dilation = (for_each(label, sizes, len(axes)) for label, sizes in (
        ("window size", size), ("stride", stride), ("dilation", dilation)))
    span = spans(size, dilation)
    for axis, k in zip(axes, span, strict=True):
        if k > x.shape[axis]:
            raise shape_error(f"windows that reach over {k} elements do not fit axis {axis} of",
                              x.shape, fix="use smaller windows, or pad first")
    counts = tuple((x.shape[a] - k) // s + 1 for a, k, s in zip(axes, span, stride, strict=True))
    if span == size:
        apart = tuple(k if n == 1 else s for k, s, n in zip(size, stride, counts, strict=True))
        if all(k <= s and n * s <= x.shape[a]
               for a, k, s, n in zip(axes, size, apart, counts, strict=True)):
            return _side_by_side(x, axes, size, apart, counts)
    by_phases = set(stride) != {1} == set(dilation)
    many = OPS.broadcast_to(OPS.stop_gradient(x) if by_phases else x, (*size, *x.shape))
    picked = _PICK(many, axes=axes, counts=counts, stride=stride, dilation=dilation)
    return _WINDOWED(picked, x, axes=axes, stride=stride) if by_phases else picked


def _side_by_side(x: Value, axes: Shape, size: Shape, stride: Shape, counts: Shape) -> Value:
    """Windows that share no element: x in another shape, which makes the gradient cheap as well."""
    of = {a: (n, s, k) for a, n, s, k in zip(axes, counts, stride, size, strict=True)}
    used = tuple(of[a][0] * of[a][1] if a in of else n for a, n in enumerate(x.shape))
    x = OPS.slice(x, (0,) * x.rank, (1,) * x.rank, used)
    split: list[int] = []
    window_shape: list[int] = []
    plain: list[int] = []
    place: dict[int, int] = {}
    for a, n in enumerate(used):
        plain.append(len(split))
        if a in of:
            place[a] = len(split) + 1
        split += of[a][:2] if a in of else (n,)
        window_shape += (of[a][0], of[a][2]) if a in of else (n,)
    x = OPS.reshape(x, tuple(split))
    x = OPS.slice(x, (0,) * x.rank, (1,) * x.rank, tuple(window_shape))
    return OPS.transpose(x, (*plain, *(place[a] for a in axes)))
