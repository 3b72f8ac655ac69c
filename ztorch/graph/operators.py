"""Python's operators and methods of arrays, for values of a graph and for tensors.

Each operator is an op, by the tables below. Every other op that begins with a tensor is a method
too: `x.relu()` is `zt.ops.relu(x)`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from ztorch.errors import ShapeError, nearest

# Python's name of an operator -> the op. Those with two operands exist reflected as well.
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "divide", "pow": "power",
          "matmul": "matmul", "floordiv": "floor_divide", "mod": "remainder",
          "and": "bitwise_and", "or": "bitwise_or",
          "xor": "bitwise_xor", "lshift": "shift_left", "rshift": "shift_right"}
COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
UNARY = {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}


class Operators:
    """Base class of operands of ops. A subclass implements the call of an op in `apply_op`."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy arrays leave mixed operators to us

    shape: tuple[int, ...]
    instead: ClassVar[Mapping[str, str]] = {}  # of names that are not ops; `ops/` says it
    # Turns the arguments of a user's call into those of the op; `ops/` says for which.
    translated: ClassVar[Callable[[str], Callable[..., Any] | None]] = lambda name: None

    @property
    def compares(self) -> bool:
        """Whether == compares elements, not objects."""
        return True

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        """Calls the op of that name."""
        raise NotImplementedError

    @staticmethod
    def ops() -> Sequence[Mapping[str, Any]]:
        """The tables whose keys name ops, which are methods."""
        raise NotImplementedError

    @classmethod
    def method_of(cls, name: str) -> FunctionType:
        """An op as a method. NumPy's functions pass `out` and `dtype`, if only as None."""
        translate = cls.translated(name)

        def method(self: Operators, *args: Any, out: None = None, **attrs: Any) -> Any:
            if attrs and attrs.get("dtype", 0) is None:
                del attrs["dtype"]
            args = (self, *args)
            if translate is not None:
                args, attrs = translate(args, attrs)
            return self.apply_op(name, *args, **attrs)

        method.__name__ = method.__qualname__ = name
        assert isinstance(method, FunctionType)
        return method

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __getitem__(self, key: Any) -> Any:
        return self.apply_op("slice_by", self, key)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def T(self) -> Any:
        """The transpose: all axes in reverse order."""
        return self.apply_op("transpose", self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Any:
        """The transpose of each matrix: the last two axes swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT takes a tensor of two axes or more, not of shape {self.shape}")
        *batch, rows, columns = range(self.ndim)
        return self.apply_op("transpose", self, (*batch, columns, rows))

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape; one size may be -1."""
        return self.apply_op("reshape", self, shape[0] if _is_tuple(shape) else shape)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order; without arguments, in reverse."""
        order = axes[0] if _is_tuple(axes) else axes
        return self.T if order in ((), (None,)) else self.apply_op("transpose", self, tuple(order))

    permute = transpose  # as PyTorch has it

    def view(self, *shape: Any, dtype: Any = None) -> Any:
        """`reshape`, or the bits of the elements read as another dtype of the same size."""
        if dtype is None and isinstance(shape[0] if shape else 0, (int, list, tuple)):
            return self.reshape(*shape)
        return self.apply_op("view", self, shape[0] if len(shape) == 1 else shape or None, dtype)

    def astype(self, dtype: Any) -> Any:
        """The elements converted to another dtype."""
        return self.apply_op("cast", self, dtype)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # Python, NumPy and PyTorch probe for optional protocols
            raise AttributeError(name)
        for table in self.ops():
            if name in table:
                method = self.method_of(name)
                setattr(type(self), name, method)  # the next one is found at once
                bound: Callable[..., Any] = method.__get__(self)
                return bound
        hint = f"; {self.instead[name]}" if name in self.instead else nearest(
            name, itertools.chain(*self.ops()), likeness=0.7)
        raise AttributeError(f"a tensor has no {name!r}{hint or '; compute with zt.ops'}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *itertools.chain(*self.ops())})

    if TYPE_CHECKING:  # defined below, by the tables

        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __add__(self, other: Any) -> Any: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __add__
        __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __add__
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __add__
        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__


def compared(op: str, x: Operators, other: Any) -> Any:
    """x == other or x != other: by element where users write it, as in Keras, and by identity in
    this package and in dicts of Python's own modules, which look values up."""
    room = sys._getframe(2).f_globals.get("__name__", "").partition(".")[0]
    if room == "ztorch" or room in sys.stdlib_module_names or not x.compares or not (
            hasattr(other, "shape") or isinstance(other, (bool, int, float))):
        return NotImplemented
    return x.apply_op(op, x, other)


class ComparedByElement(Operators):
    """Operands with == and !=, which are hashed by identity."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return compared("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return compared("not_equal", self, other)

    __hash__ = object.__hash__


def _is_tuple(arguments: tuple[Any, ...]) -> bool:
    """Whether sizes or axes came as one tuple, not one by one."""
    return len(arguments) == 1 and isinstance(arguments[0], (tuple, list))


def _unary(op: str) -> Callable[[Operators], Any]:
    return lambda x: x.apply_op(op, x)


def _binary(op: str) -> Callable[[Operators, Any], Any]:
    return lambda a, b: a.apply_op(op, a, b)


def _reflected(op: str) -> Callable[[Operators, Any], Any]:
    return lambda a, b: a.apply_op(op, b, a)


for _python, _op in UNARY.items():
    setattr(Operators, f"__{_python}__", _unary(_op))
for _python, _op in (BINARY | COMPARISONS).items():
    setattr(Operators, f"__{_python}__", _binary(_op))
for _python, _op in BINARY.items():
    setattr(Operators, f"__r{_python}__", _reflected(_op))
