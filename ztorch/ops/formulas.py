"""Elementwise functions as formulas of opcodes: one graph node with a custom gradient.

A formula may read the bits of a number and choose between branches, one of which may overflow. Its
gradient does not consist of these parts, so no infinity leaks into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.batching import pointwise
from ztorch.graph.op import OPS, as_value, broadcast_together, plain_number, shape_error
from ztorch.graph.value import Op, Value

Gradient = Callable[..., tuple]


def formula(name: str, emit: Callable[..., Any], numpy: Callable[..., Any], cost: int,
            grad: Gradient | None = None, kinds: str = "f", tests: bool = False,
            wide: bool = True) -> Op:
    """The primitive op of a function of elements.

    Args:
        name: Name of the op.
        emit: `emit(b, *xs)` writes the function with a builder.
        numpy: The function on NumPy arrays, and on attributes if the op has any.
        cost: Rough number of issue slots.
        grad: `grad(o, g, y, *xs)` returns the gradient of each argument. `None` for functions
            without a gradient. Default: `None`.
        kinds: Kinds of dtypes that the function accepts. Default: `"f"`.
        tests: Whether the function returns bools. Default: `False`.
        wide: Whether 16-bit floats are computed as float32. Default: `True`.

    Returns:
        The op, for arguments of one shape and dtype.
    """

    def infer(*xs: Value, **attrs: Any) -> tuple[tuple[int, ...], DType]:
        if xs[0].dtype.kind not in kinds:
            raise shape_error(f"ops.{name} does not take {xs[0].dtype}",
                              fix="use ops.cast to change the dtype")
        return xs[0].shape, dtypes.boolean if tests else xs[0].dtype

    def body(e: Any, index: Any, **attrs: Any) -> Any:
        return e.b.apply(emitted, *(e.read(k, index) for k in range(e.count)))

    def emitted(b: Any, *xs: Any) -> Any:
        narrow = xs[0].dtype
        if not (wide and narrow.is_float and narrow.bits == 16):
            return emit(b, *xs)
        y = emit(b, *(b.cast(x, dtype=dtypes.f32) for x in xs))
        return y if tests else b.cast(y, dtype=narrow)

    def no_gradient(o: Any, g: Value, y: Value, *xs: Value, **attrs: Any) -> tuple:
        return (None,) * len(xs)

    return Op(name, "map", infer, numpy, grad or no_gradient, body, cost, batch=pointwise)


def as_floats(*xs: Value | float) -> tuple[Value, ...]:
    """Arguments of one shape and one float dtype. Integers become float64, as in NumPy.

    >>> from ztorch.graph.op import leaf
    >>> as_floats(leaf("input", "n", (3,), "int32"), 2.0)
    (<cast f64[3]>, <full f64[3]>)
    """
    floats = [x for x in xs if isinstance(x, Value) and x.dtype.is_float]
    like = floats[0].dtype if floats else dtypes.f64 if any(
        isinstance(x, Value) for x in xs) else dtypes.f32
    return broadcast_together(*(
        x if isinstance(x, Value) and x.dtype.is_float else OPS.cast(x, like)
        if isinstance(x, Value) else as_value(plain_number(x), OPS.full((), 0, like)) for x in xs))
