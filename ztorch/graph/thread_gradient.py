"""The gradient of a program of threads: each thread goes back through its statements.

The gradient of an element that was read is the sum over its readers, added atomically, since there
may be several; an element that was written passes its gradient to the written value, and its
gradient is reset to 0. So between two barriers, threads access the same elements as in the forward
pass, and the barriers are the same. Numbers of the forward pass are recomputed where possible and
cheap; for the others, threads first repeat the forward pass and keep them (`thread_tape.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ztorch.dtypes import DType, f32, i32
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import pullback
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import substituted
from ztorch.graph.thread_copies import UnrolledCopies, number_leaf
from ztorch.graph.thread_program import (
    SUBGROUP,
    AtomicUpdate,
    Barrier,
    Branch,
    CountedLoop,
    Exchange,
    GetVariable,
    LoadElement,
    SetVariable,
    StoreElement,
    ThreadArray,
    ThreadProgram,
    ThreadStatement,
    ThreadVariable,
)
from ztorch.graph.thread_tape import WAY_OUT, ForwardAgain, ThreadTape
from ztorch.graph.value import Value, topological

SLOPE = "slope_"  # before the name of an array: the gradients of its elements


@dataclass(frozen=True)
class ThreadGradient:
    """A program that goes back, and the meaning of its arrays."""

    program: ThreadProgram
    forward: tuple[str, ...]  # arrays of the program that it reads or writes again, in order
    slopes: tuple[str, ...]  # arrays of the program whose gradients are its last arrays


def slope_dtype(d: DType) -> DType:
    """The dtype in which gradients are added up: the narrowest that atomic updates have."""
    return d if d.bits >= f32.bits else f32


def gradient_of(program: ThreadProgram) -> ThreadGradient:
    """The program that goes back through another one.

    Args:
        program: The program.

    Raises:
        Unsupported: A statement of it has no gradient, or keeps an unbounded number of values.
    """
    return _Backward(program).gradient()


class _Backward:
    """The construction of the gradient of a program."""

    def __init__(self, program: ThreadProgram):
        lines = dict(program.lines)
        body = UnrolledCopies(lines).block(program.body)
        self.program = replace(program, body=body, lines=lines)
        self.tape = ThreadTape(self.program)
        self.names = itertools.count()
        self.variables = itertools.count(len(program.variables))
        self.own: dict[Value | ThreadVariable, ThreadVariable] = {}  # gradients of numbers
        self.made: list[ThreadVariable] = []
        self.out: list[ThreadStatement] = []
        self.iterations: dict[CountedLoop, Value] = {}  # of loops that run in reverse
        self.here: dict[Value, Value] = {program.block: program.block,
                                         program.thread: program.thread}
        self.shared: list[ThreadArray] = []

    def gradient(self) -> ThreadGradient:
        p = self.program
        back = self._block(p.body)
        counted = {s: self._variable(i32) for s in self.tape.slots if isinstance(s, CountedLoop)}
        again: tuple[ThreadStatement, ...] = ()
        if self.tape.slots:
            again = ForwardAgain(self.tape, counted, self.fresh).block(p.body, ())
        shared = [ThreadArray(SLOPE + a.name, slope_dtype(a.dtype), a.size, True, True)
                  for a in p.shared if a.dtype.is_float]
        zeros = [s for a in shared for s in self._zeroed(a)]
        barrier = [Barrier()] if zeros or again else []
        body = (*again, *zeros, *barrier, *back)
        used = {s.array for s in _accesses(body)}
        first = [a for a in p.arrays if a.name in used and not a.written]
        rest = [a for a in p.written if a.name in used]
        floats = [a for a in p.arrays if a.dtype.is_float]
        arrays = (*first, *rest, *self.tape.arrays(), *(
            ThreadArray(SLOPE + a.name, slope_dtype(a.dtype), a.size, False, True)
            for a in floats))
        program = ThreadProgram(
            p.blocks, p.threads, p.block, p.thread, arrays,
            (*(a for a in p.shared if a.name in used), *shared, *self.shared),
            (*p.variables, *self.made), body, p.lines, self.tape.note)
        return ThreadGradient(program, tuple(a.name for a in (*first, *rest)),
                              tuple(a.name for a in floats))

    # -- numbers of the backward pass --------------------------------------------------------------

    def fresh(self, d: DType) -> Value:
        """A number that a statement gives."""
        return number_leaf(f"b{next(self.names)}", OPS.full((), 0, d))

    def _variable(self, d: DType) -> ThreadVariable:
        self.made.append(ThreadVariable(next(self.variables), d))
        return self.made[-1]

    def _got(self, x: Value | ThreadVariable) -> ThreadVariable:
        """The variable for the gradient of a number or a variable."""
        if x not in self.own:
            self.own[x] = self._variable(slope_dtype(x.dtype))
        return self.own[x]

    def get(self, v: ThreadVariable) -> Value:
        """The value of a variable."""
        x = self.fresh(v.dtype)
        self.out.append(GetVariable(x, v))
        return x

    def _load(self, array: str, at: Value, d: DType) -> Value:
        x = self.fresh(d)
        self.out.append(LoadElement(x, array, at))
        return x

    def _taken(self, x: Value | ThreadVariable) -> Value:
        """The gradient so far of a number or a variable, which is reset to nothing."""
        variable = self._got(x)
        slope = self.get(variable)
        self.out.append(SetVariable(variable, OPS.full((), 0, variable.dtype)))
        return slope

    def _give(self, x: Value | ThreadVariable, slope: Value) -> None:
        variable = self._got(x)
        self.out.append(SetVariable(variable, self.get(variable) + OPS.cast(
            slope, variable.dtype)))

    def _spread(self, v: Value, slope: Value) -> None:
        """Adds to the gradients of the numbers from which v is computed."""
        leaves = [x for x in topological([v]) if x in self.tape.origins and x.dtype.is_float]
        shares = pullback({v: OPS.cast(slope, v.dtype)}, leaves)
        for x, share in zip(leaves, shares, strict=True):
            if share is not None:
                self._give(x, self._again(share))

    def _again(self, v: Value) -> Value:
        """A number of the forward pass, recomputed here."""
        leaves = [x for x in topological([v]) if x in self.tape.origins or x in self.tape.counters]
        return substituted([v], {**self.here, **{x: self._number(x) for x in leaves
                                                 if x not in self.here}})[0]

    def _number(self, x: Value) -> Value:
        s = self.tape.origins[x].statement
        if self.tape.reloads(x):
            assert isinstance(s, LoadElement)
            return self._load(s.array, self._again(s.index), x.dtype)
        again = self.tape.again(x)
        if again is not None:
            return self._again(again)
        self.tape.keep(x)
        return self._kept(x)

    def _kept(self, x: Value | CountedLoop) -> Value:
        loops = self.tape.origins[x].loops if isinstance(x, Value) else self.tape.loops[x]
        array, at = self.tape.place(x, [self.iterations[loop] for loop in loops])
        return self._load(array, at, x.dtype if isinstance(x, Value) else i32)

    # -- statements --------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ThreadStatement]) -> tuple[ThreadStatement, ...]:
        around, self.out = self.out, []
        for s in reversed(statements):
            self._statement(s)
        made, self.out = self.out, around
        return tuple(made)

    def _statement(self, s: ThreadStatement) -> None:
        if isinstance(s, Barrier):
            self.out.append(s)
        elif isinstance(s, Branch):
            yes, no = self._block(s.yes), self._block(s.no)
            if yes or no:
                self.out.append(Branch(self._again(s.condition), yes, no))
        elif isinstance(s, CountedLoop):
            self._loop(s)
        elif isinstance(s, SetVariable):
            if s.variable.dtype.is_float:
                self._spread(s.x, self._taken(s.variable))
        elif isinstance(s, StoreElement):
            if s.x.dtype.is_float:
                self._store(s)
        elif isinstance(s, AtomicUpdate):
            self._update(s)
        elif s.result.dtype.is_float and s.result in self.own:
            slope = self._taken(s.result)
            if isinstance(s, GetVariable):
                self._give(s.variable, slope)
            elif isinstance(s, LoadElement):
                self.out.append(AtomicUpdate(self.fresh(slope.dtype), "add", SLOPE + s.array,
                                             self._again(s.index), (slope,)))
            else:
                self._spread(s.x, self._sent_back(s, slope))

    def _store(self, s: StoreElement) -> None:
        d, at = slope_dtype(s.x.dtype), self._again(s.index)
        slope = self._load(SLOPE + s.array, at, d)
        self.out.append(StoreElement(SLOPE + s.array, at, OPS.full((), 0, d)))
        self._spread(s.x, slope)

    def _update(self, s: AtomicUpdate) -> None:
        d = s.result.dtype
        if s.result in self.tape.read or (d.is_float and s.how != "add"):
            where = self.program.lines.get(s, f"zt.atomic_{s.how}")
            why = ("its result depends on the order of threads" if s.result in self.tape.read
                   else "only zt.atomic_add of floats has one")
            raise Unsupported(f"{where} has no gradient: {why}; {WAY_OUT}")
        if d.is_float:
            slope = self._load(SLOPE + s.array, self._again(s.index), slope_dtype(d))
            self._spread(s.operands[0], slope)

    def _sent_back(self, s: Exchange, slope: Value) -> Value:
        """The gradients that the other threads of the subgroup have for this one's number."""
        if isinstance(s.lane, int):
            result = self.fresh(slope.dtype)
            self.out.append(Exchange(result, slope, s.lane))
            return result
        p, d = self.program, slope.dtype
        own = ThreadArray(f"sent_{d.name}_{len(self.shared)}", d, p.threads, True, True)
        self.shared.append(own)
        other = p.thread // SUBGROUP * SUBGROUP + self._again(s.lane) % SUBGROUP
        self.out += [StoreElement(own.name, p.thread, OPS.full((), 0, d)), Barrier(),
                     AtomicUpdate(self.fresh(d), "add", own.name, other, (slope,)), Barrier()]
        return self._load(own.name, p.thread, d)

    def _loop(self, s: CountedLoop) -> None:
        iteration = self.fresh(i32)
        before = len(self.out)
        start = self._again(s.start)
        if s.test is not None:
            self.tape.keep(s)
            trip_count = self._kept(s)
        else:
            trip_count = OPS.floor_divide(self._again(s.stop) - start + (s.step - 1), s.step)
        mirrored = trip_count - 1 - iteration
        self.iterations[s], self.here[s.counter] = mirrored, start + mirrored * s.step
        body = self._block((*s.before_test, *s.body))
        if body:
            self.out.append(CountedLoop(iteration, OPS.full((), 0, i32), trip_count, 1, (), None,
                                        body))
        else:
            del self.out[before:]

    def _zeroed(self, a: ThreadArray) -> list[ThreadStatement]:
        """Makes a shared array 0, by all threads together."""
        k, p = self.fresh(i32), self.program
        zero = StoreElement(a.name, k, OPS.full((), 0, a.dtype))
        return [CountedLoop(k, p.thread, OPS.full((), a.size, i32), p.threads, (), None, (zero,))]


def _accesses(body: Sequence[ThreadStatement]) -> list[LoadElement | StoreElement | AtomicUpdate]:
    out: list[LoadElement | StoreElement | AtomicUpdate] = []
    for s in body:
        if isinstance(s, (LoadElement, StoreElement, AtomicUpdate)):
            out.append(s)
        elif isinstance(s, CountedLoop):
            out += _accesses((*s.before_test, *s.body))
        elif isinstance(s, Branch):
            out += _accesses((*s.yes, *s.no))
    return out
