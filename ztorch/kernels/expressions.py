"""Expressions of a kernel."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.errors import KernelError, ZtorchError, nearest
from ztorch.graph.op import OPS, REGISTRY, constant
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.known_functions import FUNCTIONS, METHODS
from ztorch.kernels.reading import BadIndex, index_of
from ztorch.kernels.scope import IndexBound, Scope
from ztorch.kernels.tile_functions import BadCall
from ztorch.kernels.tiles import Affine, LoopTensor
from ztorch.kernels.unsupported_syntax import INSTEAD, INSTEAD_OF_METHODS, kind_of


class Method:
    """A method of a tile, before it is called."""

    def __init__(self, name: str, of: LoopTensor):
        self.name, self.of = name, of


class ExpressionRules(Scope):
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
        try:
            return _known_object(self.source.lookup(node.id))
        except KeyError:
            if node.id in self.local_names:
                raise self.source.error(
                    node, f"{node.id} has no value here: it is set only inside a loop or a branch",
                    "set it before") from None
            raise self.source.error(
                node, f"{node.id} is not defined" + (nearest(node.id, self.env) or "; set it "
                "before, or make it an argument of the kernel")) from None

    @property
    def local_names(self) -> set[str]:
        """The names that the function sets somewhere."""
        return {n.id for n in ast.walk(self.source.tree) if isinstance(n, ast.Name)
                and isinstance(n.ctx, ast.Store)}

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
                values.update({name: _known_object(y) for name, y in x.items()})
            else:
                raise self.source.error(keyword.value, "only a dict can be spread with **")
        return values

    def _attribute(self, node: ast.Attribute) -> Any:
        of = self.value(node.value)
        if not isinstance(of, LoopTensor):
            if isinstance(of, (Affine, *NUMBERS)):
                raise self.source.error(node, f"a number has no attribute {node.attr}")
            try:
                return _known_object(getattr(of, node.attr))
            except AttributeError:
                if isinstance(of, tuple):
                    raise self.source.error(
                        node, f"lists do not change in kernels, so they have no {node.attr}",
                        "make an array of its final size, such as np.empty(n, x.dtype), and write "
                        "to its elements") from None
                owner = getattr(of, "__name__", repr(of))
                in_ops = of is np and node.attr in REGISTRY
                hint = f"; write zt.ops.{node.attr}(...)" if in_ops else nearest(node.attr, dir(of))
                raise self.source.error(node, f"{owner} has no {node.attr}{hint}") from None
        simple = {"shape": of.shape, "ndim": len(of.shape), "dtype": of.dtype,
                  "size": int(np.prod(of.shape))}
        if node.attr in simple:
            return simple[node.attr]
        if node.attr == "T":
            return METHODS["transpose"](self.arithmetic, of)
        if node.attr not in METHODS:
            hint = INSTEAD_OF_METHODS.get(node.attr) or (
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
        self._check_shapes(node, a, b)
        return self.arithmetic.binary(node.op, a, b)

    def _operand(self, node: ast.expr) -> Any:
        x = self.value(node)
        if not isinstance(x, (LoopTensor, Affine, tuple, *NUMBERS)):
            raise self.source.error(node, f"{x!r} is not a number or array")
        return x

    def _check_shapes(self, node: ast.expr, a: Any, b: Any) -> None:
        if isinstance(a, LoopTensor) and isinstance(b, LoopTensor):
            try:
                np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                raise self.source.error(
                    node, f"shapes {list(a.shape)} and {list(b.shape)} do not go together",
                    "they must be equal, or 1, from the last axis on") from None

    def truth(self, node: ast.expr) -> Any:
        """An expression as a condition: a bool that is known, or a bool of each iteration."""
        return self._condition(node, self.value(node))

    def _condition(self, node: ast.expr, x: Any) -> Any:
        if isinstance(x, LoopTensor) and x.shape:
            raise self.source.error(node, f"an array of shape {list(x.shape)} is no condition",
                                    "use np.where, .any() or .all(), or loop over its elements")
        return self.arithmetic.truth(x)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self.arithmetic.opposite(self.truth(node.operand))
        x = self._operand(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(x, NUMBERS):
                return -x
            return x.times(-1) if isinstance(x, Affine) else self.arithmetic.apply("neg", x)
        if isinstance(node.op, ast.Invert):
            if isinstance(x, int):
                return ~x
            return self.arithmetic.apply("bitwise_not", x)
        return x

    def _boolop(self, node: ast.BoolOp) -> Any:
        """`and` and `or` short-circuit: a later operand is only read if the earlier ones allow
        it."""
        total: Any = None
        known = len(self.masks)
        is_and = isinstance(node.op, ast.And)
        for part in node.values:
            x = self.value(part)
            if not isinstance(x, (LoopTensor, Affine)):
                if bool(x) != is_and:
                    total = x if total is None else not is_and
                    break
                continue
            x = self._condition(part, x)
            if total is None or isinstance(total, bool):
                total = x
            elif is_and:
                total = self.both(total, x)
            else:
                total = self.arithmetic.opposite(self.arithmetic.both(
                    self.arithmetic.opposite(total), self.arithmetic.opposite(x)))
            self.masks.append(x if is_and else self.arithmetic.opposite(x))
        del self.masks[known:]
        return is_and if total is None else total

    def _compare(self, node: ast.Compare) -> Any:
        total: Any = True
        a = self.value(node.left)
        for op, right in zip(node.ops, node.comparators, strict=True):
            b = self.value(right)
            if isinstance(op, (ast.Is, ast.IsNot)):
                same = a is b
                part: Any = same if isinstance(op, ast.Is) else not same
            elif isinstance(op, (ast.In, ast.NotIn)):
                if isinstance(a, (LoopTensor, Affine)):
                    raise self.source.error(node, "`in` compares only compile-time constants",
                                            "write x == 1 or x == 2")
                part = (a in b) == isinstance(op, ast.In)
            elif not isinstance(a, (LoopTensor, Affine, *NUMBERS)) or not isinstance(
                    b, (LoopTensor, Affine, *NUMBERS)):
                if isinstance(a, LoopTensor) or isinstance(b, LoopTensor):
                    other = b if isinstance(a, LoopTensor) else a
                    raise self.source.error(node, f"an array is compared with {other!r}",
                                            "compare numbers; write `is None` for an argument "
                                            "that a call may leave out")
                part = (a == b) == isinstance(op, ast.Eq)
            else:
                self._check_shapes(node, a, b)
                if len(node.ops) > 1 and any(isinstance(x, LoopTensor) and x.shape for x in (a, b)):
                    raise self.source.error(node, "two comparisons of arrays are no condition",
                                            "combine them by &: (0 < x) & (x < 1)")
                part = self.arithmetic.compare(op, a, b)
                self._note_bound(op, a, b, part)
            total = self.both(total, part)
            a = b
        return total

    def _note_bound(self, op: ast.cmpop, a: Any, b: Any, outcome: Any) -> None:
        """Remembers that a comparison asks whether an index is inside of an axis."""
        if isinstance(a, int) and isinstance(b, Affine):
            swapped: dict[type[ast.cmpop], ast.cmpop] = {
                ast.Lt: ast.Gt(), ast.LtE: ast.GtE(), ast.Gt: ast.Lt(), ast.GtE: ast.LtE()}
            a, b, op = b, a, swapped.get(type(op), op)
        if not isinstance(a, Affine) or not isinstance(b, int) or not isinstance(
                outcome, LoopTensor):
            return
        if isinstance(op, (ast.GtE, ast.Gt)) and b + isinstance(op, ast.Gt) == 0:
            self.bounds[outcome.value] = (IndexBound(a, None),)
        elif isinstance(op, (ast.Lt, ast.LtE)):
            self.bounds[outcome.value] = (IndexBound(a, b + isinstance(op, ast.LtE)),)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.truth(node.test)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        self.masks.append(test)
        a = self.value(node.body)
        self.masks[-1] = self.arithmetic.opposite(test)
        b = self.value(node.orelse)
        self.masks.pop()
        return self.arithmetic.choose(test, a, b)

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
                return of[key]
            except (TypeError, IndexError, KeyError) as error:
                raise self.source.error(node, str(error)) from None
        variable = self.env.get(node.value.id) if isinstance(node.value, ast.Name) else None
        changes = variable.changes if variable else len(self.loops)
        try:
            return self.read(of, changes, index_of(key, of.shape))
        except BadIndex as error:
            raise self.source.error(node, str(error)) from None

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


def _known_object(x: Any) -> Any:
    """An object from outside as a value of a kernel."""
    if isinstance(x, np.generic):
        return LoopTensor(OPS.full((), x.item(), str(x.dtype)))
    if isinstance(x, np.ndarray):
        return LoopTensor(constant(x))
    return tuple(x) if isinstance(x, list) else x
