"""Complex numbers in the graph: pairs of real values, and the table of the ops that accept them.

Each op is a composition of real ops, so it fuses, runs on every device and has a gradient, that of
real functions of the two parts. `arrays/` calls them on tensors.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.graph.op import ALIASES, OPS, REGISTRY
from ztorch.graph.trees import TreeBranch
from ztorch.graph.value import Value


class ComplexValue(TreeBranch):
    """A complex value, whose parts have the same shape and dtype.

    Attributes:
        real: The real part.
        imag: The imaginary part.
    """

    __slots__ = ("imag", "real")
    _fields = "real", "imag"

    def __init__(self, real: Value, imag: Value):
        self.real, self.imag = real, imag

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.real.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.real.rank

    def on_parts(self, op: str, *args: Any, **attrs: Any) -> ComplexValue:
        """Applies a real op to each part."""
        call = getattr(OPS, op)
        return ComplexValue(call(self.real, *args, **attrs), call(self.imag, *args, **attrs))

    def __getitem__(self, key: Any) -> ComplexValue:
        return ComplexValue(self.real[key], self.imag[key])

    def __neg__(self) -> ComplexValue:
        return ComplexValue(-self.real, -self.imag)

    def __add__(self, other: ComplexValue) -> ComplexValue:
        return ComplexValue(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: ComplexValue) -> ComplexValue:
        return ComplexValue(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: ComplexValue | Value | float) -> ComplexValue:
        if not isinstance(other, ComplexValue):
            return ComplexValue(self.real * other, self.imag * other)
        return ComplexValue(self.real * other.real - self.imag * other.imag,
                            self.real * other.imag + self.imag * other.real)

    def __matmul__(self, other: ComplexValue) -> ComplexValue:
        return ComplexValue(
            OPS.matmul(self.real, other.real) - OPS.matmul(self.imag, other.imag),
            OPS.matmul(self.real, other.imag) + OPS.matmul(self.imag, other.real))

    def conjugate(self) -> ComplexValue:
        """The value with the imaginary part negated."""
        return ComplexValue(self.real, -self.imag)

    def adjoint(self) -> ComplexValue:
        """The conjugate of the transposed matrices."""
        return self.conjugate().on_parts("matrix_transpose")

    def hermitian(self) -> ComplexValue:
        """The Hermitian matrices with this lower triangle."""
        lower = self.on_parts("tril", -1)
        hermitian = lower + lower.adjoint()
        own = OPS.diagonal(self.real, 0, -2, -1)
        eye = OPS.eye(self.shape[-1], dtype=own.dtype)
        return ComplexValue(hermitian.real + OPS.expand_dims(own, -1) * eye, hermitian.imag)

    def squares(self) -> Value:
        """The squared absolute values."""
        return self.real * self.real + self.imag * self.imag

    def turned(self) -> ComplexValue:
        """The product with i."""
        return ComplexValue(-self.imag, self.real)

    def turned_back(self) -> ComplexValue:
        """The product with -i."""
        return ComplexValue(self.imag, -self.real)


def choose(condition: Value, x: ComplexValue, y: ComplexValue) -> ComplexValue:
    """x where a condition holds, otherwise y."""
    return ComplexValue(OPS.where(condition, x.real, y.real),
                        OPS.where(condition, x.imag, y.imag))


def all_of(*conditions: Value) -> Value:
    """Whether all conditions hold."""
    return functools.reduce(OPS.bitwise_and, conditions)


def any_of(*conditions: Value) -> Value:
    """Whether one of the conditions holds."""
    return functools.reduce(OPS.bitwise_or, conditions)


class ComplexOp(NamedTuple):
    """An op on complex numbers. Parameters annotated as `ComplexValue` are complex, those annotated
    as `Value` real."""

    call: Callable[..., Any]
    signature: inspect.Signature
    tensors: frozenset[str]  # the names of parameters that are tensors
    complex: frozenset[str]  # and of complex ones


_TABLE: dict[str, Callable[..., Any]] = {}
# Families of ops that follow a rule: the name of an op -> a function, or None.
_RULES: list[Callable[[str], Callable[..., Any] | None]] = []


def complex_op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of complex values as ops; by default, under its own name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names or (function.__name__,):
            assert name not in _TABLE, f"the complex op {name} is registered twice"
            _TABLE[name] = function
        return function

    return register


def complex_rule(rule: Callable[[str], Callable[..., Any] | None]) -> Any:
    """Registers a function that derives a family of ops from the real ones."""
    _RULES.append(rule)
    return rule


@functools.cache
def _import_all() -> None:
    """Imports the files of this room that register complex ops."""
    room = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("complex_"):
            importlib.import_module(f"{room}.{module.name}")


@functools.cache
def complex_form(name: str) -> ComplexOp | None:
    """The complex form of an op; None if it has none.

    >>> complex_form("exp").signature, complex_form("less")
    (<Signature (x: 'ComplexValue') -> 'ComplexValue'>, None)
    """
    _import_all()
    name = name if name in _TABLE else ALIASES.get(name, name)
    call = _TABLE.get(name) or next((f for rule in _RULES if (f := rule(name))), None)
    if call is None:
        return None
    signature = inspect.signature(call)
    kinds = {p.name: str(p.annotation) for p in signature.parameters.values()}
    return ComplexOp(call, signature, frozenset(n for n, kind in kinds.items() if "Value" in kind),
                     frozenset(n for n, kind in kinds.items() if "ComplexValue" in kind))


def complex_names() -> list[str]:
    """The ops of `zt.ops` that accept complex numbers.

    >>> len(complex_names()) > 100, "sort" in complex_names()
    (True, False)
    """
    return sorted(name for name in REGISTRY if complex_form(name))
