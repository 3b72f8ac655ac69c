"""Expressions of a kernel."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.errors import KernelError, ZtorchError, nearest
from ztorch.graph.op import OPS, REGISTRY, constant
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.conditions import ConditionRules
from ztorch.kernels.known_functions import FUNCTIONS, METHODS
from ztorch.kernels.reading import BadIndex, index_of
from ztorch.kernels.tile_functions import BadCall
from ztorch.kernels.tiles import Affine, LoopTensor
from ztorch.kernels.unsupported_syntax import (
    INSTEAD,
    INSTEAD_OF_METHODS,
    INSTEAD_OF_NAMES,
    kind_of,
)
from ztorch.kernels.uses import local_names

_UNDEFINED = "set it before, or make it an argument of the kernel"


class Method:
    """A method of a tile, before it is called."""

    def __init__(self, name: str, of: LoopTensor):
        self.name, self.of = name, of


class ExpressionRules(ConditionRules):
    """Evaluates expressions, and has statements run by the rules of their kinds."""

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        return self._by_rule(node, "_", "write loops, conditions and arithmetic")

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Runs statements in order."""
        for s in statements:
            self._by_rule(s, "_run_", "write loops, conditions and assignments")

    def _by_rule(self, node: ast.expr | ast.stmt, prefix: str, fix: str) -> Any:
        """The result of the method for this kind of node; errors name its line."""
        rule = getattr(self, f"{prefix}{type(node).__name__.lower()}", None)
        if rule is None:
            raise self.source.error(node, f"{kind_of(node)} is not supported in kernels",
                                    INSTEAD.get(type(node), fix))
        try:
            return rule(node)
        except KernelError:
            raise
        except (BadIndex, BadCall, ZtorchError) as error:
            raise self.source.error(node, str(error)) from None
        except (ArithmeticError, ValueError) as error:  # of constants, such as 1 // 0
            raise self.source.error(node, f"{type(error).__name__}: {error}") from None

    # -- names and literals ----------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        variable = self.env.get(node.id)
        if variable is not None:
            if variable.stale:
                raise self.source.error(node, f"{node.id} was taken from {variable.of}, which is "
                                        "written after that", "take it after the writes, or use "
                                        "a .copy()")
            return variable.value
        if node.id == "<range>":
            return range
        if node.id in local_names(self.source.tree):
            raise self.source.error(
                node, f"{node.id} has no value here: it is set only inside a loop or a branch",
                "set it before")
        try:
            return known_object(self.source.lookup(node.id))
        except KeyError:
            raise self.source.error(
                node, f"{node.id} is not defined" + (nearest(node.id, self.env) or
                f"; {INSTEAD_OF_NAMES.get(node.id, _UNDEFINED)}")) from None

    def _tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(x for n in node.elts for x in self.spread(n))

    _list = _tuple

    def spread(self, node: ast.expr) -> Any:
        """The values of an argument: several if it has a star."""
        if isinstance(node, ast.Starred):
            items = self.value(node.value)
            if not isinstance(items, (tuple, range)):
                raise self.source.error(node, "only tuples can be spread with *")
            return items
        return (self.value(node),)

    def named(self, keywords: Sequence[ast.keyword]) -> dict[str, Any]:
        """The values of keyword arguments by name, also those of `**options`."""
        values: dict[str, Any] = {}
        for keyword in keywords:
            x = self.value(keyword.value)
            if keyword.arg is not None:
                values[keyword.arg] = x
            elif isinstance(x, dict):
                values.update({name: known_object(y) for name, y in x.items()})
            else:
                raise self.source.error(keyword.value, "only a dict can be spread with **")
        return values

    def _attribute(self, node: ast.Attribute) -> Any:
        of = self.value(node.value)
        if not isinstance(of, LoopTensor):
            if isinstance(of, (Affine, *NUMBERS)):
                raise self.source.error(node, f"a number has no attribute {node.attr}")
            try:
                return known_object(getattr(of, node.attr))
            except AttributeError:
                if isinstance(of, tuple):
                    raise self.source.error(
                        node, f"lists do not change in kernels, so they have no {node.attr}",
                        "make an array of its final size, such as np.empty(n, x.dtype), and write "
                        "to its elements") from None
                owner = getattr(of, "__name__", repr(of))
                raise self.source.error(
                    node, f"{owner} has no {node.attr}{_instead_of_attribute(of, node.attr)}"
                ) from None
        simple = {"shape": of.shape, "ndim": len(of.shape), "dtype": of.dtype,
                  "size": int(np.prod(of.shape))}
        if node.attr in simple:
            return simple[node.attr]
        if node.attr == "T":
            return METHODS["transpose"](self.arithmetic, of)
        if node.attr not in METHODS:
            hint = INSTEAD_OF_METHODS.get(node.attr) or (
                f"; write np.{node.attr}(x)" if getattr(np, node.attr, None) in FUNCTIONS else
                f"; write zt.ops.{node.attr}(...)" if node.attr in REGISTRY else nearest(
                    node.attr, [*METHODS, *simple, "T"], likeness=0.7))
            raise self.source.error(node, f"arrays have no {node.attr} in kernels{hint}")
        return Method(node.attr, of)

    # -- operators -------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        a, b = self._operand(node.left), self._operand(node.right)
        if isinstance(node.op, ast.MatMult):
            return FUNCTIONS[np.matmul](self.arithmetic, a, b)
        if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(node.op, ast.Add):
            return a + b
        if isinstance(a, tuple) and isinstance(b, int) and isinstance(node.op, ast.Mult) and all(
                isinstance(x, NUMBERS) for x in a):
            return a * b
        for n, x in ((node.left, a), (node.right, b)):
            if isinstance(x, tuple):
                raise self.source.error(n, f"{ast.unparse(n)} is a tuple, and operators take "
                                        "numbers and arrays", "take one of its elements, or write "
                                        "np.array(...)")
        self.check_shapes(node, a, b)
        return self.arithmetic.binary(node.op, a, b)

    def _operand(self, node: ast.expr) -> Any:
        x = self.value(node)
        if not isinstance(x, (LoopTensor, Affine, tuple, *NUMBERS)):
            raise self.source.error(node, f"{x!r} is not a number or array", "compute the real and "
                                    "the imaginary parts" if isinstance(x, complex) else "")
        return x

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self.arithmetic.opposite(self.truth(node.operand))
        x = self._operand(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(x, NUMBERS):
                return -x
            if isinstance(x, LoopTensor) and x.dtype is boolean and not x.weak:
                raise self.source.error(node, "- takes numbers, not bools",
                                        "write ~, or np.int32(n)")
            return x.times(-1) if isinstance(x, Affine) else self.arithmetic.apply("neg", x)
        if isinstance(node.op, ast.Invert):
            if isinstance(x, int):
                return ~x
            return self.arithmetic.apply("bitwise_not", x)
        return x

    # -- elements --------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Any:
        of = self.value(node.value)
        if isinstance(node.slice, ast.List) and isinstance(of, LoopTensor):
            raise self.source.error(node, "a list is no index", "read the elements one by one, or "
                                    "by an index from an array")
        key = self.value(node.slice)
        if isinstance(key, (LoopTensor, Affine)) and isinstance(of, tuple):
            of = self._table(node, of)
        if not isinstance(of, LoopTensor):
            try:
                return known_object(of[key])
            except (TypeError, IndexError, KeyError) as error:
                raise self.source.error(node, str(error)) from None
        self.check_written(node, of)
        variable = self.env.get(node.value.id) if isinstance(node.value, ast.Name) else None
        changes = variable.changes if variable else len(self.loops)
        try:
            return self.read(of, changes, index_of(key, of.shape))
        except BadIndex as error:
            raise self.source.error(node, str(error)) from None

    def check_written(self, node: ast.Subscript, array: LoopTensor) -> None:
        """Raises an error if no element of an array has a value yet."""
        if array.value in self.arithmetic.unwritten:
            name = ast.unparse(node.value)
            raise self.source.error(node, f"{name} is read before any of its elements is written",
                                    "make it with np.zeros, or write its elements first")

    def _table(self, node: ast.Subscript, numbers: tuple[Any, ...]) -> LoopTensor:
        """A tuple of numbers as an array, which can be indexed by run-time values."""
        if not all(isinstance(x, NUMBERS) for x in numbers):
            raise self.source.error(node, "a tuple can only be indexed by a known integer",
                                    "use an array")
        d = self.arithmetic.common(numbers)
        return LoopTensor(constant(np.array(numbers, d.numpy), d), (), weak=True)

    def _slice(self, node: ast.Slice) -> Any:
        return slice(*(None if n is None else self.value(n)
                       for n in (node.lower, node.upper, node.step)))


def _instead_of_attribute(of: Any, name: str) -> str:
    """What to write instead of an attribute that an object lacks."""
    if of is np:
        return f"; write zt.ops.{name}(...)" if name in REGISTRY else nearest(name, dir(of))
    if name in INSTEAD_OF_NAMES:
        return f"; {INSTEAD_OF_NAMES[name]}"
    in_numpy = getattr(of, "__name__", "") == "ztorch" and getattr(np, name, None) in FUNCTIONS
    return f"; write np.{name}(...)" if in_numpy else nearest(name, dir(of))


def known_object(x: Any) -> Any:
    """An object from outside as a value of a kernel."""
    if isinstance(x, np.generic):
        return LoopTensor(OPS.full((), x.item(), str(x.dtype)))
    if isinstance(x, np.ndarray):
        return LoopTensor(constant(x))
    return tuple(x) if isinstance(x, list) else x
