"""Movement that cuts, extends, joins or reverses tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Sample, constant, normal_axes, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ops.movement import Shape, reshape


def _slice_infer(x: Value, start: Shape, step: Shape, size: Shape) -> tuple[Shape, DType]:
    return size, x.dtype


def _slice_numpy(x: Any, start: Shape, step: Shape, size: Shape) -> Any:
    for axis, (a, s, n) in enumerate(zip(start, step, size, strict=True)):
        x = np.take(x, a + s * np.arange(n), axis)
    return x


def _slice_grad(o: Any, g: Value, y: Value, x: Value, start: Shape, step: Shape,
                size: Shape) -> tuple:
    if 0 in size:
        return (o.zeros_like(x),)
    if any(s < 0 for s in step):
        axes = tuple(k for k, s in enumerate(step) if s < 0)
        start = tuple(a + s * (n - 1) if s < 0 else a
                      for a, s, n in zip(start, step, size, strict=True))
        step, g = tuple(abs(s) for s in step), o.flip(g, axes)
    if any(s != 1 for s in step):  # each stepped axis as periods, and the places of a period
        cells, wide, low = list[int](), list[int](), list[int]()
        for n, a, s, m in zip(x.shape, start, step, size, strict=True):
            cells += [m] if s == 1 else [m, 1]
            wide += [n] if s == 1 else [-(-n // s), s]
            low += [a] if s == 1 else [a // s, a % s]
        high = [n - a - m for n, a, m in zip(wide, low, cells, strict=True)]
        g = o.pad(o.reshape(g, tuple(cells)), tuple(low), tuple(high))
        g = o.reshape(g, tuple(-(-n // s) * s for n, s in zip(x.shape, step, strict=True)))
        return (o.slice(g, (0,) * x.rank, (1,) * x.rank, x.shape),)
    high = [n - a - m for n, a, m in zip(x.shape, start, g.shape, strict=True)]
    return (o.pad(g, start, tuple(high)),)


_SLICE = Op("slice", "map", _slice_infer, _slice_numpy, _slice_grad, movement=True,
            body=lambda e, index, start, step, size: e.read(
                0, tuple(i * s + a for i, s, a in zip(index, step, start, strict=True))),
            batch=lambda one, many, start, step, size: slice_(
                many.args[0], (0, *start), (1, *step), (many.count, *size)),
            reorder=lambda order, **attrs: {name: tuple(n[k] for k in order)
                                            for name, n in attrs.items()})


@op(Sample(((5, 7),), {"start": (1, 2), "step": (2, 1), "size": (2, 4)}, dtypes="fsub"),
    Sample(((6,),), {"start": (5,), "step": (-2,), "size": (3,)}),
    primitive=_SLICE, numpy=_slice_numpy, name="slice")
def slice_(x: Value, start: Shape, step: Shape, size: Shape) -> Value:
    """Every `step`-th element along each axis, from a start.

    Args:
        x: Tensor of any dtype.
        start: First position on each axis.
        step: Distance between positions on each axis; negative ones go backwards.
        size: Number of elements on each axis.

    Returns:
        A tensor of shape `size` and the dtype of `x`.
    """
    for axis, (a, s, n, dim) in enumerate(zip(start, step, size, x.shape, strict=True)):
        last = a + s * (n - 1)
        if n > 0 and not (0 <= a < dim and 0 <= last < dim):
            raise shape_error(f"slice from {a} to {last} on axis {axis} leaves", x.shape)
    if (tuple(size) == x.shape and all(s == 1 for s in step)):
        return x
    return _SLICE(x, start=tuple(start), step=tuple(step), size=tuple(size))


@op(aliases=("get_item",))
def slice_by(x: Value, key: Any) -> Value:
    """Python's `x[key]`, with integers, slices, None and an ellipsis.

    Args:
        x: Tensor of any dtype.
        key: Index, or a tuple of them.

    Returns:
        A tensor of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.slice_by(np.arange(6.0), slice(None, None, 2))
        array([0., 2., 4.])
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > x.rank:
        raise shape_error(f"{used} indices for", x.shape)
    dots = [at for at, k in enumerate(keys) if k is Ellipsis]  # `in` would compare arrays
    if dots:
        at = dots[0]
        keys[at:at + 1] = [slice(None)] * (x.rank - used)
    else:
        keys += [slice(None)] * (x.rank - used)
    start, step, size, shape = [], [], [], []
    dims = iter(x.shape)
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        n = next(dims)
        if isinstance(k, slice):
            picked = range(n)[k]
            start.append(picked.start if len(picked) else 0)
            step.append(picked.step)
            size.append(len(picked))
            shape.append(len(picked))
        else:
            if np.ndim(k) or not hasattr(k, "__index__") or isinstance(k, bool):
                raise shape_error(f"a tensor cannot be indexed by {k!r}", fix="for positions in an "
                                  "array use ops.take, for a condition ops.where")
            if not -n <= k < n:
                raise shape_error(f"index {k} is out of range for", x.shape)
            start.append(k % n)
            step.append(1)
            size.append(1)
    return reshape(slice_(x, tuple(start), tuple(step), tuple(size)), tuple(shape))


def _pad_infer(x: Value, low: Shape, high: Shape, value: float) -> tuple[Shape, DType]:
    return tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)), x.dtype


def _pad_body(e: Any, index: Any, low: Shape, high: Shape, value: float) -> Any:
    inner = e.shape(0)
    inside = e.within(index, low, tuple(a + n for a, n in zip(low, inner, strict=True)))
    x = e.read(0, tuple(i - a for i, a in zip(index, low, strict=True)), where=inside)
    return x if inside is None else e.b.select(inside, x, value)


_PAD = Op("pad", "map", _pad_infer,
          numpy=lambda x, low, high, value: np.pad(
              x, list(zip(low, high, strict=True)), constant_values=value),
          grad=lambda o, g, y, x, low, high, value: (
              o.slice(g, low, (1,) * x.rank, x.shape),),
          body=_pad_body, cost=2,
          batch=lambda one, many, low, high, value: one.op(
              many.args[0], low=(0, *low), high=(0, *high), value=value),
          reorder=lambda order, low, high, value: {
              "low": tuple(low[k] for k in order), "high": tuple(high[k] for k in order),
              "value": value})


def _padded_by_numpy(x: Any, low: Shape, high: Shape, value: float = 0,
                     mode: str = "constant") -> Any:
    pairs = list(zip(low, high, strict=True))
    return (np.pad(x, pairs, constant_values=value) if mode == "constant" else
            np.pad(x, pairs, mode=mode))  # type: ignore[call-overload]


@op(Sample(((3, 4),), {"low": (1, 0), "high": (2, 3)}, dtypes="fsu"), primitive=_PAD,
    numpy=_padded_by_numpy)
def pad(x: Value, low: Shape, high: Shape, value: float = 0, mode: str = "constant") -> Value:
    """x with a border.

    Args:
        x: Tensor of numbers.
        low: Number of elements before x on each axis.
        high: Number of elements after x on each axis.
        value: Value of the border. Default: `0`.
        mode: "constant" for a border of this value; "reflect" or "symmetric" for a mirror image of
            x, without or with the elements at its edges; "edge" repeats these, and "wrap" the
            other end. Default: `"constant"`.

    Returns:
        A tensor of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.pad(np.arange(3), (2,), (1,), mode="reflect").tolist()
        [2, 1, 0, 1, 2, 1]
    """
    for amounts in (low, high):
        if not isinstance(amounts, (list, tuple)) or len(amounts) != x.rank:
            raise shape_error(f"padding {amounts!r} must be a number for each axis of", x.shape,
                              fix="such as (0, 1) to pad the second of two axes by 1")
    if any(n < 0 for n in (*low, *high)):
        raise shape_error(f"padding {tuple(low)}, {tuple(high)} is negative for", x.shape)
    if not any((*low, *high)):
        return x
    if mode != "constant":
        return _mirrored(x, low, high, mode)
    return _PAD(x, low=tuple(low), high=tuple(high), value=value)


def _mirrored(x: Value, low: Shape, high: Shape, mode: str) -> Value:
    """x with a border of its own elements."""
    if mode not in ("reflect", "symmetric", "edge", "wrap"):
        raise shape_error(f"ops.pad(mode={mode!r}) must be 'constant', 'reflect', 'symmetric', "
                          "'edge' or 'wrap'")
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if before or after:
            if not x.shape[axis]:
                raise shape_error(f"ops.pad(mode={mode!r}): axis {axis} has no elements in",
                                  x.shape)
            places = np.pad(np.arange(x.shape[axis], dtype=np.int32), (before, after),
                            mode=mode)  # type: ignore[call-overload]
            x = OPS.take(x, constant(places), axis)
    return x


def _concat_infer(*xs: Value, axis: int) -> tuple[Shape, DType]:
    for x in xs[1:]:
        if x.dtype != xs[0].dtype or x.rank != xs[0].rank or any(
                a != b for k, (a, b) in enumerate(zip(x.shape, xs[0].shape, strict=True))
                if k != axis):
            raise shape_error(f"cannot concatenate along axis {axis}", xs[0].shape, x.shape,
                              fix="all other dimensions and the dtype must agree")
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return tuple(shape), xs[0].dtype


def _concat_body(e: Any, index: Any, axis: int) -> Any:
    out, start = None, 0
    for k in range(e.count):
        n = e.shape(k)[axis]
        low = tuple(start if a == axis else 0 for a in range(len(index)))
        high = tuple(start + n if a == axis else 1 << 62 for a in range(len(index)))
        inside = e.within(index, low, high)
        part = e.read(k, tuple(i - start if a == axis else i for a, i in enumerate(index)),
                      where=inside)
        out = part if out is None or inside is None else e.b.select(inside, part, out)
        start += n
    return out


def _concat_grad(o: Any, g: Value, y: Value, *xs: Value, axis: int) -> tuple:
    parts, start = [], 0
    for x in xs:
        at = tuple(start if a == axis else 0 for a in range(x.rank))
        parts.append(o.slice(g, at, (1,) * x.rank, x.shape))
        start += x.shape[axis]
    return tuple(parts)


_CONCAT = Op("concat", "map", _concat_infer,
             numpy=lambda *xs, axis: np.concatenate(xs, axis),
             grad=_concat_grad, body=_concat_body, cost=3,
             batch=lambda one, many, axis: one.op(*many.spread(), axis=axis + 1),
             reorder=lambda order, axis: {"axis": order.index(axis)})


@op(Sample(((2, 3), (2, 4)), {"axis": 1}, dtypes="fsub"),
    Sample(((2, 3), (1, 3), (4, 3)), {"axis": 0}), primitive=_CONCAT,
    numpy=lambda *xs, axis=0: np.concatenate(xs, axis), aliases=("concatenate", "cat"))
def concat(*xs: Value, axis: int | None = 0) -> Value:
    """Tensors joined along an axis.

    Args:
        *xs: Tensors of one dtype that differ only along the axis, or one list of them.
        axis: Axis along which they are joined. `None` flattens them first. Default: `0`.

    Returns:
        A tensor with the sizes along the axis added up.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.concat(np.array([1.0, 2.0]), np.array([3.0]))
        array([1., 2., 3.])
    """
    if len(xs) == 1 and isinstance(xs[0], (list, tuple)):
        xs = tuple(xs[0])
    if not xs:
        raise shape_error("ops.concat needs at least one tensor")
    if axis is None:
        xs, axis = tuple(reshape(x, (x.size,)) for x in xs), 0
    [a] = normal_axes(axis, xs[0].rank)
    return _CONCAT(*xs, axis=a) if len(xs) > 1 else xs[0]


@op(Sample(((3, 4),), {"axis": (1,)}, dtypes="fsub"), numpy=lambda x, axis=None: np.flip(x, axis))
def flip(x: Value, axis: int | Shape | None = None) -> Value:
    """x with the order along axes reversed.

    Args:
        x: Tensor of any dtype.
        axis: Axis, a tuple of axes, or `None` for all axes. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    axes = normal_axes(axis, x.rank)
    return slice_(x, tuple(n - 1 if k in axes else 0 for k, n in enumerate(x.shape)),
                  tuple(-1 if k in axes else 1 for k in range(x.rank)), x.shape)
