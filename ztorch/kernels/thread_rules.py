"""Translates the body of a loop over `zt.threads` to the statements of a thread."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.dtypes import i32
from ztorch.graph.thread_bounds import ANY, bounds_of
from ztorch.graph.thread_program import (
    Branch,
    CountedLoop,
    ThreadStatement,
)
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.control_flow import END_FLAG, thread_without_jumps
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.known_functions import grid
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.source import Source, source_of
from ztorch.kernels.thread_folds import ThreadFolds, range_call
from ztorch.kernels.thread_memory import ThreadMemory
from ztorch.kernels.thread_numbers import OwnVariable
from ztorch.kernels.tiles import LoopTensor
from ztorch.kernels.uses import assigned, settings

MAX_ITERATIONS = (1 << 31) - 1  # largest number of iterations of a `while` loop


class ThreadRules(ThreadFolds):
    """Runs the statements of a thread."""

    def __init__(self, source: Source, outer: ExpressionRules, memory: ThreadMemory,
                 calls: tuple[Any, ...] = ()):
        super().__init__(source, outer.arithmetic, calls or outer.calls)
        self.memory = memory
        self.statements: list[ThreadStatement] = []
        self.env = dict(outer.env) if not calls else {}
        self.outer_names = frozenset(self.env)
        self.prefix = f"{source.name} {next(memory.scopes)} "  # of its variables
        self.max_steps = outer.max_steps
        self.passed_arrays = {}
        self.single: set[str] = set()  # names that are set in one place
        self.once: set[str] = set()  # names that are set in one place, outside of inner loops

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Runs the statements of a thread, or of a function that it calls."""
        every = Counter(n for s in body for n in settings(s))
        self.single = {n for n, count in every.items() if count == 1}
        self.once = {n for s in body for n in assigned([s])
                     if n in self.single and isinstance(s, (ast.Assign, ast.AnnAssign))}
        self.block(body)

    def inline(self, node: ast.Call, function: Callable[..., Any], args: tuple[Any, ...],
               named: dict[str, Any]) -> Any:
        """The result of a function that the thread calls."""
        if function in self.calls:
            raise self.source.error(node, f"{function.__name__} calls itself, and kernels cannot",
                                    "write a loop")
        inner = type(self)(source_of(function), self, self.memory, (*self.calls, function))
        inner.statements, inner.nested = self.statements, self.nested
        inner.passed_arrays = self.passable_arrays()
        try:
            bound = inner.source.signature(function, args, named)
        except TypeError as error:
            raise self.source.error(node, str(error)) from None
        inner.env = {n: KernelVariable(x, fixed=f"{n} is an argument") for n, x in bound.items()}
        body = thread_without_jumps(inner.source, inner.source.tree)
        last = body[-1]
        returns = isinstance(last, ast.Return) and last.value is not None
        inner.run(body[:-1] if returns else body)
        return inner.value(last.value) if returns else None  # type: ignore[attr-defined]

    def passable_arrays(self) -> dict[Value, str]:
        """The arrays that functions which the thread calls may write."""
        return self.writable()

    # -- statements ------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Runs statements in order, and keeps the line of each for errors."""
        for s in statements:
            before = len(self.statements)
            super().block([s])
            for statement in self.statements[before:]:
                self.memory.lines.setdefault(statement, (self.source, s))

    def _run_expr(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Constant):
            return
        before = len(self.statements)
        self.value(s.value)
        if not isinstance(s.value, ast.Call) or len(self.statements) == before:
            raise self.source.error(s, "the value is not used", self.instead_of_unused(s.value))

    def _run_return(self, s: ast.Return) -> None:
        raise self.source.error(s, "return is in the body of a thread", "let threads write "
                                "into arrays, and return these after the loop")

    def _run_annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self._put(s.target, self.value(s.value))

    def _run_assign(self, s: ast.Assign) -> None:
        x = self.value(s.value)
        for target in s.targets:
            self._put(target, x)

    def _run_augassign(self, s: ast.AugAssign) -> None:
        self._run_assign(_as_assignment(s))

    def _put(self, target: ast.expr, x: Any) -> None:
        """Gives a variable or an element a value."""
        if isinstance(target, ast.Name):
            self._put_name(target, x)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(x, tuple) or len(x) != len(target.elts):
                count = len(x) if isinstance(x, tuple) else 1
                raise self.source.error(target, f"{len(target.elts)} variables for {count} values")
            for part, y in zip(target.elts, x, strict=True):
                self._put(part, y)
        elif isinstance(target, ast.Subscript):
            self.put(target, x)
        else:
            raise self.source.error(target, "only variables and elements of arrays can be set")

    def _put_name(self, target: ast.Name, x: Any) -> None:
        name = target.id
        known = self.env.get(name)
        if known is not None and (name in self.outer_names or known.fixed):
            why = known.fixed or f"it is set before {self.loop}"
            raise self.source.error(target, f"{self.subject} cannot set {name}: {why}",
                                    "use another name, or write into an array")
        own = isinstance(x, LoopTensor) and x.value in self.memory.own
        if name in self.once or (own and name in self.single):
            self.env[name] = KernelVariable(x)
            return
        if own:
            raise self.source.error(target, f"{name} is set in several places, and an array of a "
                                    "thread in one", "set its elements, or use another name")
        self.set(self.prefix + name, self.number(target, x))
        self.env[name] = KernelVariable(OwnVariable(self.prefix + name))

    # -- structure -------------------------------------------------------------------------------

    def _within(self, body: Sequence[ast.stmt]) -> tuple[ThreadStatement, ...]:
        """The statements of a loop or branch. The caller decides which of its variables exist after
        it."""
        around, self.statements = self.statements, []
        self.nested += 1
        self.block(body)
        self.nested -= 1
        inside, self.statements = self.statements, around
        return tuple(inside)

    def _run_if(self, s: ast.If) -> None:
        test = self.arithmetic.truth(self.value(s.test))
        if isinstance(test, bool):
            self.block(s.body if test else s.orelse)
            return
        before = dict(self.env)
        yes = self._within(s.body)
        after, self.env = self.env, dict(before)
        no = self._within(s.orelse)
        self.env = {n: v for n, v in self.env.items() if n in after}
        self.statements.append(Branch(test.value, yes, no))

    def _run_while(self, s: ast.While) -> None:
        before = dict(self.env)
        around, self.statements = self.statements, []
        test = self.arithmetic.truth(self.value(s.test))
        first, self.statements = self.statements, around
        body = self._within(s.body)
        self.env = before
        limit = MAX_ITERATIONS if self.max_steps is None else self.max_steps
        zero, stop = (self.arithmetic.tile(n).value for n in (0, limit))
        self._loop(s, CountedLoop(self.memory.leaf(i32), zero, stop, 1, tuple(first),
                                  self.arithmetic.tile(test).value, body))

    def _run_for(self, s: ast.For) -> None:
        call = s.iter if isinstance(s.iter, ast.Call) else None
        function = self.value(call.func) if call is not None else None
        if call is not None and function is range:
            self._run_range(s, [x for n in call.args for x in self.spread(n)])
            return
        if call is not None and function is grid:
            self._run_grid(s, call)
            return
        items = self.value(s.iter)
        if not isinstance(items, tuple):
            raise self.source.error(s.iter, f"a loop of {self.subject} goes over range(...), or a "
                                    "tuple that is known")
        names = {*assigned([s.target])} - {*assigned(s.body)}
        for item in items:  # unrolled
            self.once |= names  # constant in an iteration, as the item is
            self._put(s.target, item)
            self.once -= names
            self.block(s.body)
        for name in sorted(names & {*self.env}):  # variables after the loop
            x = self.env.pop(name).value
            if isinstance(x, NUMBERS) or (isinstance(x, LoopTensor) and not x.shape):
                self._put_name(ast.copy_location(ast.Name(name, ast.Store()), s.target), x)

    def _run_grid(self, s: ast.For, call: ast.Call) -> None:
        """Runs a loop for each axis: a thread runs the iterations of `zt.grid` in order."""
        extents = [x for n in call.args for x in self.spread(n)]
        targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
        if len(targets) != len(extents):
            raise self.source.error(s.target, f"{len(targets)} counters, but zt.grid has "
                                    f"{len(extents)} extents", "give each counter its number of "
                                    "iterations")
        body, flag = s.body, getattr(s, END_FLAG, None)
        for target, n in reversed([*zip(targets, extents, strict=True)]):
            loop = ast.copy_location(ast.For(target, range_call(n), body, []), s)
            if flag is not None:
                setattr(loop, END_FLAG, flag)
            body = [ast.fix_missing_locations(loop)]
        self.block(body)

    def _run_range(self, s: ast.For, ends: list[Any]) -> None:
        if not isinstance(s.target, ast.Name):
            raise self.source.error(s.target, "range gives one number per iteration")
        first, last, step = self._range_ends(s, ends)
        a = self.arithmetic
        counter, pace = self.memory.leaf(i32), abs(step)
        number: Any = LoopTensor(counter, (), weak=True)
        low, high = (bounds_of(x.value, self.memory.bounds) for x in (first, last))
        if self.max_steps is not None and ANY in (low, high):
            count = a.binary(ast.Sub(), last, first)
            if pace > 1:
                count = a.binary(ast.FloorDiv(), a.binary(ast.Add(), count, pace - 1), pace)
                number = a.binary(ast.Mult(), number, pace)
            number = a.binary(ast.Add(), first, number)
            first, last, pace = a.tile(0), a.apply("clip", count, 0, self.max_steps), 1
            low, high = (0, 0), (0, self.max_steps)
        self.memory.bounds[counter] = low[0], max(low[0], high[1] - 1)
        if step < 0:
            number = a.apply("neg", number)
        before = dict(self.env)
        self.env[s.target.id] = KernelVariable(number, fixed="it counts iterations")
        test, proceed = self._loop_test(s)
        body = self._within(s.body)
        self.env = before
        self._loop(s, CountedLoop(counter, first.value, last.value, pace, test, proceed, body))

    def _range_ends(self, s: ast.For, ends: list[Any]) -> tuple[LoopTensor, LoopTensor, int]:
        """The first number of a range, its end, and its step. If the step is negative, both ends
        are negated, so that the loop counts upwards."""
        a = self.arithmetic
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int) or step == 0:
            raise self.source.error(s.iter, "the step must be a known integer, and not 0")
        bounds = [self.number(s.iter, x) for x in (start, stop)]
        if not all(x.dtype.is_int for x in bounds):
            raise self.source.error(s.iter, "range takes integers")
        if step < 0:
            bounds = [a.apply("neg", x) for x in bounds]
        first, last = (a.cast(x, i32) for x in bounds)
        return first, last, step

    def _loop_test(self, s: ast.For) -> tuple[tuple[ThreadStatement, ...], Value | None]:
        """The statements before each iteration of a loop that may end early, and the value that
        says whether it goes on; none if the loop always runs all iterations."""
        flag: Any = getattr(s, END_FLAG, None)
        if flag is None:
            return (), None
        outer, self.statements = self.statements, []
        read_flag = ast.copy_location(ast.Name(flag, ast.Load()), s)
        proceed = self.arithmetic.tile(self.value(read_flag)).value
        test, self.statements = tuple(self.statements), outer
        return test, proceed

    def _loop(self, s: ast.stmt, loop: CountedLoop) -> None:
        self.memory.lines[loop] = self.source, s
        self.statements.append(loop)


@functools.lru_cache(1 << 10)
def _as_assignment(s: ast.AugAssign) -> ast.Assign:
    """The assignment that an update such as `x += 1` stands for."""
    read = ast.parse(ast.unparse(s.target), mode="eval").body
    for n in ast.walk(read):
        ast.copy_location(n, s.target)
    update = ast.copy_location(ast.Assign([s.target], ast.BinOp(read, s.op, s.value)), s)
    return ast.fix_missing_locations(update)
