"""Translates sums and the like in a thread: loops over generators and over whole arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.kernels.expressions import Method
from ztorch.kernels.thread_calls import ThreadCalls
from ztorch.kernels.tiles import LoopTensor

ARRAY_REDUCTIONS = {sum: "sum", np.sum: "sum", max: "max", np.max: "max", min: "min", np.min: "min"}
COMBINERS: dict[str, Callable[[ast.expr, ast.expr], ast.expr]] = {
    "sum": lambda old, x: ast.BinOp(old, ast.Add(), x),
    "max": lambda old, x: ast.Call(ast.Constant(np.maximum), [old, x], []),  # type: ignore[arg-type]
    "min": lambda old, x: ast.Call(ast.Constant(np.minimum), [old, x], []),  # type: ignore[arg-type]
}


class ThreadFolds(ThreadCalls):
    """Evaluates sums and the like."""

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        if isinstance(function, Method) and function.of.shape:
            return self._over_array(node, node.func.value,  # type: ignore[attr-defined]
                                    function.name, node.args)
        if callable(function) and function in ARRAY_REDUCTIONS and node.args and isinstance(
                node.args[0], ast.Name):
            x = self.value(node.args[0])
            if isinstance(x, LoopTensor) and x.shape:
                return self._over_array(node, node.args[0], ARRAY_REDUCTIONS[function],
                                        node.args[1:])
        return super()._call(node)

    def _over_array(self, node: ast.Call, array: ast.expr, reduction: str, more: Sequence[ast.expr]
                    ) -> Any:
        """`row.max()`, `np.sum(row)` and the like: a loop over an array of one axis."""
        x = self.value(array)
        if reduction not in COMBINERS or more or node.keywords or len(x.shape) != 1:
            return self.number(node, x)
        name, k = (f"<{stem} {next(self.memory.leaves)}>" for stem in ("total", "at"))
        old = ast.Name(name, ast.Load())
        first, each = (ast.Subscript(array, i, ast.Load())
                       for i in (ast.Constant(0), ast.Name(k, ast.Load())))
        self._run(node, ast.Assign([ast.Name(name, ast.Store())], first),
                  ast.For(ast.Name(k, ast.Store()), range_call(1, x.shape[0]), [ast.Assign(
                      [ast.Name(name, ast.Store())], COMBINERS[reduction](old, each))], []))
        return self.value(ast.copy_location(old, node))

    def _run(self, node: ast.Call, *statements: ast.stmt) -> None:
        self.block([ast.fix_missing_locations(ast.copy_location(s, node)) for s in statements])

    def _over_generator(self, node: ast.Call, function: Any, generator: ast.GeneratorExp) -> Any:
        """`sum(x[k] for k in range(n))`, `any` and `all`: a loop of the thread."""
        [clause, *more] = generator.generators
        reductions: dict[Any, tuple[Any, Callable[..., ast.expr]]] = {
            sum: (0, COMBINERS["sum"]),
            any: (False, lambda old, x: ast.BoolOp(ast.Or(), [old, x])),
            all: (True, lambda old, x: ast.BoolOp(ast.And(), [old, x]))}
        if function not in reductions or more or not isinstance(clause.target, ast.Name):
            raise self.source.error(node, "only sum, any and all take a generator in threads, with "
                                    "one loop", "write a loop")
        start, combined = reductions[function]
        name = f"<total {next(self.memory.leaves)}>"
        x = generator.elt if function is sum else ast.IfExp(
            generator.elt, ast.Constant(True), ast.Constant(False))
        update: ast.stmt = ast.Assign([ast.Name(name, ast.Store())],
                                      combined(ast.Name(name, ast.Load()), x))
        for test in reversed(clause.ifs):
            update = ast.If(test, [update], [])
        self._run(node, ast.Assign([ast.Name(name, ast.Store())], ast.Constant(start)),
                  ast.For(clause.target, clause.iter, [update], []))
        return self.value(ast.copy_location(ast.Name(name, ast.Load()), node))


def range_call(*ends: int) -> ast.Call:
    """The call of `range` with these arguments."""
    return ast.Call(ast.Constant(range), [*map(ast.Constant, ends)], [])  # type: ignore[arg-type]
