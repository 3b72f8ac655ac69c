"""Translates the statements of a kernel that are neither loops nor assignments: functions,
branches and others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.control_flow import without_jumps
from ztorch.kernels.loops import LoopRules
from ztorch.kernels.patterns import selection
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.selecting import run_selection
from ztorch.kernels.source import source_of
from ztorch.kernels.thread_functions import THREAD_FUNCTIONS
from ztorch.kernels.tiles import Affine, LoopTensor


class StatementRules(LoopRules):
    """Runs statements."""

    def function(self) -> Any:
        """Runs the function and returns its result."""
        body = without_jumps(self.source, self.max_steps)
        last = body[-1]
        self.block(body[:-1] if isinstance(last, ast.Return) else body)
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.source.error(last, "the function returns nothing", "end it with `return` "
                                    "and the arrays that it fills")
        result = self.value(last.value)
        for part in result if isinstance(result, tuple) else (result,):
            if not isinstance(part, (LoopTensor, Affine, *NUMBERS)):
                raise self.source.error(last, f"{part!r} is not an array or number",
                                        "return arrays, numbers, or a tuple of them")
        return result

    def inline(self, node: ast.Call, function: Callable[..., Any], args: tuple[Any, ...],
               named: dict[str, Any]) -> Any:
        """The result of another function."""
        if function in self.calls:
            raise self.source.error(node, f"{function.__name__} calls itself, and kernels cannot",
                                    "write a loop")
        inner = StatementRules(source_of(function), self.arithmetic, (*self.calls, function))
        inner.loops, inner.masks, inner.max_steps = self.loops, self.masks, self.max_steps
        inner.notes = self.notes
        try:
            bound = inner.source.signature(function, args, named)
        except TypeError as error:
            raise self.source.error(node, f"{function.__name__}: {error}") from None
        # A star hides which expression an argument comes from.
        has_star = any(isinstance(n, ast.Starred) for n in node.args)
        nodes = {} if has_star else dict(zip([id(a) for a in args], node.args, strict=False))
        for name, x in bound.items():
            argument = nodes.get(id(x))
            variable = self.env.get(argument.id) if isinstance(argument, ast.Name) else None
            changes = variable.changes if variable else len(self.loops)
            inner.env[name] = KernelVariable(x, len(self.loops), changes, len(self.masks),
                                       fixed=f"{name} is an argument")
        return inner.function()

    # -- simple statements -----------------------------------------------------------------------

    def _run_expr(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Yield):
            self.value(s.value)  # raises the error that it is not supported
        if not isinstance(s.value, ast.Constant):
            called = self.value(s.value.func) if isinstance(s.value, ast.Call) else None
            if any(called is function for function in THREAD_FUNCTIONS):
                self.value(s.value)  # raises the error that there are no threads here
            if called is print or called is breakpoint:
                raise self.source.error(s, f"{called.__name__} has no meaning in compiled code",
                                        "run the kernel as plain Python: kernel.debug(...)")
            raise self.source.error(s, "the value is not used", self.instead_of_unused(s.value))

    def _run_return(self, s: ast.Return) -> None:
        at_the_top = any(s is x for x in self.source.tree.body)
        raise self.source.error(s, "statements follow return" if at_the_top else
                                "return is inside a loop or a branch",
                                "return once, at the end of the function")

    def _run_if(self, s: ast.If) -> None:
        chosen = selection(s)
        if chosen is not None and chosen.best in self.env and self.parallel(
                self.env[chosen.best].depth):
            run_selection(self, s, chosen)
            return
        test = self.truth(s.test)
        if isinstance(test, bool):
            self.block(s.body if test else s.orelse)
            return
        before = dict(self.env)
        yes = self._branch(test, s.body)
        outcomes = {n: self.env[n] for n in yes}
        for n in yes:
            if n in before:
                self.env[n] = before[n]
            else:
                del self.env[n]
        no = self._branch(self.arithmetic.opposite(test), s.orelse)
        for n in sorted(yes | no):
            a = outcomes.get(n, before.get(n))
            b = self.env.get(n) if n in no else before.get(n)
            if a is None or b is None:  # no value if the other branch is taken
                self.env.pop(n, None)
                continue
            x = self._merged(s, n, test, a.value, b.value)
            variable = replace(before.get(n, a), value=x,
                               masks=before[n].masks if n in before else len(self.masks),
                               fixed=a.fixed or b.fixed)
            self.env[n] = variable
            if self.assigned:
                self.assigned[-1].add(n)

    def _branch(self, test: Any, statements: Sequence[ast.stmt]) -> set[str]:
        self.masks.append(test)
        self.assigned.append(set())
        self.block(statements)
        self.masks.pop()
        return self.assigned.pop()

    def _merged(self, s: ast.If, name: str, test: Any, a: Any, b: Any) -> Any:
        numeric = (LoopTensor, Affine, *NUMBERS)
        if isinstance(a, numeric) and isinstance(b, numeric):
            return self.arithmetic.choose(test, a, b)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self._merged(s, name, test, x, y) for x, y in zip(a, b, strict=True))
        if a is b:
            return a
        raise self.source.error(s, f"{name} is {a!r} in one branch and {b!r} in the other")
