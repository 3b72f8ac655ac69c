"""Translates loops over rows with inner loops whose bounds are data: `range(starts[r], ends[r])`.

The number of iterations of such a loop is only known at run time, so rows are not axes of tensors:
they are the threads of a program, and each runs its statements in order. If rows are not known to
be independent, one thread runs all of them in order.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.errors import KernelError
from ztorch.graph.op import OPS
from ztorch.graph.thread_bounds import bounds_of
from ztorch.graph.thread_program import (
    AtomicUpdate,
    Branch,
    LoadElement,
    StoreElement,
    ThreadStatement,
)
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.control_flow import END_FLAG
from ztorch.kernels.counters import known_numbers, unseen_counters
from ztorch.kernels.dependence import Counters, conflict, own_elements, written
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.known_functions import grid
from ztorch.kernels.patterns import element_update
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.thread_loops import run_program
from ztorch.kernels.thread_memory import ThreadMemory
from ztorch.kernels.thread_numbers import OwnVariable
from ztorch.kernels.thread_rules import ThreadRules
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar
from ztorch.kernels.uses import assigned, first_use

BLOCK_ROWS = 64  # threads of a block: two subgroups, and many blocks for workers to share
ATOMIC = {"add": "add", "minimum": "min", "maximum": "max"}  # atomic updates by reduction


class DataBounds(KernelError):
    """The bounds of a loop are data."""


@dataclass(frozen=True)
class Rows:
    """The iterations of a loop over rows."""

    firsts: Sequence[int]  # first value of each counter
    steps: Sequence[int]  # increment of each counter
    extents: Sequence[int]  # number of values of each counter
    counters: Counters | None  # ranges of the counters; None for a tuple of counters

    @property
    def count(self) -> int:
        """Number of rows."""
        return math.prod(self.extents)


def run_rows(t: ExpressionRules, s: ast.For) -> None:
    """Runs a loop over rows: its iterations are threads.

    Args:
        t: The translator of statements.
        s: The loop, at the top of a kernel.
    """
    rows, outside = _rows(t, s), {*t.env}
    carried = [n for n in assigned(s.body) if n in outside and first_use(s.body, n) != "set"]
    problem = _problem(t, s, rows, carried)
    if rows is None or problem:
        t.note(s, f"iterations in order: {problem}")
        # Variables that each iteration sets first keep their old value if there are no iterations.
        _in_order(t, s, [n for n in assigned(s.body) if n in carried or (
            n in outside and _is_number(t.env[n].value))])
        return
    t.note(s, f"{rows.count} iterations at once, each as long as its data says")
    if rows.count == 0:
        return
    own = {*assigned([s])} & outside
    scattered = _scattered(t, s, rows)
    size = min(rows.count, BLOCK_ROWS)

    def body(memory: ThreadMemory, block: Value, thread: Value) -> ThreadRules:
        rules = RowRules(t.source, t, memory)
        rules.scattered = scattered
        rules.row(s, block * size + thread, rows)
        return rules

    t.env = {n: v for n, v in t.env.items() if n not in own}
    run_program(t, s, -(-rows.count // size), size, body)


def _is_number(x: Any) -> bool:
    return isinstance(x, (Affine, *NUMBERS)) or (isinstance(x, LoopTensor) and not x.shape)


def _in_order(t: ExpressionRules, s: ast.For, carried: Sequence[str]) -> None:
    """Runs a loop by one thread. Variables from outside are passed in arrays of one element."""
    known = {n: t.arithmetic.tile(t.env[n].value) for n in carried}
    kinds = {n: (x.dtype, x.weak) for n, x in known.items()}
    arrays: dict[tuple[str, DType], Value] = {}

    def body(memory: ThreadMemory, block: Value, thread: Value) -> ThreadRules:
        rules = RowRules(t.source, t, memory)
        zero = t.arithmetic.tile(0).value
        for n in carried:
            d, weak = kinds[n] = memory.kinds.get(rules.prefix + n, kinds[n])
            if (n, d) not in arrays:
                arrays[n, d] = OPS.reshape(t.arithmetic.cast(known[n], d).value, (1,))
            memory.written[f"<{n}>"] = arrays[n, d]
            rules.load(n, LoadElement(memory.leaf(d), memory.name_of(arrays[n, d]), zero), weak)
        rules.run([s])
        for n in carried:
            x = rules.value(ast.copy_location(ast.Name(n, ast.Load()), s))
            name = memory.name_of(arrays[n, kinds[n][0]])
            rules.statements.append(StoreElement(name, zero, t.arithmetic.cast(
                x, kinds[n][0]).value))
        return rules

    before, own = dict(t.env), {*assigned([s])}
    t.env = {n: v for n, v in t.env.items() if n not in own}
    t.env |= {f"<{n}>": before[n] for n in carried}
    run_program(t, s, 1, 1, body)
    for n in carried:
        last = t.env.pop(f"<{n}>").value.value
        t.env[n] = before[n]
        t.bind(n, LoopTensor(OPS.reshape(last, ()), (), kinds[n][1]))


def _rows(t: ExpressionRules, s: ast.For) -> Rows | None:
    """The known bounds of a loop; None if they are data."""
    assert isinstance(s.iter, ast.Call)
    ends = [x for n in s.iter.args for x in t.spread(n)]
    ordered = t.value(s.iter.func) is not grid
    if not all(type(x) is int for x in ends):
        return None
    span = range(*ends) if ordered else range(0)
    firsts, steps, extents = ([span.start], [span.step], [len(span)]) if ordered else (
        [0] * len(ends), [1] * len(ends), ends)
    names = [n.id for n in _targets(s) if isinstance(n, ast.Name)]
    counters = None
    if len(names) == len(extents):
        values = {n: Affine({LoopVar(n, extent): step}, first) for n, first, step, extent in zip(
            names, firsts, steps, extents, strict=True)}
        counters = Counters(values, {**known_numbers(t, s), **values}, ordered, False,
                            {} if ordered else unseen_counters(t, s))
    return Rows(firsts, steps, extents, counters)


def _problem(t: ExpressionRules, s: ast.For, rows: Rows | None, carried: Sequence[str]) -> str:
    """Why rows cannot run at once; empty if they can."""
    if rows is None:
        return "their number depends on data"
    if hasattr(s, END_FLAG):
        return "it may end early"
    if carried:
        return f"{carried[0]} is from outside of it"
    conflicting = rows.counters and conflict(s, {*t.env}, rows.counters)
    if conflicting:
        return conflicting.reason
    if rows.counters and rows.counters.ordered:
        for n in _scattered(t, s, rows):
            if any(reduction is None for _, reduction in written(s.body)[n]):
                return f"several rows may write one element of {n}, and the last counts"
            array = t.env[n].value
            if not (isinstance(array, LoopTensor) and array.dtype.is_int
                    and array.dtype.bits >= 32):
                return (f"several rows may add to an element of {n}, and the order of floats "
                        "matters; zt.grid(...) has none")
    return ""


def _scattered(t: ExpressionRules, s: ast.For, rows: Rows) -> frozenset[str]:
    """The arrays in which several rows may change the same element."""
    return frozenset(n for n in written(s.body) if n in t.env and not (
        rows.counters and own_elements(s, n, {*t.env}, rows.counters)))


def _targets(s: ast.For) -> list[ast.expr]:
    return s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]


class RowRules(ThreadRules):
    """Runs the statements of a row. As everywhere except in `zt.threads`, reads outside of an array
    return its first or last element, and writes outside are dropped."""

    subject, loop = "a row whose loops depend on data", "the loop over rows"
    scattered: frozenset[str] = frozenset()  # arrays in which several rows may write one element

    def load(self, name: str, element: LoadElement, weak: bool) -> None:
        """Sets a variable to an element."""
        self.statements.append(element)
        self.set(self.prefix + name, LoopTensor(element.result, (), weak))
        self.env[name] = KernelVariable(OwnVariable(self.prefix + name))

    def passable_arrays(self) -> dict[Value, str]:
        return {}  # only the loop itself may write

    def row(self, s: ast.For, number: Value, rows: Rows) -> None:
        """Runs one row, if there is a row with this number."""
        self.memory.bounds[number] = (0, rows.count - 1)
        places = []
        for k, n in enumerate(rows.extents):
            stride = math.prod(rows.extents[k + 1:])
            place = OPS.floor_divide(number, stride) if stride > 1 else number
            place = OPS.remainder(place, n) if k else place
            self.memory.bounds[place], self.memory.places.counts[place] = (0, n - 1), n
            if (rows.firsts[k], rows.steps[k]) != (0, 1):
                place = place * rows.steps[k] + rows.firsts[k]
            places.append(LoopTensor(place, (), weak=True))
        targets = _targets(s)
        values: list[Any] = [*places] if len(targets) == len(places) else [tuple(places)]
        for target, x in zip(targets, values, strict=True):
            assert isinstance(target, ast.Name)
            self.env[target.id] = KernelVariable(x, fixed="it numbers rows")
        statements, self.statements = self.statements, []
        self.run(s.body)
        self.statements = [*statements, Branch(OPS.less(number, rows.count),
                                               tuple(self.statements), ())]

    def _run_assign(self, s: ast.Assign) -> None:
        if not self._updated(s, s.targets[0]):
            super()._run_assign(s)

    def _run_augassign(self, s: ast.AugAssign) -> None:
        if not self._updated(s, s.target):
            super()._run_augassign(s)

    def _updated(self, s: ast.Assign | ast.AugAssign, target: ast.expr) -> bool:
        """Runs a statement that changes an element that other rows may also change. Returns False
        for any other statement."""
        name = target.value.id if isinstance(target, ast.Subscript) and isinstance(
            target.value, ast.Name) else ""
        update = element_update(s) if name in self.scattered else None
        if update is None or not isinstance(target, ast.Subscript):
            return False
        x = self.number(s, self.value(update.term))
        key = self.value(target.slice)
        array, place = self.target(target, target.value, key)
        d = array.dtype
        if update.reduction not in ATOMIC or d.bits < 32 or d is boolean:
            raise self.source.error(s, f"several rows may change the same element of {name}, and "
                                    f"{d} cannot be combined by {update.reduction} from many at "
                                    "once", "use range(...), which has rows in order")
        new = self.arithmetic.cast(self.arithmetic.apply("neg", x) if update.negative else x, d)
        change = AtomicUpdate(self.memory.leaf(d), ATOMIC[update.reduction],
                              self.memory.name_of(array.value), place, (new.value,))
        self.memory.lines[change] = self.source, s
        self._where_inside(array, key, change)
        return True

    def put(self, target: ast.Subscript, x: Any) -> None:
        key = self.value(target.slice)
        array, place = self.target(target, target.value, key)
        new = self.arithmetic.cast(self.number(target, x), array.dtype)
        self._where_inside(array, key, StoreElement(
            self.memory.name_of(array.value), place, new.value))

    def _where_inside(self, array: LoopTensor, key: Any, change: ThreadStatement) -> None:
        inside: Any = True
        for k, n in zip(key if isinstance(key, tuple) else (key,), array.shape, strict=True):
            if isinstance(k, LoopTensor) and not self._is_inside(k, n):
                inside = self.arithmetic.both(inside, self.arithmetic.both(
                    self.arithmetic.apply("greater_equal", k, 0),
                    self.arithmetic.apply("less", k, n)))
        self.statements.append(change if inside is True else Branch(inside.value, (change,), ()))

    def along(self, place: Any, n: int) -> Any:
        if not isinstance(place, LoopTensor) or self._is_inside(place, n):
            return place
        return self.arithmetic.apply("clip", place, 0, n - 1)

    def _is_inside(self, place: LoopTensor, n: int) -> bool:
        low, high = bounds_of(place.value, self.memory.bounds)
        return low >= 0 and high < n
