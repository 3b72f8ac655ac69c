"""Elementwise ops: one for each scalar opcode of the IR, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import Op, Sample, broadcast_together, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ir.opcodes import OPCODES, SCALAR, Opcode

# Tensor names follow NumPy and Keras where the opcode's own name is too short to be kind.
TENSOR_NAMES = {
    "min": "minimum", "max": "maximum", "select": "where", "pow": "power", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not",
    "shl": "shift_left", "shr": "shift_right",
}
_DOMAIN = {"log": (0.1, 4.0), "log2": (0.1, 4.0), "sqrt": (0.1, 4.0), "rsqrt": (0.1, 4.0),
           "pow": (0.1, 2.0), "log1p": (-0.5, 3.0), "div": (0.5, 2.0), "rem": (0.5, 2.0),
           "shl": (0, 7), "shr": (0, 7)}


def _primitive(row: Opcode) -> Op:
    name = TENSOR_NAMES.get(row.name, row.name)

    def infer(*args: Value, **attrs: Any) -> tuple[tuple[int, ...], DType]:
        last = args[-1]
        if last.dtype.kind not in row.kinds:
            raise shape_error(f"ops.{name} does not take {last.dtype}",
                              fix="use ops.cast to change the dtype")
        if row.name == "select" and args[0].dtype.kind != "b":
            raise shape_error(f"ops.where needs a bool condition, not {args[0].dtype}",
                              fix="compare it with something first, by <, >= or ops.equal; == "
                                  "asks whether two tensors are one")
        result = {"same": last.dtype, "bool": dtypes.boolean, "attr": attrs.get("dtype")}
        return last.shape, result[row.result]  # type: ignore[return-value]

    def body(e: Any, index: Any, **attrs: Any) -> Any:
        return e.b.emit(row.name, *(e.read(k, index) for k in range(row.arity)), **attrs)

    return Op(name, "map", infer, row.meaning, row.grad, body, row.cost, opcode=row.name,  # type: ignore[arg-type]
              doc=row.doc)


def _declare(row: Opcode) -> None:
    primitive = _primitive(row)

    def call(*args: Any) -> Value:
        if len(args) != row.arity:
            raise TypeError(f"ops.{primitive.name}({', '.join(names)}) takes {row.arity} tensors, "
                            f"not {len(args)}")
        values = broadcast_together(*args, dtypes_from=1 if row.name == "select" else 0)
        return primitive(*values)

    names = ["c", "a", "b"] if row.name == "select" else ["a", "b", "c"][:row.arity]
    by_position = [Parameter(n, Parameter.POSITIONAL_ONLY, annotation="Value | float")
                   for n in names]
    call.__signature__ = Signature(by_position, return_annotation="Value")  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = primitive.name
    call.__doc__ = f"{row.doc}; element by element, with broadcasting."
    low, high = _DOMAIN.get(row.name, (-2.0, 2.0))
    kinds = "".join(k for k in row.kinds if k in "fsub")
    shapes: tuple[Any, ...] = ((3, 5),) * row.arity
    samples = [Sample(shapes, {}, low, high, kinds)]
    if row.arity == 2:
        samples.append(Sample(((4, 1, 3), (2, 1)), {}, low, high, kinds))
    op(*samples, name=primitive.name, primitive=primitive, numpy=row.meaning)(call)


for _name in SCALAR:
    if OPCODES[_name].result != "attr":
        _declare(OPCODES[_name])

_CAST = _primitive(OPCODES["cast"])
_BITCAST = _primitive(OPCODES["bitcast"])


@op(Sample(((3, 5),), {"dtype": dtypes.f64}), primitive=_CAST, numpy=OPCODES["cast"].meaning)
def cast(x: Value, dtype: DType | str) -> Value:
    """x in another dtype; float to integer saturates, NaN becomes zero."""
    to = dtypes.dtype(dtype)
    return x if x.dtype == to else _CAST(x, dtype=to)


@op(primitive=_BITCAST, numpy=OPCODES["bitcast"].meaning)
def bitcast(x: Value, dtype: DType | str) -> Value:
    """The bits of x read as another dtype of the same size.

    >>> import ztorch as zt
    >>> zt.ops.bitcast(np.array([1.0], np.float32), "uint32")
    array([1065353216], dtype=uint32)
    """
    to = dtypes.dtype(dtype)
    if to.bits != x.dtype.bits:
        raise shape_error(f"cannot read the bits of {x.dtype} as {to}", fix="sizes must agree")
    return _BITCAST(x, dtype=to)


# -- fills -----------------------------------------------------------------------------------------

_FULL = Op(
    "full", "map", lambda shape, value, dtype: (shape, dtype),
    numpy=lambda shape, value, dtype: np.full(shape, value, dtype.working),
    grad=lambda o, g, y, **attrs: (),
    body=lambda e, index, shape, value, dtype: e.b.const(value, dtype))
_IOTA = Op(
    "iota", "map", lambda shape, axis, dtype: (shape, dtype),
    numpy=lambda shape, axis, dtype: np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape
    ).astype(dtype.working),
    grad=lambda o, g, y, **attrs: (),
    body=lambda e, index, shape, axis, dtype: e.b.cast(e.value(index[axis]), dtype=dtype))


@op(Sample((), {"shape": (2, 3), "value": 1.5}), primitive=_FULL,
    numpy=lambda shape, value, dtype="float32": np.full(shape, value))
def full(shape: tuple[int, ...], value: Any, dtype: DType | str = "float32") -> Value:
    """A tensor of a graph with one number everywhere; on its own it computes nothing."""
    return _FULL(shape=tuple(shape), value=value, dtype=dtypes.dtype(dtype))


@op(Sample((), {"shape": (2, 3)}), Sample((), {"shape": (2, 3), "axis": 0}), primitive=_IOTA,
    numpy=lambda shape, axis=-1, dtype="int32": np.indices(shape, np.int32)[axis])
def iota(shape: tuple[int, ...], axis: int = -1, dtype: DType | str = "int32") -> Value:
    """Each element's own position along the axis, in a graph; on its own it computes nothing."""
    [at] = normal_axes(axis, len(shape))
    return _IOTA(shape=tuple(shape), axis=at, dtype=dtypes.dtype(dtype))


@op(Sample(((2, 3),)), numpy=np.zeros_like)
def zeros_like(x: Value) -> Value:
    """Zeros of the shape and dtype of x."""
    return full(x.shape, 0, x.dtype)


@op(Sample(((2, 3),)), numpy=np.ones_like)
def ones_like(x: Value) -> Value:
    """Ones of the shape and dtype of x."""
    return full(x.shape, 1, x.dtype)


def _same(x: Value) -> tuple[tuple[int, ...], DType]:
    return x.shape, x.dtype


_STOP = Op("stop_gradient", "map", _same, numpy=lambda x: x, grad=lambda o, g, y, x: (None,),
           body=lambda e, index: e.read(0, index), movement=True)


@op(primitive=_STOP)
def stop_gradient(x: Value) -> Value:
    """x itself; gradients do not pass.

    >>> import ztorch as zt
    >>> zt.ops.stop_gradient(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    return _STOP(x)


# -- composites ------------------------------------------------------------------------------------


def _where() -> Callable[..., Value]:
    from ztorch.graph.op import OPS

    return OPS.where


@op(Sample(((3, 5),)), numpy=np.sign)
def sign(x: Value) -> Value:
    """-1, 0 or 1."""
    where = _where()
    zero = zeros_like(x)
    return where(x > 0.0, ones_like(x), where(x < 0.0, -ones_like(x), zero))


@op(Sample(((3, 5),)), numpy=np.square)
def square(x: Value) -> Value:
    """x * x."""
    return x * x


@op(Sample(((3, 5),), {"low": -1.0, "high": 0.5}),
    numpy=lambda x, low, high: np.clip(x, low, high))
def clip(x: Value, low: Value | float, high: Value | float) -> Value:
    """x held between low and high."""
    from ztorch.graph.op import OPS

    return OPS.minimum(OPS.maximum(x, low), high)


# -- what is no number -----------------------------------------------------------------------------

_EXPONENT = {"f32": 0x7F800000, "f64": 0x7FF << 52}
_ODD = Sample((np.array([1.0, -2.0, np.nan, 0.0, np.inf, -np.inf], np.float32),))


def _by_bits(name: str, compare: str, numpy: Callable) -> Op:
    """How the bits of a float but its sign compare with those of infinity. Compilers of shaders may
    take for granted that there is no NaN, and leave out comparisons of floats that would find one.
    """

    def infer(x: Value, of: DType) -> tuple[tuple[int, ...], DType]:
        if not x.dtype.is_float:
            raise shape_error(f"ops.{name} does not take {x.dtype}, which has neither infinities "
                              "nor NaN")
        return x.shape, dtypes.boolean

    def body(e: Any, index: Any, of: DType) -> Any:
        x = e.read(0, index)
        if of.bits == 16:
            x, of = e.b.cast(x, dtype=dtypes.f32), dtypes.f32
        size = e.b.and_(e.b.bitcast(x, dtype=dtypes.dtype(f"u{of.bits}")), (1 << (of.bits - 1)) - 1)
        return e.b.emit(compare, size, _EXPONENT[of.name])

    return Op(name, "map", infer, lambda x, of: numpy(x), lambda o, g, y, x, of: (None,), body,
              cost=3)


_FINITE = _by_bits("isfinite", "lt", np.isfinite)
_NAN = _by_bits("isnan", "gt", np.isnan)


@op(Sample(((3, 5),)), _ODD, primitive=_FINITE, numpy=np.isfinite)
def isfinite(x: Value) -> Value:
    """Whether each element is neither infinite nor NaN.

    >>> import ztorch as zt
    >>> zt.ops.isfinite(np.array([1.0, np.inf, np.nan]))
    array([ True, False, False])
    """
    return _FINITE(x, of=x.dtype)


@op(Sample(((3, 5),)), _ODD, primitive=_NAN, numpy=np.isnan)
def isnan(x: Value) -> Value:
    """Whether each element is no number, such as what 0 / 0 gives.

    >>> import ztorch as zt
    >>> zt.ops.isnan(np.array([1.0, np.inf, np.nan]))
    array([False, False,  True])
    """
    return _NAN(x, of=x.dtype)
