"""Translates the loops of a kernel: independent iterations run at once, others in order."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.kernels.assignments import AssignmentRules
from ztorch.kernels.block_loops import run_blocks
from ztorch.kernels.control_flow import END_FLAG
from ztorch.kernels.counters import inner_counters, known_numbers, unseen_counters
from ztorch.kernels.dependence import Counters, conflict, written_from_before
from ztorch.kernels.item_loops import FIX, known_items, over_numbers
from ztorch.kernels.known_functions import grid
from ztorch.kernels.ordered_loops import run_in_order
from ztorch.kernels.row_loops import DataBounds, run_rows
from ztorch.kernels.scope import KernelVariable, Loop
from ztorch.kernels.thread_functions import threads
from ztorch.kernels.thread_loops import run_threads
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar

UNROLLED_ITERATIONS = 4  # sequential loops with at most this many iterations are unrolled
MAX_UNROLLED_WHILE = 64  # largest number of iterations of a `while` loop over constants


class LoopRules(AssignmentRules):
    """Runs loops."""

    def _run_for(self, s: ast.For) -> None:
        if self.loops or self.masks:
            self._run_loop(s)
            return
        before = self.env, dict(self.notes), len(self.assigned)
        self.env = dict(self.env)
        try:
            self._run_loop(s)
        except DataBounds:
            self.env, self.notes = before[:2]
            self.loops, self.masks, self.reads = [], [], []
            del self.assigned[before[2]:]
            run_rows(self, s)

    def _run_loop(self, s: ast.For) -> None:
        self.mark_parts(written_from_before(s.body))
        call = s.iter if isinstance(s.iter, ast.Call) else None
        function = self.value(call.func) if call is not None else None
        if call is not None and function is threads:
            run_threads(self, s)
            return
        if call is not None and function is grid:
            self._run_grid(s, [x for n in call.args for x in self.spread(n)])
            return
        if call is not None and function is range:
            ends = [x for n in call.args for x in self.spread(n)]
            self._run_range(s, *self._span(s, ends))
            return
        items = known_items(self, s)
        numbered = over_numbers(self, s) if items is None else None
        if numbered is not None and function is not np.arange:
            self._run_loop(numbered)
            return
        if items is None:
            raise self.source.error(
                s.iter, "a loop goes over range(...), zt.grid(...), an array, or a tuple "
                "that is known",
                "write range for np.arange" if function is np.arange else
                FIX)
        for item in items:  # unrolled
            self._assign(s, s.target, item)
            self.block(s.body)

    def _run_while(self, s: ast.While) -> None:
        """Unrolls a loop whose condition is a compile-time constant in each iteration."""
        for iteration in range(MAX_UNROLLED_WHILE + 1):
            test = self.value(s.test)
            if isinstance(test, (LoopTensor, Affine)) or (test and iteration == MAX_UNROLLED_WHILE):
                raise self.source.error(
                    s, "a while loop has no bound, but programs have a fixed size", "write "
                    "@zt.kernel(max_steps=1000), or `for _ in range(limit)` with a break")
            if not test:
                return
            self.block(s.body)

    def _span(self, s: ast.For, ends: list[Any]) -> tuple[Affine, int, int, Any]:
        """(first, step, number of iterations, last): iterations whose counter reaches `last` do not
        run; None: all of them run."""
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int) or step == 0:
            raise self.source.error(s.iter, "the step must be a known integer, and not 0",
                                    "" if isinstance(step, int) else
                                    "compute the place in the loop, such as start + step * k")
        for x in (start, stop):
            if isinstance(x, LoopTensor) and x.dtype.is_int and not x.shape:
                raise DataBounds(str(self.source.error(
                    s.iter, "the number of iterations is data, and this loop is in a branch at the "
                    "top of the kernel", "put the condition inside of the loop")))
            if not isinstance(x, (Affine, int)):
                tile = f"{x.dtype}{[*x.shape] or ''}" if isinstance(x, LoopTensor) else repr(x)
                raise self.source.error(s.iter, f"range takes integers, not {tile}",
                                        "divide by //" if isinstance(x, float) else
                                        "take one of them" if isinstance(x, tuple) else
                                        "take one of them, or write range(len(x))"
                                        if isinstance(x, LoopTensor) and x.shape else
                                        "convert it with int(...)")
        length = Affine.of(stop).plus(start, -1)
        longest = length.range[1] if step > 0 else length.range[0]
        count = len(range(0, longest, step))
        return Affine.of(start), step, count, Affine.of(stop) if length.terms else None

    def _run_range(self, s: ast.For, first: Affine, step: int, count: int, last: Any) -> None:
        if not isinstance(s.target, ast.Name):
            raise self.source.error(s.target, "range gives one number per iteration", "for several "
                                    "counters write zt.grid(m, n)")
        if count == 0:
            return
        name = s.target.id
        var = LoopVar(name, count)
        counter = first.plus(Affine({var: step}))
        problem = None if hasattr(s, END_FLAG) else conflict(s, {*self.env}, self._counters(
            s, {name: counter}, ordered=True, ragged=last is not None))
        if problem is None and not hasattr(s, END_FLAG):
            past = None if last is None else (ast.Lt() if step > 0 else ast.Gt(), counter, last)
            counters = {name: (counter if count > 1 else first).simple()}

            def at_once() -> None:
                self.note(s, f"{count} iterations at once")
                self._run_parallel(s, [var], counters, past)

            def in_order() -> None:
                self.note(s, f"{count} iterations in order")
                run_in_order(self, s, name, first, step, count, last, again=True)

            if abs(step) > 1 and count > 1 and not any(loop.sequential for loop in self.loops):
                run_blocks(self, s, at_once, in_order)
            else:
                at_once()
        elif count <= UNROLLED_ITERATIONS and last is None and not hasattr(s, END_FLAG):
            self.note(s, f"{count} iterations written out: {problem.reason if problem else ''}")
            for k in range(count):
                self.bind(name, first.plus(k * step).simple())
                self.block(s.body)
        else:
            self.note(s, f"{count} iterations in order: {problem.reason}" if problem else
                      f"up to {count} iterations in order: it may end early")
            run_in_order(self, s, name, first, step, count, last)

    def _counters(self, s: ast.For, values: dict[str, Affine], ordered: bool, ragged: bool = False
                  ) -> Counters:
        known = {**known_numbers(self, s), **inner_counters(self, s), **values}
        unseen = {} if ordered else unseen_counters(self, s)
        return Counters(values, known, ordered, ragged, unseen)

    def _run_grid(self, s: ast.For, extents: list[Any]) -> None:
        targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
        together = isinstance(s.target, ast.Name) and len(extents) > 1  # one tuple of counters
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or not (together or len(names) == len(extents)):
            raise self.source.error(s.target, f"{len(targets)} counters, but zt.grid gets "
                                    f"{len(extents)} size{'s' * (len(extents) != 1)}",
                                    "write zt.grid(*x.shape)" if isinstance(extents[0], tuple)
                                    else "give each counter its number of iterations, or take all "
                                    "as one tuple")
        if not all(isinstance(n, int) for n in extents):
            shaped = any(isinstance(n, LoopTensor) and n.shape for n in extents)
            raise self.source.error(s.iter, "the extents of zt.grid must be known while compiling",
                                    "write zt.grid(*x.shape)" if shaped else "")
        if hasattr(s, END_FLAG):
            raise self.source.error(s, "a loop without an order has no first iteration to break at",
                                    "use range(...)")
        loops = [LoopVar(names[0] if together else name, n)
                 for name, n in zip(names * (len(extents) if together else 1), extents,
                                    strict=True)]
        counters = [Affine({v: 1}) for v in loops]
        problem = conflict(s, {*self.env}, self._counters(
            s, {} if together else dict(zip(names, counters, strict=True)), ordered=False))
        if problem is not None:
            raise self.source.error(problem.node, f"the iterations of zt.grid have no order, but "
                                    f"{problem.reason}", problem.fix)
        self.note(s, f"{' x '.join(map(str, extents))} iterations at once")
        if 0 not in extents:
            plain = [c.simple() if v.extent > 1 else 0
                     for c, v in zip(counters, loops, strict=True)]
            values = {names[0]: tuple(plain)} if together else dict(zip(names, plain, strict=True))
            self._run_parallel(s, loops, values, None)

    def _run_parallel(self, s: ast.For, loops: list[LoopVar], counters: dict[str, Any],
                      past: tuple[ast.cmpop, Affine, Affine] | None) -> None:
        """Runs a loop with an axis for each counter. Iterations for which the comparison `past` is
        false do nothing."""
        before, outside = dict(self.env), len(self.loops)
        self.loops += [Loop(v) for v in loops]
        depth = len(self.loops)
        for name, counter in counters.items():
            self.env[name] = KernelVariable(counter, depth, depth, len(self.masks),
                                      "it counts iterations")
        if past is not None:
            self.masks.append(self.arithmetic.compare(*past))
        self.assigned.append(set())
        self.block(s.body)
        self.assigned.pop()
        if past is not None:
            self.masks.pop()
        del self.loops[outside:]
        after = self.env
        self.env = {n: v for n, v in after.items() if n in before and v.depth <= outside}
        for name in before:
            if name not in self.env and past is None and name in after:
                self.bind(name, _after_last(after[name].value, loops))


def _after_last(x: Any, loops: Sequence[LoopVar]) -> Any:
    """The value of a variable after some loops."""
    if isinstance(x, Affine):
        for v in loops:
            x = Affine({w: c for w, c in x.terms.items() if w is not v},
                       x.const + x.terms.get(v, 0) * (v.extent - 1))
        return x.simple()
    if isinstance(x, tuple):
        return tuple(_after_last(part, loops) for part in x)
    if not isinstance(x, LoopTensor):
        return x
    key = tuple(v.extent - 1 if v in loops else slice(None) for v in x.axes)
    axes = tuple(v for v in x.axes if v not in loops)
    return LoopTensor(OPS.slice_by(x.value, key), axes, x.weak) if len(axes) < len(x.axes) else x
