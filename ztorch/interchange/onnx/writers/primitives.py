"""The nodes of the graph one by one: whatever is not known as something larger."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import i64
from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import primitive
from ztorch.interchange.onnx.writer import END, SMALL, Writer, moved

# -- element by element ----------------------------------------------------------------------------

_DIRECT = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs",
    "minimum": "Min", "maximum": "Max", "round": "Round", "floor": "Floor", "ceil": "Ceil",
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "sin": "Sin",
    "cos": "Cos", "power": "Pow", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual", "equal": "Equal", "where": "Where",
    "sigmoid": "Sigmoid", "isnan": "IsNaN", "isinf": "IsInf", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh",
}
_BITS = {"bitwise_and": ("And", "BitwiseAnd"), "bitwise_or": ("Or", "BitwiseOr"),
         "bitwise_xor": ("Xor", "BitwiseXor"), "bitwise_not": ("Not", "BitwiseNot")}
_PAIRED = ("remainder", "floor_divide", "hypot", "logaddexp")
_COMPOSED = ("not_equal", "rsqrt", "rem", "exp2", "log2", "expm1", "log1p", "trunc", "fma", "cast",
             "isfinite", "rounded_to")


@primitive(*_DIRECT, *_BITS, *_COMPOSED, *_PAIRED)
def _elementwise(w: Writer, v: Value) -> None:
    numbers = [w.numbers_of(a) for a in v.args]
    if all(x is not None for x in numbers):
        with np.errstate(all="ignore"):
            result = np.asarray(v.op.numpy(*numbers, **v.attrs))
        if result.size <= max(SMALL, *(x.size for x in numbers if x is not None)):
            w.set_numbers(v, result)
            return
    order = w.order_of(*v.args)
    parts = [w.tensor(a, order) for a in v.args]
    shape = np.broadcast_shapes(*(p.shape for p in parts))
    w.give(v, _combined(w, v, [p.name for p in parts]), order, shape)


def _combined(w: Writer, v: Value, names: list[str]) -> str:
    op, a = v.op.name, v.args[-1]
    if op == "where" and a.dtype.kind == "b":  # which ONNX Runtime does not choose between
        condition, yes, no = names
        return w.node("Or", [w.node("And", [condition, yes]),
                             w.node("And", [w.node("Not", [condition]), no])])
    if op in _DIRECT:
        return w.node(_DIRECT[op], names)
    if op in _PAIRED:
        return _paired(w, v, names)
    if op in _BITS:
        return w.node(_BITS[op][a.dtype.kind != "b"], names)
    if op == "cast":
        return w.node("Cast", names, to=v.dtype.onnx)
    if op == "rounded_to":
        short = w.node("Cast", names, to=v.attrs["dtype"].onnx)
        return w.node("Cast", [short], to=v.dtype.onnx)
    if op == "isfinite":
        return w.node("Not", [w.node("Or", [w.node("IsInf", names), w.node("IsNaN", names)])])
    if op == "not_equal":
        return w.node("Not", [w.node("Equal", names)])
    if op == "rsqrt":
        return w.node("Reciprocal", [w.node("Sqrt", names)])
    if op == "rem":
        return w.node("Mod", names, fmod=1)
    if op == "exp2":
        return w.node("Pow", [w.scalar(2, a), *names])
    if op == "log2":
        return w.node("Mul", [w.node("Log", names), w.scalar(1 / math.log(2), a)])
    if op == "expm1":
        return w.node("Sub", [w.node("Exp", names), w.scalar(1, a)])
    if op == "log1p":
        return w.node("Log", [w.node("Add", [*names, w.scalar(1, a)])])
    if op == "trunc":
        return w.node("Mul", [w.node("Sign", names), w.node("Floor", [w.node("Abs", names)])])
    return w.node("Add", [w.node("Mul", names[:2]), names[2]])  # fma


def _paired(w: Writer, v: Value, names: list[str]) -> str:
    """Functions of two tensors that take several nodes."""
    op, whole, (x, y) = v.op.name, not v.dtype.is_float, names
    if op == "hypot":
        return w.node("Sqrt", [w.node("Add", [w.node("Mul", [x, x]), w.node("Mul", [y, y])])])
    if op == "logaddexp":
        gap = w.node("Neg", [w.node("Abs", [w.node("Sub", names)])])
        more = w.node("Log", [w.node("Add", [w.node("Exp", [gap]), w.scalar(1, v)])])
        return w.node("Add", [w.node("Max", names), more])
    if whole:
        rest = w.node("Mod", names)
        return rest if op == "remainder" else w.node("Div", [w.node("Sub", [x, rest]), y])
    quotient = w.node("Floor", [w.node("Div", names)])
    return quotient if op == "floor_divide" else w.node("Sub", [x, w.node("Mul", [quotient, y])])


# -- numbers ---------------------------------------------------------------------------------------


@primitive("full")
def _full(w: Writer, v: Value) -> None:
    w.set_numbers(v, v.attrs["value"])


@primitive("iota")
def _iota(w: Writer, v: Value) -> None:
    """It varies along one axis only."""
    axis = v.attrs["axis"]
    if w.counts_rows(v.shape[axis]):
        raise w.unsupported("it counts along the batch")
    if w.varies(v.shape[axis]):
        _range(w, v, axis)
        return
    w.set_numbers(v, np.arange(v.shape[axis]).reshape(-1, *(1,) * (v.rank - 1 - axis)))


# -- movement --------------------------------------------------------------------------------------


def _range(w: Writer, v: Value, axis: int) -> None:
    """Numbers along an axis of any size."""
    ends = w.node("Squeeze", [w.shape((v.shape[axis],)), w.integers([0])])
    numbers = w.node("Range", [w.array(np.array(0)), ends, w.array(np.array(1))])
    later = v.rank - 1 - axis
    if later:
        numbers = w.node("Unsqueeze", [numbers, w.integers(range(1, later + 1))])
    w.give(v, w.node("Cast", [numbers], to=v.dtype.onnx), shape=(v.shape[axis], *(1,) * later))


@primitive("stop_gradient", "custom_gradient", "rows", "convolved")
def _same(w: Writer, v: Value) -> None:
    x = v.args[0]
    if x in w.numbers:
        w.numbers[v] = w.numbers[x]
    else:
        w.tensors[v] = list(w.tensors[x])


@primitive("broadcast_to")
def _broadcast(w: Writer, v: Value) -> None:
    """Whoever needs the repeated elements asks for the whole."""
    [x] = v.args
    if x in w.numbers:
        w.numbers[v] = w.numbers[x]
    elif x.rank == v.rank:
        w.tensors[v] = list(w.tensors[x])
    else:
        here = w.tensor(x)
        w.give(v, here.name, (), here.shape)


def _moved_numbers(w: Writer, v: Value) -> bool:
    """Moves numbers that are known, unless they would be many."""
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
        forms = [w.tensor(x, whole=True)]
    for form in forms:
        if len(form.shape) == x.rank:
            w.give(v, form.name, moved(form.order or tuple(range(x.rank)), axes), form.shape)


@primitive("reshape")
def _reshape(w: Writer, v: Value) -> None:
    if not _moved_numbers(w, v):
        w.give(v, w.node("Reshape", [w.name(v.args[0]), w.shape(v.shape, infer=True)]))


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
    w.give(v, w.node("Slice", [w.name(x, order), w.integers(starts), w.shape(tuple(ends)),
                               w.integers(axes), w.integers(step[k] for k in cut)]), order)


def _from_end(w: Writer, place: int, size: int) -> int:
    """A place on an axis; on one of any size, those of the second half count from its end."""
    if not w.varies(size) or place <= size // 2:
        return place
    return place - size if place < size else END


@primitive("pad")
def _pad(w: Writer, v: Value) -> None:
    [x] = v.args
    order = w.order_of(x)
    low, high, value = (v.attrs[k] for k in ("low", "high", "value"))
    axes = order or tuple(range(x.rank))
    pads = [*(low[k] for k in axes), *(high[k] for k in axes)]
    w.give(v, w.node("Pad", [w.name(x, order), w.integers(pads), w.scalar(value, x)]), order)


@primitive("concat")
def _concat(w: Writer, v: Value) -> None:
    order, axis = w.order_of(*v.args), v.attrs["axis"]
    w.give(v, w.node("Concat", [w.name(x, order) for x in v.args],
                     axis=order.index(axis) if order else axis), order)


@primitive("take")
def _take(w: Writer, v: Value) -> None:
    x, axis = v.args[0], v.attrs["axis"]
    w.give(v, w.node("Gather", [w.name(x), _positions(w, v, x.shape[axis])], axis=axis))


@primitive("take_along_axis")
def _take_along_axis(w: Writer, v: Value) -> None:
    """Its elements come in one row."""
    axis, n = v.attrs["axis"], v.attrs["n"]
    x = w.node("Reshape", [w.name(v.args[0]), w.shape((*v.shape[:axis], n, *v.shape[axis + 1:]),
                                                      infer=True)])
    w.give(v, w.node("GatherElements", [x, _positions(w, v, n)], axis=axis))


def _positions(w: Writer, v: Value, n: int) -> str:
    """The indices, those beyond an end as that end, which ONNX would refuse or count from behind;
    unless the caller must ensure it."""
    indices = source = v.args[1]
    while source.op.movement:
        source = source.args[0]
    if source in w.checked:
        return w.name(indices)
    above = w.node("Max", [w.name(indices), w.scalar(0, indices)])
    if n - 1 <= np.iinfo(indices.dtype.working).max:
        return w.node("Min", [above, w.scalar(n - 1, indices)])
    return w.node("Min", [w.node("Cast", [above], to=i64.onnx), w.array(np.array(n - 1))])


# -- many into one ---------------------------------------------------------------------------------


def reduced(w: Writer, v: Value, x: Value, op: str, axes: tuple[int, ...], keep: bool) -> None:
    """v = op of x along axes, in the layout of x."""
    order = w.order_of(x) or tuple(range(x.rank))
    at = w.integers(k for k, axis in enumerate(order) if axis in axes)
    name = w.node(op, [w.name(x, order), at], keepdims=int(keep))
    if keep:
        w.give(v, name, order)
    else:
        left = [k for k in order if k not in axes]
        w.give(v, name, tuple(sorted(left).index(k) for k in left))


@primitive("sum", "max", "min", "prod")
def _reduce(w: Writer, v: Value) -> None:
    op = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
    reduced(w, v, v.args[0], op[v.op.name], v.attrs["axes"], False)


@primitive("matmul")
def _matmul(w: Writer, v: Value) -> None:
    w.give(v, w.node("MatMul", [w.name(a) for a in v.args]))

