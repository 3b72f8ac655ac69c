"""Elementwise ops: one for each scalar opcode of the IR, and some composed of those."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.batching import pointwise
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, broadcast_together, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ir.opcodes import OPCODES, SCALAR, Opcode
from ztorch.ops.fills import ones_like
from ztorch.ops.formulas import as_floats
from ztorch.ops.powers import few_products, whole_power
from ztorch.ops.reduction import widened
from ztorch.ops.shifts import any_shift

# Names of ops that differ from their opcode's: NumPy's and Keras' names.
TENSOR_NAMES = {
    "min": "minimum", "max": "maximum", "select": "where", "pow": "power", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not",
    "shl": "shift_left", "shr": "shift_right",
}
# Aliases of ops, by opcode: names of the array API standard, NumPy, Keras and PyTorch.
_ALIASES = {
    "abs": ("absolute", "fabs"), "sub": ("subtract",), "mul": ("multiply",), "neg": ("negative",),
    "rem": ("fmod",), "pow": ("pow",), "trunc": ("fix",),
    "atan": ("arctan",), "lt": ("lt", "less_than"), "le": ("le",), "gt": ("gt", "greater_than"),
    "ge": ("ge",), "eq": ("eq",), "ne": ("ne",), "not": ("bitwise_invert", "invert"),
    "shl": ("bitwise_left_shift", "left_shift"), "shr": ("bitwise_right_shift", "right_shift"),
}
# Ranges of random inputs on which an opcode is defined and well conditioned.
_DOMAIN = {"log": (0.1, 4.0), "log2": (0.1, 4.0), "sqrt": (0.1, 4.0), "rsqrt": (0.1, 4.0),
           "pow": (0.1, 2.0), "log1p": (-0.5, 3.0), "div": (0.5, 2.0), "rem": (0.5, 2.0),
           "shl": (0, 7), "shr": (0, 7)}


# Opcodes for floats or signed integers that leave all values of another kind unchanged.
_UNCHANGED = {"s": ("floor", "ceil", "trunc"), "u": ("floor", "ceil", "trunc", "abs"),
              "b": ("floor", "ceil", "trunc", "abs")}


def _primitive(row: Opcode) -> Op:
    """The primitive op that applies an opcode to each element."""
    name = TENSOR_NAMES.get(row.name, row.name)

    def infer(*args: Value, **attrs: Any) -> tuple[tuple[int, ...], DType]:
        last = args[-1]
        if last.dtype.kind not in row.kinds:
            raise shape_error(f"ops.{name} does not take {last.dtype}",
                              fix="use ops.cast to change the dtype")
        if row.name == "select" and args[0].dtype.kind != "b":
            raise shape_error(f"ops.where needs a bool condition, not {args[0].dtype}",
                              fix="compare it with something first, with <, >= or ops.equal; in a "
                                  "model, == tests whether two tensors are the same object")
        result = {"same": last.dtype, "bool": dtypes.boolean, "attr": attrs.get("dtype")}
        return last.shape, result[row.result]  # type: ignore[return-value]

    def body(e: Any, index: Any, **attrs: Any) -> Any:
        return e.b.emit(row.name, *(e.read(k, index) for k in range(row.arity)), **attrs)

    meaning: Any = row.meaning
    return Op(name, "map", infer, meaning, row.grad, body, row.cost, opcode=row.name)


def _declare(row: Opcode) -> None:
    """Registers the op of an opcode; its arguments broadcast."""
    primitive = _primitive(row)

    def call(*args: Any) -> Value:
        if len(args) != row.arity:
            raise TypeError(f"ops.{primitive.name}({', '.join(names)}) takes {row.arity} tensors, "
                            f"not {len(args)}")
        values = broadcast_together(*args, dtypes_from=1 if row.name == "select" else 0)
        if row.name in _UNCHANGED.get(values[-1].dtype.kind, ()):
            return values[0]
        if row.name == "neg" and values[0].dtype.kind == "u":
            return OPS.sub(0, values[0])
        if row.name == "pow" and values[0].dtype.is_int:
            return whole_power(*values)
        if row.name == "pow" and (products := few_products(*values)) is not None:
            return products
        if row.name in ("shl", "shr"):
            return any_shift(primitive, row.name == "shl", *values)
        return primitive(*values)

    names = ["c", "a", "b"] if row.name == "select" else ["a", "b", "c"][:row.arity]
    by_position = [Parameter(n, Parameter.POSITIONAL_ONLY, annotation="Value | float")
                   for n in names]
    call.__signature__ = Signature(by_position, return_annotation="Value")  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = primitive.name
    call.__doc__ = _documentation(row, names)
    low, high = _DOMAIN.get(row.name, (-2.0, 2.0))
    kinds = "".join(k for k in _kinds(row) if k in "fsub")
    shapes: tuple[Any, ...] = ((3, 5),) * row.arity
    samples = [Sample(shapes, {}, low, high, kinds)]
    if row.arity == 2:
        samples.append(Sample(((4, 1, 3), (2, 1)), {}, low, high, kinds))
    op(*samples, name=primitive.name, primitive=primitive, numpy=row.meaning,
       aliases=_ALIASES.get(row.name, ()))(call)


_KINDS = {"f": "floats", "s": "signed integers", "u": "unsigned integers", "b": "bools"}


def _kinds(row: Opcode) -> str:
    """The kinds of dtypes that the op of an opcode computes: unsigned zero minus a number wraps."""
    return f"{row.kinds}u" if row.name == "neg" else row.kinds


def _documentation(row: Opcode, names: list[str]) -> str:
    """The docstring of the op of an opcode."""
    unchanged = [kind for kind, opcodes in _UNCHANGED.items() if row.name in opcodes]
    *kinds, last = (_KINDS[kind] for kind in dict.fromkeys([*_kinds(row), *unchanged]))
    dtypes = f"{', '.join(kinds)} or {last}" if kinds else last
    meaning = dict.fromkeys(names, f"Tensor of {dtypes}, or a number.")
    if row.name == "select":
        meaning = {"c": "Bool tensor: the condition.", "a": "Tensor or number where it is true.",
                   "b": "Tensor or number where it is false, of the dtype of `a`."}
    elif len(names) > 1:
        others = "Tensor of the same dtype, or a number."
        meaning = {name: others if k else meaning[name] for k, name in enumerate(names)}
    dtype = "bool" if row.result == "bool" else "the same dtype"
    return "\n".join([f"{row.doc}; element by element, with broadcasting.", "", "Args:",
                      *(f"    {name}: {text}" for name, text in meaning.items()), "", "Returns:",
                      f"    A tensor of the broadcast shape, of {dtype}."])


for _name in SCALAR:
    if OPCODES[_name].result != "attr" and _name != "round":
        _declare(OPCODES[_name])

_CAST = _primitive(OPCODES["cast"])
_BITCAST = _primitive(OPCODES["bitcast"])
_ROUND = _primitive(OPCODES["round"])


@op(Sample(((3, 5),), {}, -2.0, 2.0), Sample(((3, 5),), {"decimals": 1}), primitive=_ROUND,
    numpy=np.round, aliases=("rint", "around"))
def round(x: Value, decimals: int = 0) -> Value:
    """Rounds to the nearest integer, or to a number of decimals; ties to even.

    Args:
        x: Tensor of numbers or bools.
        decimals: Number of decimals; negative numbers round to tens, hundreds and so on. Default:
            `0`.

    Returns:
        A tensor of the shape and dtype of `x`; of bools float16, as in NumPy.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.round(np.array([1.256, -0.5]), 1)
        array([ 1.3, -0.5])
    """
    if x.dtype.kind == "b":
        return OPS.cast(x, dtypes.f16)
    if x.dtype.is_int and decimals >= 0:
        return x
    if not decimals:
        return _ROUND(x)
    unit = 10.0 ** abs(decimals)
    wide = widened(x) if x.dtype.is_float else OPS.cast(x, dtypes.f64)
    y: Value = _ROUND(wide * unit) / unit if decimals > 0 else _ROUND(wide / unit) * unit
    return OPS.cast(y, x.dtype)


@op(Sample(((3, 5),), {"dtype": dtypes.f64}), primitive=_CAST, numpy=OPCODES["cast"].meaning)
def cast(x: Value, dtype: DType | str) -> Value:
    """x in another dtype.

    Floats become integers by truncation; values out of range saturate, and NaN becomes 0. Integers
    wrap. A nonzero number becomes true.

    Args:
        x: Tensor of any dtype.
        dtype: Dtype of the result: a `DType` or a name such as `"float32"`.

    Returns:
        A tensor of the shape of `x`.
    """
    to = dtypes.dtype(dtype)
    return x if x.dtype == to else _CAST(x, dtype=to)


@op(primitive=_BITCAST, numpy=OPCODES["bitcast"].meaning)
def bitcast(x: Value, dtype: DType | str) -> Value:
    """Reinterprets the bits of x as another dtype of the same size.

    Args:
        x: Tensor of numbers.
        dtype: Dtype of the result, of the same size as that of `x`.

    Returns:
        A tensor of the shape of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.bitcast(np.array([1.0], np.float32), "uint32")
        array([1065353216], dtype=uint32)
    """
    to = dtypes.dtype(dtype)
    if to.bits != x.dtype.bits:
        raise shape_error(f"cannot read the bits of {x.dtype} as {to}",
                          fix="sizes must agree; ops.cast converts the numbers")
    return _BITCAST(x, dtype=to)


def _same(x: Value) -> tuple[tuple[int, ...], DType]:
    return x.shape, x.dtype


_STOP = Op("stop_gradient", "map", _same, numpy=lambda x: x, grad=lambda o, g, y, x: (None,),
           body=lambda e, index: e.read(0, index), movement=True, alias=True, batch=pointwise)


@op(primitive=_STOP)
def stop_gradient(x: Value) -> Value:
    """x unchanged, with a gradient of zero.

    Args:
        x: Tensor of any dtype.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.stop_gradient(np.array([1.0, 2.0]))
        array([1., 2.])
    """
    return _STOP(x)


@op(Sample(((3, 5),)), numpy=np.sign)
def sign(x: Value) -> Value:
    """-1 for negative elements, 0 for zero, 1 for positive elements, NaN for NaN.

    Args:
        x: Tensor of numbers.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    zero = stop_gradient(x) + 0  # 0.0 for -0.0; NaN stays
    positive = OPS.where(x > 0.0, ones_like(x), zero)
    return positive if x.dtype.kind == "u" else OPS.where(x < 0.0, -ones_like(x), positive)


@op(Sample(((3, 5),)), numpy=np.square)
def square(x: Value) -> Value:
    """`x * x`.

    Args:
        x: Tensor of numbers. Integers wrap.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    return x * x


@composition(Sample(((3, 5), (3, 5)), {}, 0.1, 2.0))
def float_power(a: Value | float, b: Value | float) -> Value:
    """`power` of floats, also for integers.

    Args:
        a: Tensor of numbers, or a number.
        b: Tensor of numbers, or a number.

    Returns:
        A tensor of the broadcast shape and the dtype of the floats; float64 for integers.
    """
    return OPS.power(*as_floats(a, b))
