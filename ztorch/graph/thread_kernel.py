"""The kernel of a program of threads, in the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, i32, storage_dtype
from ztorch.graph.thread_guards import Inside, inside
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
    ThreadProgram,
    ThreadStatement,
    ThreadVariable,
    statements_of,
)
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand
from ztorch.ir.uniform import parted_at

GROUPS_MAX = 65535  # workgroups of a grid, unless a machine says more


def emit(b: Builder, program: ThreadProgram, memories: Mapping[str, str],
         max_groups: int = GROUPS_MAX, subgroup: int = 0) -> list[ThreadStatement]:
    """The kernel of a program.

    Args:
        b: Where it goes. The arrays of the program are declared there.
        program: The program.
        memories: Names of the arrays there, by those in the program.
        max_groups: The most workgroups of a grid; with more blocks, each workgroup runs several.
        subgroup: The threads that exchange values without memory; 0 if there are none.

    Returns:
        For each barrier that is a statement's, in order, that statement.
    """
    b.workgroup = (program.threads, 1, 1)
    names = dict(memories)
    for a in program.shared:
        names[a.name] = b.memory(f"shared_{a.name}", storage_dtype(a.dtype), a.size, "shared", "rw")
    exchange = _exchanges(b, program, subgroup)
    groups = min(program.blocks, max_groups)
    with b.loop(0, groups, kind="grid") as group, b.loop(0, program.threads, kind="block") as t:
        thread = _Thread(b, names, exchange, subgroup, t)
        if groups == program.blocks:
            thread.run(program, group)
        else:
            with b.loop(group, program.blocks, groups) as block:
                thread.run(program, block)
                b.barrier()  # the next block may overwrite memory that this one still reads
    return thread.barriers


def _exchanges(b: Builder, program: ThreadProgram, subgroup: int) -> dict[DType, str]:
    """Memories by which the threads of a block exchange values, by their dtype."""
    dtypes = dict.fromkeys(s.x.dtype for s in statements_of(program.body)
                           if isinstance(s, Exchange) and not _direct(s, subgroup))
    return {d: b.memory(f"exchange_{d.name}", storage_dtype(d), program.threads, "shared", "rw")
            for d in dtypes}


def _direct(s: Exchange, subgroup: int) -> bool:
    return subgroup >= SUBGROUP and isinstance(s.lane, int) and s.x.dtype.bits == 32


class _Thread:
    """Emits the statements of a thread."""

    def __init__(self, b: Builder, names: Mapping[str, str], exchange: Mapping[DType, str],
                 subgroup: int, number: Operand):
        self.b, self.names, self.exchange, self.subgroup = b, names, exchange, subgroup
        self.number = number  # of the thread
        self.here: dict[Value, Operand] = {}  # the values of leaves
        self.counters: dict[Operand, Operand] = {}  # counters, by their casts to int32
        self.variables: dict[ThreadVariable, Operand] = {}
        self.barriers: list[ThreadStatement] = []  # statements by which barriers come, in order
        self.lines: Mapping[ThreadStatement, str] = {}

    def run(self, program: ThreadProgram, block: Operand) -> None:
        self.here |= {program.block: self._counted(block), program.thread: self._counted(
            self.number)}
        self.lines = program.lines
        for v in program.variables:
            self.variables[v] = self.b.var(v.dtype, init=0)
        self._block(program.body)

    def _counted(self, x: Operand) -> Operand:
        return self.b.cast(x, dtype=i32)

    def _block(self, statements: Sequence[ThreadStatement]) -> None:
        for s in statements:
            with self.b.at_line(self.lines.get(s, "")):
                self._statement(s)

    def _statement(self, s: ThreadStatement) -> None:
        b = self.b
        if isinstance(s, LoadElement):
            self.here[s.result] = self._load(self.names[s.array], self._index(s.index),
                                             s.result.dtype)
        elif isinstance(s, StoreElement):
            self._store(self.names[s.array], self._index(s.index), self.number_of(s.x))
        elif isinstance(s, AtomicUpdate):
            self.here[s.result] = b.atomic(s.how, self.names[s.array], self._index(s.index),
                                           *map(self.number_of, s.operands))
        elif isinstance(s, GetVariable):
            self.here[s.result] = b.get(self.variables[s.variable])
        elif isinstance(s, SetVariable):
            b.set(self.variables[s.variable], self.number_of(s.x))
        elif isinstance(s, CountedLoop):
            self._loop(s)
        elif isinstance(s, Branch):
            with b.if_(self.number_of(s.condition), els=bool(s.no)) as token:
                self._block(s.yes)
                if s.no:
                    b.else_(token)
                    self._block(s.no)
        elif isinstance(s, Barrier):
            self._meet(s)
        else:
            self.here[s.result] = self._exchanged(s)

    def _loop(self, s: CountedLoop) -> None:
        """A loop; twice where iterations that stay inside of arrays need fewer tests."""
        b, first, last, guards = self.b, self._index(s.start), self._index(s.stop), inside(s)
        if guards is None:
            self._iterate(s, first, last)
            return
        within = b.ge(first, 0)
        for base, count in guards.counts.items():
            room: Operand | int = count
            if base is not None:  # no sum that could overflow
                begin = self._index(base)
                within = b.and_(within, b.and_(b.ge(begin, 0), b.le(begin, count)))
                room = b.sub(count, begin)
            within = b.and_(within, b.le(last, room))
        with b.if_(within, els=True) as token:
            self._iterate(s, first, last, guards)
            b.else_(token)
            self._iterate(s, first, last)

    def _iterate(self, s: CountedLoop, first: Operand, last: Operand, guards: Inside | None = None
                 ) -> None:
        b = self.b
        with b.loop(first, last, s.step) as counter:
            self.here[s.counter] = x = self._counted(counter)
            self.counters[x] = counter
            if guards is not None:
                self.here |= {v: self.number_of(place) for v, place in guards.places.items()}
                self.here |= dict.fromkeys(guards.truths, b.const(True, boolean))
            self._block(s.before_test)
            if s.test is not None:
                b.while_(counter, self.number_of(s.test))
            self._block(s.body)
        for v in () if guards is None else (*guards.places, *guards.truths):
            del self.here[v]

    def _exchanged(self, s: Exchange) -> Operand:
        """The value of another thread of the subgroup; through memory where the machine has no
        subgroups of that size."""
        b, x = self.b, self.number_of(s.x)
        if _direct(s, self.subgroup):
            assert isinstance(s.lane, int)
            return b.shuffle_xor(x, s.lane)
        mem, first = self.exchange[s.x.dtype], b.mul(b.div(self.number, SUBGROUP), SUBGROUP)
        if isinstance(s.lane, int):
            other = b.xor(self.number, s.lane)
        else:
            lane = b.and_(self._index(s.lane), SUBGROUP - 1)
            other = b.add(first, lane)
        self._store(mem, self.number, x)
        self._meet(s)
        y = self._load(mem, other, s.x.dtype)
        self._meet(s)
        return y

    def _meet(self, s: ThreadStatement) -> None:
        self.barriers.append(s)
        self.b.barrier()

    def _load(self, mem: str, at: Operand, d: DType) -> Operand:
        x = self.b.load(mem, at)
        return self.b.ne(x, 0) if d is boolean else x

    def _store(self, mem: str, at: Operand, x: Operand) -> None:
        self.b.store(mem, at, self.b.cast(x, dtype=self.b.memories[mem].dtype))

    # -- numbers ---------------------------------------------------------------------------------

    def _index(self, v: Value) -> Operand:
        x = self.number_of(v)
        return self.counters.get(x) or self.b.cast(x, dtype=self.b.index)

    def number_of(self, v: Value) -> Operand:
        """The number that a value represents, computed here."""
        return self._number(v, {})

    def _number(self, v: Value, numbers: dict[Value, Operand]) -> Operand:
        if v in self.here:
            return self.here[v]
        if v not in numbers:
            numbers[v] = self._computed(v, numbers)
        return numbers[v]

    def _computed(self, v: Value, numbers: dict[Value, Operand]) -> Operand:
        if v.op.name == "full":
            return self.b.const(v.attrs["value"], v.dtype)
        if v.attrs.get("role") == "constant":
            return self.b.const(np.asarray(v.attrs["data"]).item(), v.dtype)
        assert v.op.kind == "map", f"{v} is not a number of a thread"
        if v.op.opcode:
            return self.b.emit(v.op.opcode, *(self._number(a, numbers) for a in v.args), **v.attrs)
        element: Operand = v.op.body(_Number(self, v, numbers), (), **v.attrs)  # type: ignore[misc]
        return element


class _Number:
    """The arguments as the body of an op sees them: numbers."""

    def __init__(self, thread: _Thread, v: Value, numbers: dict[Value, Operand]):
        self.b, self.count = thread.b, len(v.args)
        self._thread, self._v, self._known = thread, v, numbers

    def shape(self, k: int) -> tuple[int, ...]:
        return self._v.args[k].shape

    def read(self, k: int, index: Any, where: Any = None) -> Operand:
        return self._thread._number(self._v.args[k], self._known)


# -- by itself -----------------------------------------------------------------------------


def kernel_of(program: ThreadProgram) -> Kernel:
    """The kernel of a program by itself. Its memories are called as the arrays are."""
    return _built(program)[0]


def parted(program: ThreadProgram) -> ThreadStatement | None:
    """The first statement at which the threads of a block must meet, but may not all do."""
    kernel, statements = _built(program)
    at = parted_at(kernel)
    if not at:
        return None
    barriers = [k for k, i in enumerate(kernel.body) if i.opcode == "barrier"]
    return statements[barriers.index(at[0])]


def _built(program: ThreadProgram) -> tuple[Kernel, list[ThreadStatement]]:
    b = Builder("threads", i32)
    for a in program.arrays:
        b.memory(a.name, storage_dtype(a.dtype), a.size, access="rw" if a.written else "r")
    statements = emit(b, program, {a.name: a.name for a in program.arrays}, program.blocks)
    return b.kernel(), statements
