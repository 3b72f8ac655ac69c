"""Conditions of a kernel: comparisons, `and`, `or` and conditional expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.scope import IndexBound, Scope
from ztorch.kernels.tiles import Affine, LoopTensor

_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge}


class ConditionRules(Scope):
    """Evaluates conditions."""

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        raise NotImplementedError

    def truth(self, node: ast.expr) -> Any:
        """An expression as a condition: a bool that is known, or a bool of each iteration."""
        return self._condition(node, self._operands(node)[0] if isinstance(node, ast.BoolOp)
                               else self.value(node))

    def _condition(self, node: ast.expr, x: Any) -> Any:
        if isinstance(x, LoopTensor) and x.shape:
            raise self.source.error(node, f"an array of shape {list(x.shape)} is no condition",
                                    "use np.where, .any() or .all(), or loop over its elements")
        return self.arithmetic.truth(x)

    def check_shapes(self, node: ast.expr, a: Any, b: Any) -> None:
        """Raises an error if two arrays do not go together."""
        if isinstance(a, LoopTensor) and isinstance(b, LoopTensor):
            try:
                np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                short, long = sorted((a.shape, b.shape), key=len)
                by_rows = len(short) == 1 and len(long) == 2 and short[0] == long[0]
                raise self.source.error(
                    node, f"shapes {list(a.shape)} and {list(b.shape)} do not go together",
                    "they must be equal, or 1, from the last axis on" + (
                        ": write x[:, None] for a number of each row" if by_rows else "")
                ) from None

    def _boolop(self, node: ast.BoolOp) -> Any:
        """As in Python, `and` and `or` of numbers are the operand that decides."""
        total, operands = self._operands(node)
        if all(isinstance(x, bool) or (isinstance(x, LoopTensor) and x.dtype is boolean)
               for x, _ in operands):
            return total
        [*earlier, (result, _)] = operands
        for x, test in reversed(earlier):
            last = (result, x) if isinstance(node.op, ast.And) else (x, result)
            result = self.arithmetic.choose(test, *last)
        return result

    def _operands(self, node: ast.BoolOp) -> tuple[Any, list[tuple[Any, Any]]]:
        """`and` or `or` as a condition, and the operands with the condition that each is. A later
        operand is only read if the earlier ones allow it."""
        total: Any = None
        operands: list[tuple[Any, Any]] = []
        known = len(self.masks)
        is_and = isinstance(node.op, ast.And)
        for part in node.values:
            x = self.value(part)
            operands.append((x, bool(x)) if not isinstance(x, (LoopTensor, Affine)) else
                            (x, self._condition(part, x)))
            if not isinstance(x, (LoopTensor, Affine)):
                if bool(x) != is_and:
                    total = x if total is None else not is_and
                    break
                continue
            x = operands[-1][1]
            if total is None or isinstance(total, bool):
                total = x
            elif is_and:
                total = self.both(total, x)
            else:
                total = self.arithmetic.opposite(self.arithmetic.both(
                    self.arithmetic.opposite(total), self.arithmetic.opposite(x)))
            self.masks.append(x if is_and else self.arithmetic.opposite(x))
        del self.masks[known:]
        return is_and if total is None else total, operands

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
                try:
                    part = _ORDER[type(op)](a, b)
                except TypeError as error:
                    raise self.source.error(node, str(error)) from None
            else:
                self.check_shapes(node, a, b)
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
        for part, x in ((node.body, a), (node.orelse, b)):
            if not isinstance(x, (LoopTensor, Affine, *NUMBERS)):
                raise self.source.error(part, f"{ast.unparse(part)} is not a number or array, and "
                                        "which one is chosen depends on data",
                                        "compute both, and choose between the results")
        return self.arithmetic.choose(test, a, b)
