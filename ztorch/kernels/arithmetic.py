"""Arithmetic on the values of loops: ops, and the dtypes of results by NumPy's rules.

Python's numbers take the dtype of the tensor beside them. Those that depend on a loop are computed
in int32, and in the widest float dtype of the kernel's arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.dtypes import DType, boolean, f32, f64, i32, i64, result_type, u64
from ztorch.errors import ZtorchError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar, spread, union

NUMBERS = (bool, int, float)

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "divide", ast.Mod: "remainder",
    ast.FloorDiv: "floor_divide", ast.Pow: "power", ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor", ast.LShift: "shift_left",
    ast.RShift: "shift_right", ast.MatMult: "matmul"}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal"}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<",
         "shift_right": ">>"}
_LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}


class BadOperand(ZtorchError):
    """Numbers that an operator does not take."""


class TileArithmetic:
    """The operations of one kernel."""

    def __init__(self, dtypes: Sequence[DType]):
        self.float = f64 if f64 in dtypes else f32  # of Python's floats that depend on a loop
        self.unwritten: set[Value] = set()  # of np.empty: their elements have no values

    def tile(self, x: Any) -> LoopTensor:
        """A number, an index or a tile as a tile."""
        if isinstance(x, LoopTensor):
            return x
        if isinstance(x, Affine) and x.terms:
            return self._counted(x)
        x = x.const if isinstance(x, Affine) else x
        if not isinstance(x, NUMBERS):
            raise BadOperand(f"{x!r} is not a number or array")
        d = boolean if isinstance(x, bool) else self.float
        if isinstance(x, int) and d is not boolean:
            d = next((d for d in (i32, i64, u64) if _fits(x, d)), self.float)
        return LoopTensor(OPS.full((), x, d), (), weak=True)

    def _counted(self, index: Affine) -> LoopTensor:
        axes = union([tuple(v for v in index.terms if v.iteration is None)])
        total: Any = index.const
        for v, factor in index.terms.items():
            number = v.iteration if v.iteration is not None else OPS.iota((v.extent,), 0)
            x = LoopTensor(number, () if v.iteration is not None else (v,))
            total = spread(x, axes) * factor + total
        return LoopTensor(total, axes, weak=True)

    def common(self, xs: Sequence[Any]) -> DType:
        """The dtype that numbers and tiles have together."""
        strong = [x.dtype for x in xs if isinstance(x, LoopTensor) and not x.weak]
        weak = [x.dtype if isinstance(x, LoopTensor) else _dtype_of(x, self.float) for x in xs
                if not isinstance(x, LoopTensor) or x.weak]
        if not strong:
            kinds = {d.kind for d in weak}
            return self.float if "f" in kinds else i32 if kinds & {"s", "u"} else boolean
        d = result_type(*strong)
        if any(w.is_float for w in weak) and not d.is_float:
            return self.float
        return i32 if d is boolean and any(w.is_int for w in weak) else d

    def apply(self, name: str, *xs: Any, dtype: DType | None = None,
              result: DType | None = None) -> LoopTensor:
        """An elementwise op.

        Args:
            name: Name of the op.
            *xs: Numbers, indices and tiles.
            dtype: The dtype to compute in. `None` means the dtype that they have together.
            result: The dtype of the result. `None` leaves it. Default: `None`.
        """
        d = dtype or self.common(xs)
        tiles = [self.tile(x) for x in xs]
        for t in tiles:
            if (n := misfit(t, d)) is not None:
                raise BadOperand(f"{n} does not fit into {d}; convert the array beside it, such as "
                                 "with x.astype(np.int64)")
        axes = union(t.axes for t in tiles)
        rank = max(len(t.shape) for t in tiles)
        value = getattr(OPS, name)(*(_as(spread(t, axes, rank), d) for t in tiles))
        if result is not None and value.dtype is not result:
            value = OPS.cast(value, result)
        return LoopTensor(value, axes, all(t.weak for t in tiles))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        """`a op b`, computed while compiling where both are known."""
        name = BINARY[type(op)]
        if name in _BITS and self.common([a, b]).is_float:
            raise BadOperand(f"{_BITS[name]} takes integers and bools, not {self.common([a, b])}; "
                             "convert with np.int32(n) or x.astype(np.int32)")
        if isinstance(a, (Affine, *NUMBERS)) and isinstance(b, (Affine, *NUMBERS)):
            known = _known(op, a, b)
            if known is not None:
                return known
        d = self.common([a, b])
        if name == "divide" and not d.is_float:
            d = self.float
        if name == "power":
            return self._power(a, b, d)
        if d is boolean:
            # As in NumPy; Python's bools, such as `i > 2` of a counter, are numbers.
            in_numpy = any(isinstance(x, LoopTensor) and not x.weak for x in (a, b))
            if name == "sub" and in_numpy:
                raise BadOperand("- takes numbers, not bools; write ^, or np.int32(n)")
            if name in _LOGICAL:
                name = _LOGICAL[name]
            elif name in ("add", "mul") and in_numpy:
                name = "logical_or" if name == "add" else "logical_and"
            else:
                d = i32
        return self.apply(name, a, b, dtype=d)

    def _power(self, a: Any, b: Any, d: DType) -> LoopTensor:
        if isinstance(b, (int, float)) and not isinstance(b, bool):
            if b in (2, 3) or (b == 1):
                power = self.apply("mul", a, a, dtype=d) if b > 1 else self.apply("add", a, 0,
                                                                                  dtype=d)
                return self.apply("mul", power, a, dtype=d) if b == 3 else power
            if b == 0.5:
                return self.apply("sqrt", a, dtype=d if d.is_float else self.float)
        if d.is_float:
            return self.apply("power", a, b, dtype=d)
        if not isinstance(b, int) or b < 0:
            return self.apply("power", a, b, dtype=self.float)
        power = self.tile(1)
        for _ in range(b):
            power = self.apply("mul", power, a, dtype=d)
        return power

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        """`a op b` as a bool."""
        if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
            return _compared(op, a, b)
        if isinstance(a, (Affine, int)) and isinstance(b, (Affine, int)):
            certain = _decided(op, Affine.of(a).plus(b, -1))
            if certain is not None:
                return certain
        ordered = not isinstance(op, (ast.Eq, ast.NotEq)) and self.common([a, b]) is boolean
        return self.apply(COMPARISONS[type(op)], a, b, dtype=i32 if ordered else None)  # of 0 and 1

    def both(self, a: Any, b: Any) -> Any:
        """Whether both hold. True means no condition."""
        if a is True or b is True:
            return b if a is True else a
        if a is False or b is False:
            return False
        return self.apply("logical_and", a, b, dtype=boolean)

    def truth(self, x: Any) -> Any:
        """x as a condition: a bool that is known, or a tile of bools."""
        if not isinstance(x, (LoopTensor, Affine)):
            return bool(x)
        x = self.tile(x)
        return x if x.dtype is boolean else self.apply("not_equal", x, 0)

    def opposite(self, x: Any) -> Any:
        """Whether a condition does not hold."""
        if not isinstance(x, (LoopTensor, Affine)):
            return not x
        return self.apply("logical_not", self.truth(x), dtype=boolean)

    def choose(self, condition: Any, a: Any, b: Any) -> Any:
        """a where the condition holds, else b."""
        if condition is True or condition is False:
            return a if condition else b
        d = self.common([a, b])
        tiles = [self.tile(condition), self.tile(a), self.tile(b)]
        axes: Axes = union(t.axes for t in tiles)
        rank = max(len(t.shape) for t in tiles)
        c, x, y = (spread(t, axes, rank) for t in tiles)
        return LoopTensor(OPS.where(c, _as(x, d), _as(y, d)), axes, tiles[1].weak and tiles[2].weak)

    def cast(self, x: Any, d: DType) -> LoopTensor:
        """x in another dtype."""
        t = self.tile(x)
        return LoopTensor(_as(t.value, d), t.axes)


def misfit(t: LoopTensor, d: DType) -> int | None:
    """A known integer that a dtype of integers cannot hold; None for any other tile."""
    n = t.value.attrs["value"] if t.value.op.name == "full" else 0
    return n if d.is_int and isinstance(n, int) and not _fits(n, d) else None


def _fits(n: int, d: DType) -> bool:
    least = -(1 << (d.bits - 1)) if d.kind == "s" else 0
    return least <= n < least + (1 << d.bits)


def _as(v: Value, d: DType) -> Value:
    if v.op.name == "full" and v.dtype is not d and not v.args:
        return OPS.full(v.shape, v.attrs["value"], d)  # a number, not rounded on the way
    return v if v.dtype is d else OPS.cast(v, d)


def _dtype_of(x: Any, floating: DType) -> DType:
    if isinstance(x, Affine) or (isinstance(x, int) and not isinstance(x, bool)):
        return i32
    return boolean if isinstance(x, bool) else floating


def index_table(numbers: Any, axes: tuple[LoopVar, ...]) -> LoopTensor:
    """Integers that are known while compiling, one for each iteration of some loops."""
    return LoopTensor(constant(numbers, i32), axes, weak=True)


# -- constant folding ------------------------------------------------------------------------------

_PYTHON: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.Mod: lambda a, b: a % b, ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a ** b, ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b, ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b}


def python_binary(op: ast.operator, a: Any, b: Any) -> Any:
    """The result by Python's own arithmetic."""
    return _PYTHON[type(op)](a, b)


def _known(op: ast.operator, a: Any, b: Any) -> Any:
    """The result where it is known while compiling, also as an index; else None."""
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return python_binary(op, a, b)
    if isinstance(a, float) or isinstance(b, float):
        return None
    if isinstance(op, (ast.Add, ast.Sub)):
        return Affine.of(a).plus(b, 1 if isinstance(op, ast.Add) else -1).simple()
    if isinstance(op, ast.Mult) and not (isinstance(a, Affine) and isinstance(b, Affine)):
        index, factor = (a, b) if isinstance(a, Affine) else (b, a)
        return index.times(int(factor)).simple()
    if isinstance(op, (ast.FloorDiv, ast.Mod)) and isinstance(a, Affine) and (
            isinstance(b, int) and b > 0):
        low, high = a.range
        if low // b == high // b:
            return low // b if isinstance(op, ast.FloorDiv) else a.plus(-(low // b) * b).simple()
        if all(c % b == 0 for c in a.terms.values()):
            quotient = Affine({v: c // b for v, c in a.terms.items()}, a.const // b)
            return quotient.simple() if isinstance(op, ast.FloorDiv) else a.const % b
    return None


def _compared(op: ast.cmpop, a: Any, b: Any) -> bool:
    return {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b, ast.Eq: a == b,
            ast.NotEq: a != b}[type(op)]


def _decided(op: ast.cmpop, difference: Affine) -> bool | None:
    """Whether a difference compares with 0 the same way in all iterations."""
    low, high = difference.range
    outcomes = {_compared(op, x, 0) for x in (low, high)}
    if isinstance(op, (ast.Eq, ast.NotEq)):
        if low <= 0 <= high and low != high:
            return None
        return _compared(op, low, 0) if low == high or low > 0 or high < 0 else None
    return outcomes.pop() if len(outcomes) == 1 else None
