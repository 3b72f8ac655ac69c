"""Powers as products: of whole numbers, which the opcode does not take, and of floats to small
exponents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import formula


def _emit(b: Any, x: Any, y: Any) -> Any:
    """Products wrap. Below zero, 1 / x ** -y is a whole number only of 1 and -1."""
    result, square = b.splat(b.const(1, x.dtype), x.lanes), x
    size = b.abs(y) if x.dtype.kind == "s" else y
    for bit in range(x.dtype.bits - (x.dtype.kind == "s")):
        odd = b.ne(b.and_(size, 1 << bit), 0)
        result = b.select(odd, b.mul(result, square), result)
        square = b.mul(square, square)
    if x.dtype.kind == "u":
        return result
    is_unit = b.or_(b.eq(x, 1), b.eq(x, -1))
    return b.select(b.and_(b.lt(y, 0), b.not_(is_unit)), b.const(0, x.dtype), result)


def _numpy(x: Any, y: Any) -> Any:
    below = np.where(abs(x) == 1, np.power(x, abs(y)), 0).astype(x.dtype)
    return np.where(y < 0, below, np.power(x, abs(y)))


_POWER = formula("whole_power", _emit, _numpy, 150, kinds="su")


def whole_power(a: Value, b: Value) -> Value:
    """a ** b of integers of one shape and dtype. One exponent for all takes few products.

    >>> from ztorch.graph.op import OPS, leaf
    >>> whole_power(leaf("input", "n", (3,), "int32"), OPS.full((3,), 2, "int32"))
    <mul i32[3]>
    """
    if b.op.name != "full":
        return _POWER(a, b)
    exponent, y = int(b.attrs["value"]), None
    if exponent < 0:
        raise shape_error(f"integers to the power {exponent} are fractions",
                          fix="use ops.cast to make the tensor a float")
    while exponent:
        if exponent & 1:
            y = a if y is None else y * a
        exponent >>= 1
        a = a * a if exponent else a
    return y if y is not None else a * 0 + 1


def few_products(a: Value, b: Value) -> Value | None:
    """a ** b of floats where b is 2, 3, 4 or -1 for all, which takes a tenth of the time of any
    other power; else None.

    >>> from ztorch.graph.op import OPS, leaf
    >>> few_products(leaf("input", "x", (3,), "float32"), OPS.full((3,), 2.0))
    <mul f32[3]>
    """
    exponent = b.attrs["value"] if b.op.name == "full" else None
    if exponent == -1:
        return 1.0 / a
    if exponent == 2:
        return a * a
    if exponent not in (3, 4) or a.dtype.bits < 32:  # of 16 bits, two products round twice
        return None
    square = a * a
    return square * (a if exponent == 3 else square)
