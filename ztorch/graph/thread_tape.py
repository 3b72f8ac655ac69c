"""Numbers of the forward pass that the threads of a gradient keep: one for each iteration of the
loops around them, in an array of all threads.

A kept number is written and read on an additional forward pass. So reads of arrays that do not
change are repeated, and the value of a variable is recomputed if that takes at most
`RECOMPUTE_SLOTS`; only the rest is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ztorch.dtypes import DType, i32
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS
from ztorch.graph.thread_bounds import ANY, Bounds, bounds_of, flat, trip_count_of
from ztorch.graph.thread_program import (
    Branch,
    CountedLoop,
    GetVariable,
    LoadElement,
    SetVariable,
    StoreElement,
    ThreadArray,
    ThreadProgram,
    ThreadStatement,
    ThreadVariable,
    statements_of,
    values_of,
)
from ztorch.graph.value import Value, topological

MOST_KEPT = (1 << 31) - 1  # elements of an array that an int32 numbers
RECOMPUTE_SLOTS = 100  # issue slots, about the cost of a store and a load beyond the caches
WAY_OUT = "attach a gradient of your own with zt.custom_gradient"


@dataclass(frozen=True)
class Origin:
    """Where a number comes from."""

    statement: ThreadStatement
    loops: tuple[CountedLoop, ...]  # around it, the outer one first, in which it changes


def _changing(s: ThreadStatement, loops: tuple[CountedLoop, ...]) -> tuple[CountedLoop, ...]:
    """The loops around a statement whose iterations change its result: a variable that a loop does
    not set is the same in all its iterations."""
    while loops and isinstance(s, GetVariable) and not any(
            isinstance(x, SetVariable) and x.variable is s.variable
            for x in statements_of((*loops[-1].before_test, *loops[-1].body))):
        loops = loops[:-1]
    return loops


def _forget(current: dict[ThreadVariable, Value], body: Sequence[ThreadStatement]) -> None:
    """Forgets variables that statements set."""
    for s in statements_of(body):
        if isinstance(s, SetVariable):
            current.pop(s.variable, None)


class ThreadTape:
    """The origins of all numbers of a program, and the places of those that are kept.

    Args:
        program: The program.
    """

    def __init__(self, program: ThreadProgram):
        self.program = program
        self.changing = {a.name for a in (*program.written, *program.shared)}
        self.origins: dict[Value, Origin] = {}
        self.read: set[Value] = set()  # numbers that a statement uses
        self.counters: dict[Value, CountedLoop] = {}
        self.bounds: dict[Value, Bounds] = {program.block: (0, program.blocks - 1),
                                            program.thread: (0, program.threads - 1)}
        self.most: dict[CountedLoop, int | None] = {}  # iterations of a loop; None: not known
        self.slots: dict[Value | CountedLoop, int] = {}  # in the tape of a number's dtype
        self.lengths: dict[DType, int] = {}  # of the tapes of a thread
        self.loops: dict[CountedLoop, tuple[CountedLoop, ...]] = {}  # around each loop
        self.set_to: dict[Value, Value] = {}  # numbers of variables: the values assigned
        self._walk(program.body, (), {})

    def _walk(self, body: Sequence[ThreadStatement], loops: tuple[CountedLoop, ...],
              current: dict[ThreadVariable, Value]) -> None:
        """`current`: the values of variables here, as far as they are certain."""
        for s in body:
            result = getattr(s, "result", None)
            own = {result, s.counter if isinstance(s, CountedLoop) else None}
            self.read.update(topological([v for v in values_of(s) if v not in own]))
            if result is not None:
                self.origins[result] = Origin(s, _changing(s, loops))
                if isinstance(s, GetVariable):
                    if s.variable in current:
                        self.set_to[result] = current[s.variable]
                    current[s.variable] = result  # so that it is kept once
            elif isinstance(s, SetVariable):
                current[s.variable] = s.x
            elif isinstance(s, CountedLoop):
                _forget(current, (*s.before_test, *s.body))
                self._loop(s, loops, current)
            elif isinstance(s, Branch):
                self._walk(s.yes, loops, dict(current))
                self._walk(s.no, loops, dict(current))
                _forget(current, (*s.yes, *s.no))

    def _loop(self, s: CountedLoop, loops: tuple[CountedLoop, ...],
              current: dict[ThreadVariable, Value]) -> None:
        start, stop = (bounds_of(v, self.bounds) for v in (s.start, s.stop))
        most = trip_count_of(start, stop, s.step)
        self.loops[s], self.counters[s.counter] = loops, s
        self.bounds[s.counter] = (start[0], max(start[0], stop[1] - 1))
        is_bounded = ANY[0] < start[0] and stop[1] < ANY[1]
        self.most[s] = most + (s.test is not None) if is_bounded else None
        self._walk((*s.before_test, *s.body), (*loops, s), dict(current))

    # -- kept numbers ------------------------------------------------------------------------------

    def reloads(self, v: Value) -> bool:
        """Whether a number is an element of an array that no thread changes."""
        s = self.origins[v].statement
        return isinstance(s, LoadElement) and s.array not in self.changing

    def again(self, x: Value) -> Value | None:
        """The value that a variable was set to, if it is recomputed rather than kept."""
        source = self.set_to.get(x)
        return source if source is not None and self._slots(source) <= RECOMPUTE_SLOTS else None

    def _slots(self, v: Value) -> int:
        """Issue slots to compute a number again, with the values assigned to its variables."""
        total = 0
        for x in topological([v]):
            total += x.op.cost if x.op.kind == "map" else 0
            if x in self.set_to and total <= RECOMPUTE_SLOTS:
                slots = self._slots(self.set_to[x])
                total += slots if slots <= RECOMPUTE_SLOTS else 1  # it is kept, and read
        return total

    @property
    def note(self) -> str:
        """A description of the values that are kept and of those that are recomputed."""
        size = sum(d.bytes * n for d, n in self.lengths.items())
        size_text = f"{size} bytes" if size else "nothing"
        return f"keeps {size_text} of each thread's forward pass; the rest is recomputed"

    def keep(self, x: Value | CountedLoop) -> None:
        """Keeps a number, or the trip count of a loop."""
        if x in self.slots:
            return
        if isinstance(x, Value):
            loops, d = self.origins[x].loops, x.dtype
        else:
            loops, d = self.loops[x], i32
        for loop in loops:
            if self.most[loop] is None:
                where = self.program.lines.get(loop, "a loop")
                raise Unsupported(
                    f"{where} has no gradient: its iterations are not known while compiling, and "
                    "the values of each must be kept; give the loop a bound, as "
                    f"@zt.kernel(max_steps=100) does, or {WAY_OUT}")
        first = self.lengths.get(d, 0)
        self.slots[x] = first
        self.lengths[d] = first + math.prod(self.most[loop] or 0 for loop in loops)
        if self.lengths[d] * self.program.blocks * self.program.threads > MOST_KEPT:
            raise Unsupported(f"the gradient of threads would keep {self.lengths[d]} numbers of "
                              f"each thread, which is too much; {WAY_OUT}")

    def place(self, x: Value | CountedLoop, iterations: Sequence[Value]) -> tuple[str, Value]:
        """The tape of a kept number, and the place there.

        Args:
            x: The value to keep.
            iterations: The number of the iteration of each loop around it.
        """
        p = self.program
        d = x.dtype if isinstance(x, Value) else i32
        loops = self.origins[x].loops if isinstance(x, Value) else self.loops[x]
        slot = flat(iterations, [self.most[loop] or 0 for loop in loops]) + self.slots[x]
        # Consecutive threads have consecutive elements, so that accesses are contiguous.
        number = p.block * p.threads + p.thread
        slot = OPS.full((), slot, i32) if isinstance(slot, int) else slot
        return f"tape_{d.name}", slot * (p.blocks * p.threads) + number

    def arrays(self) -> list[ThreadArray]:
        """The tapes."""
        count = self.program.blocks * self.program.threads
        return [ThreadArray(f"tape_{d.name}", d, n * count, False, True)
                for d, n in self.lengths.items()]


class ForwardAgain:
    """The forward pass once more, keeping numbers.

    Args:
        tape: The kept values.
        counted: The variables that count the iterations of loops.
        fresh: Makes a number that a statement gives.
    """

    def __init__(self, tape: ThreadTape, counted: Mapping[CountedLoop, ThreadVariable],
                 fresh: Callable[[DType], Value]):
        self.tape, self.counted, self.fresh = tape, counted, fresh

    def block(self, statements: Sequence[ThreadStatement], iterations: tuple[Value, ...]
              ) -> tuple[ThreadStatement, ...]:
        """The statements, each followed by the stores of its kept numbers.

        Args:
            statements: The statements.
            iterations: The number of the iteration of each loop around them.
        """
        out: list[ThreadStatement] = []
        for s in statements:
            if isinstance(s, CountedLoop):
                out += self._loop(s, iterations)
            elif isinstance(s, Branch):
                yes, no = (self.block(branch, iterations) for branch in (s.yes, s.no))
                out.append(Branch(s.condition, yes, no))
            else:
                out.append(s)
                result = getattr(s, "result", None)
                if result in self.tape.slots:
                    inside = iterations[:len(self.tape.origins[result].loops)]
                    out.append(StoreElement(*self.tape.place(result, inside), result))
        return tuple(out)

    def _loop(self, s: CountedLoop, iterations: tuple[Value, ...]) -> list[ThreadStatement]:
        inside = (*iterations, OPS.floor_divide(s.counter - s.start, s.step))
        before, body = self.block(s.before_test, inside), self.block(s.body, inside)
        variable = self.counted.get(s)
        if variable is None:
            return [replace(s, before_test=before, body=body)]
        count, total = self.fresh(i32), self.fresh(i32)
        counting = (GetVariable(count, variable), SetVariable(variable, count + 1))
        return [SetVariable(variable, OPS.full((), 0, i32)),
                replace(s, before_test=before, body=(*body, *counting)),
                GetVariable(total, variable), StoreElement(*self.tape.place(s, iterations), total)]
