"""Writers of primitive ops that make numbers, move elements or combine them."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import i64
from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import primitive
from ztorch.interchange.onnx.writer import END, SMALL, Writer, transposed_order

# -- numbers ---------------------------------------------------------------------------------------


@primitive("full")
def _full(w: Writer, v: Value) -> None:
    w.set_numbers(v, v.attrs["value"])


@primitive("iota")
def _iota(w: Writer, v: Value) -> None:
    """A constant that varies along one axis, and broadcasts along the others."""
    axis = v.attrs["axis"]
    if w.counts_rows(v.shape[axis]):
        raise w.unsupported("it counts along the batch")
    if w.varies(v.shape[axis]):
        _range(w, v, axis)
        return
    w.set_numbers(v, np.arange(v.shape[axis]).reshape(-1, *(1,) * (v.rank - 1 - axis)))


def _range(w: Writer, v: Value, axis: int) -> None:
    """Writes an iota along an axis of any size."""
    ends = w.node("Squeeze", [w.shape((v.shape[axis],)), w.integers([0])])
    numbers = w.node("Range", [w.array(np.array(0)), ends, w.array(np.array(1))])
    later = v.rank - 1 - axis
    if later:
        numbers = w.node("Unsqueeze", [numbers, w.integers(range(1, later + 1))])
    w.record(v, w.node("Cast", [numbers], to=v.dtype.onnx), shape=(v.shape[axis], *(1,) * later))


# -- movement --------------------------------------------------------------------------------------


@primitive("stop_gradient", "custom_gradient", "rows", "convolved", "blended", "windowed",
           "pooled")
def _same(w: Writer, v: Value) -> None:
    x = v.args[0]
    if x in w.numbers:
        w.numbers[v] = w.numbers[x]
    else:
        w.tensors[v] = list(w.tensors[x])


@primitive("broadcast_to")
def _broadcast(w: Writer, v: Value) -> None:
    """No node: the same tensor, which is expanded where a reader needs it in full."""
    [x] = v.args
    if x in w.numbers:
        w.numbers[v] = w.numbers[x]
    elif x.rank == v.rank:
        w.tensors[v] = list(w.tensors[x])
    else:
        tensor = w.tensor(x)
        w.record(v, tensor.name, (), tensor.shape)


def _moved_numbers(w: Writer, v: Value) -> bool:
    """Computes the movement of a constant, unless the result is large. Returns whether it did."""
    [x] = v.args
    if x not in w.numbers:
        return False
    array, label = w.numbers[x]
    if array.size == 1:
        w.set_numbers(v, array.reshape(()), label)
        return True
    if array.size != x.size and x.size > SMALL:
        return False
    w.set_numbers(v, v.op.numpy(np.broadcast_to(array, x.shape), **v.attrs), label)
    return True


@primitive("transpose")
def _transpose(w: Writer, v: Value) -> None:
    """No node: the same tensor in another order."""
    [x] = v.args
    if _moved_numbers(w, v):
        return
    axes = v.attrs["axes"]
    forms = w.tensors.get(x) or [w.tensor(x)]
    if all(len(form.shape) < x.rank for form in forms):
        forms = [w.tensor(x, full=True)]
    for form in forms:
        if len(form.shape) == x.rank:
            order = transposed_order(form.order or tuple(range(x.rank)), axes)
            w.record(v, form.name, order, form.shape)


@primitive("reshape")
def _reshape(w: Writer, v: Value) -> None:
    if not _moved_numbers(w, v):
        w.record(v, w.node("Reshape", [w.name(v.args[0]), w.shape(v.shape, infer=True)]))


@primitive("slice")
def _slice(w: Writer, v: Value) -> None:
    [x] = v.args
    if not any(map(w.varies, (*v.shape, *x.shape))) and _moved_numbers(w, v):
        return
    order = w.order_of(x)
    start, step, size = (v.attrs[k] for k in ("start", "step", "size"))
    cut = [k for k in range(x.rank) if (start[k], step[k], size[k]) != (0, 1, x.shape[k])]
    starts = [_from_end(w, start[k], x.shape[k]) for k in cut]
    ends = [start[k] + step[k] * (size[k] - 1) + (1 if step[k] > 0 else -1) for k in cut]
    ends = [_from_end(w, e, x.shape[k]) if e >= 0 else -END - 1
            for e, k in zip(ends, cut, strict=True)]
    axes = [order.index(k) if order else k for k in cut]
    w.record(v, w.node("Slice", [w.name(x, order), w.shape(tuple(starts)), w.shape(tuple(ends)),
                                 w.integers(axes), w.integers(step[k] for k in cut)]), order)


def _from_end(w: Writer, position: int, size: int) -> int:
    """A position on an axis. On an open axis, those in the second half count from its end, but
    multiples of open sizes."""
    if not w.varies(size) or position <= size // 2 or (w.varies(position) and position < size):
        return position
    return position - size if position < size else END


@primitive("pad")
def _pad(w: Writer, v: Value) -> None:
    [x] = v.args
    order = w.order_of(x)
    low, high, value = (v.attrs[k] for k in ("low", "high", "value"))
    axes = order or tuple(range(x.rank))
    pads = [*(low[k] for k in axes), *(high[k] for k in axes)]
    w.record(v, w.node("Pad", [w.name(x, order), w.integers(pads), w.scalar(value, x)]), order)


@primitive("concat")
def _concat(w: Writer, v: Value) -> None:
    order, axis = w.order_of(*v.args), v.attrs["axis"]
    w.record(v, w.node("Concat", [w.name(x, order) for x in v.args],
                       axis=order.index(axis) if order else axis), order)


@primitive("take")
def _take(w: Writer, v: Value) -> None:
    x, axis = v.args[0], v.attrs["axis"]
    w.record(v, w.node("Gather", [w.name(x), _positions(w, v, x.shape[axis])], axis=axis))


@primitive("take_along_axis")
def _take_along_axis(w: Writer, v: Value) -> None:
    """The input is a reshape of the values, which ONNX takes in their own shape."""
    axis, n = v.attrs["axis"], v.attrs["n"]
    x = w.node("Reshape", [w.name(v.args[0]), w.shape((*v.shape[:axis], n, *v.shape[axis + 1:]),
                                                      infer=True)])
    w.record(v, w.node("GatherElements", [x, _positions(w, v, n)], axis=axis))


def _positions(w: Writer, v: Value, n: int) -> str:
    """The indices, clipped to the axis: ONNX refuses those beyond its end, and counts negative ones
    from its end. Indices that are checked at run time need no clipping."""
    indices = source = v.args[1]
    while source.op.movement:
        source = source.args[0]
    if source in w.checked:
        return w.name(indices)
    above = w.node("Max", [w.name(indices), w.scalar(0, indices)])
    if n - 1 <= np.iinfo(indices.dtype.working).max:
        return w.node("Min", [above, w.scalar(n - 1, indices)])
    return w.node("Min", [w.node("Cast", [above], to=i64.onnx), w.array(np.array(n - 1))])


# -- reductions and products -----------------------------------------------------------------------


def reduced(w: Writer, v: Value, x: Value, op: str, axes: tuple[int, ...], keep: bool) -> None:
    """Writes v, the reduction of x along axes by an op of ONNX, in the layout of x."""
    order = w.order_of(x) or tuple(range(x.rank))
    if not axes:  # which ONNX takes as all axes
        w.record(v, w.name(x, order), order)
        return
    at = w.integers(k for k, axis in enumerate(order) if axis in axes)
    name = w.node(op, [w.name(x, order), at], keepdims=int(keep))
    if keep:
        w.record(v, name, order)
    else:
        remaining = [k for k in order if k not in axes]
        w.record(v, name, tuple(sorted(remaining).index(k) for k in remaining))


@primitive("sum", "max", "min", "prod")
def _reduce(w: Writer, v: Value) -> None:
    op = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
    reduced(w, v, v.args[0], op[v.op.name], v.attrs["axes"], False)


@primitive("matmul")
def _matmul(w: Writer, v: Value) -> None:
    w.record(v, w.node("MatMul", [w.name(a) for a in v.args]))
