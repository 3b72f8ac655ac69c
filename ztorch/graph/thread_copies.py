"""Copies the statements of threads with other numbers: known values are folded, and loops with a
known number of iterations are unrolled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ztorch.graph.fold import fold
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import filled, substituted
from ztorch.graph.thread_program import (
    Branch,
    CountedLoop,
    GetVariable,
    SetVariable,
    ThreadProgram,
    ThreadStatement,
    ThreadVariable,
    statements_of,
)
from ztorch.graph.value import Graph, Value

# Unrolled iterations of a loop that ends by a test: enough to halve any 64-bit integer down to 0.
MAX_UNROLLED = 64


def number_leaf(name: str, like: Value) -> Value:
    """The substitute of a number of a thread.

    Args:
        name: Its name, which no other one of the program has.
        like: A number of its dtype.
    """
    return leaf("thread", name, (), like.dtype)


class ThreadCopies:
    """Copies statements. The results of each copy get new names.

    Args:
        prefix: Of the names of new numbers, other than those in the program.
        known: The replacements of numbers.
        place: The place in a flat array, given the array's name and the place that a statement
            names. Default: as it is.
    """

    def __init__(self, prefix: str, known: dict[Value, Value],
                 place: Callable[[str, Value], Value] = lambda array, index: index):
        self.prefix, self.known, self.place = prefix, known, place
        self.names = itertools.count()

    def value(self, v: Value) -> Value:
        """A number, with known parts computed."""
        [new] = substituted([v], self.known)
        return fold(Graph({"x": new})).outputs["x"]

    def fresh(self, v: Value) -> Value:
        """A new number in place of one that a statement gives."""
        self.known[v] = new = number_leaf(f"{self.prefix}{next(self.names)}", v)
        return new

    def block(self, statements: Sequence[ThreadStatement]) -> tuple[ThreadStatement, ...]:
        """A copy of each statement."""
        return tuple(y for s in statements for y in self.copied(s))

    def copied(self, s: ThreadStatement) -> Sequence[ThreadStatement]:
        """A copy of a statement."""
        if isinstance(s, CountedLoop):
            start, stop = self.value(s.start), self.value(s.stop)
            counter, before = self.fresh(s.counter), self.block(s.before_test)
            test = None if s.test is None else self.value(s.test)
            return [replace(s, counter=counter, start=start, stop=stop, before_test=before,
                            test=test, body=self.block(s.body))]
        if isinstance(s, Branch):
            return [Branch(self.value(s.condition), self.block(s.yes), self.block(s.no))]
        changes: dict[str, Any] = {}
        for name, x in vars(s).items():
            if name == "result":
                continue
            if isinstance(x, Value):
                changes[name] = self.value(x)
            elif isinstance(x, tuple):
                changes[name] = tuple(map(self.value, x))
        if "index" in changes:
            changes["index"] = self.value(self.place(s.array, changes["index"]))  # type: ignore[union-attr]
        if hasattr(s, "result"):
            changes["result"] = self.fresh(s.result)
        return [replace(s, **changes)]


class UnrolledCopies(ThreadCopies):
    """Copies statements, and unrolls loops that end by a test of known numbers, such as
    `while half > 0`: the known values differ between iterations.

    Args:
        lines: The lines of the program's statements; those of copies are added.
    """

    def __init__(self, lines: dict[ThreadStatement, str]):
        super().__init__("u", {})
        self.lines = lines
        self.numbers: dict[ThreadVariable, Value] = {}  # of variables, where they are known

    def copied(self, s: ThreadStatement) -> Sequence[ThreadStatement]:
        if isinstance(s, GetVariable) and s.variable in self.numbers:
            self.known[s.result] = self.numbers[s.variable]
            return ()
        if isinstance(s, SetVariable):
            x = self.value(s.x)
            self.numbers.pop(s.variable, None)
            if filled(x):
                self.numbers[s.variable] = x
            return [SetVariable(s.variable, x)]
        if isinstance(s, Branch):
            condition = self.value(s.condition)
            if filled(condition):
                return self.block(s.yes if condition.attrs["value"] else s.no)
            before = dict(self.numbers)
            yes = self.block(s.yes)
            after, self.numbers = self.numbers, before
            no = self.block(s.no)
            self.numbers = {k: x for k, x in self.numbers.items() if after.get(k) is x}
            return [Branch(condition, yes, no)]
        if isinstance(s, CountedLoop):
            if s.test is not None and (out := self._unrolled(s)) is not None:
                return out
            for inner in statements_of((*s.before_test, *s.body)):
                if isinstance(inner, SetVariable):
                    self.numbers.pop(inner.variable, None)
            numbers = dict(self.numbers)
            copies = super().copied(s)
            self.numbers = numbers
        else:
            copies = super().copied(s)
        if s in self.lines:
            self.lines[copies[0]] = self.lines[s]
        return copies

    def _unrolled(self, s: CountedLoop) -> Sequence[ThreadStatement] | None:
        """The iterations of a loop one after the other; None where its end is not known."""
        start, stop = self.value(s.start), self.value(s.stop)
        if not (filled(start) and filled(stop)):
            return None
        numbers = dict(self.numbers)
        out: list[ThreadStatement] = []
        for k in range(MAX_UNROLLED + 1):  # the last turn finds that the loop has ended
            counter = start.attrs["value"] + k * s.step
            self.known[s.counter] = OPS.full((), counter, s.counter.dtype)
            first = self.block(s.before_test)
            assert s.test is not None
            going = self.value(s.test)
            if counter >= stop.attrs["value"] or (filled(going) and not going.attrs["value"]):
                return [*out, *first]
            if not filled(going):
                break
            out += [*first, *self.block(s.body)]
        self.numbers = numbers
        return None


def side_by_side(program: ThreadProgram, count: int, own: Collection[str]) -> ThreadProgram:
    """The program of many examples: each has its own blocks.

    Args:
        program: The program of one example.
        count: Number of examples.
        own: Names of the arrays that each example has separately, concatenated.
    """
    block = number_leaf("e0", program.block)
    example = OPS.floor_divide(block, program.blocks)
    sizes = {a.name: a.size for a in program.arrays if a.name in own}

    def place(array: str, index: Value) -> Value:
        return index + example * sizes[array] if array in sizes else index

    copies = ThreadCopies("e", {program.block: OPS.remainder(block, program.blocks)}, place)
    next(copies.names)
    arrays = tuple(replace(a, size=a.size * (count if a.name in own else 1))
                   for a in program.arrays)
    return replace(program, blocks=program.blocks * count, block=block, arrays=arrays,
                   body=copies.block(program.body))
