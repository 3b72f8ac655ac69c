"""Workgroups on processors: workers share the workgroups, and run the threads of each in loops.

Barriers split the work of a thread into segments. A segment becomes a loop over the threads of the
workgroup, so all threads finish it before the next segment begins. Values that are uniform over
threads are computed once, outside these loops, as are loops and branches that contain barriers,
which all threads execute together. A thread's values that are live across segments are stored in
arrays with an element per thread. Shared memory is a local array of the worker.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ztorch.dtypes import boolean, storage_dtype
from ztorch.ir.atomic_memories import BITS
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.nested import Nested, nested
from ztorch.ir.opcodes import ATOMICS, PURE
from ztorch.ir.rewrite import next_id
from ztorch.lower.passes import share_out


def workgroups_as_loops(kernel: Kernel) -> Kernel:
    """The kernel with grid and block loops as loops of CPU workers. A kernel without these loops is
    unchanged."""
    if not any(i.attrs.get("kind") == "block" for i in kernel.body):
        return kernel
    return share_out(_Blocks(kernel).kernel())


@dataclass(eq=False)
class _Segment:
    """The work of each thread between two barriers."""

    nodes: list[Nested] = field(default_factory=list)
    repeated: bool = False  # whether it is inside a loop with barriers

    @functools.cached_property
    def instructions(self) -> list[Instr]:
        return [i for n in self.nodes for i in n.instructions()]

    @functools.cached_property
    def defined(self) -> set[int]:
        """The ids that the segment defines."""
        return {i.dest.id for i in self.instructions}


class _Blocks:
    """The conversion of one kernel."""

    def __init__(self, kernel: Kernel):
        self.old = kernel
        top = nested(kernel.body)
        self.grid = next(n for n in top if n.instr.attrs.get("kind") == "grid")
        self.above = [n for n in top if n is not self.grid]
        block = next(n for n in self.grid.yes if n.instr.attrs.get("kind") == "block")
        self.before = [n for n in self.grid.yes if n is not block]
        self.counter, self.size = block.instr.dest, block.instr.args[1]
        self.read_only = {m.name for m in kernel.memories if m.access == "r"}
        self.private: set[int] = set()  # variables with one value per thread
        self.uniform: set[int] = set()  # values that are the same in all threads
        self._classify(block.yes)
        self.items: list[_Segment | Instr] = []  # segments, and work done once for all threads
        self._split(block.yes, False)
        self.segments = [x for x in self.items if isinstance(x, _Segment)]
        self.made = {i.dest.id: i for s in self.segments for i in s.instructions}
        self.home = {i: s for s in self.segments for i in s.defined}
        self.cheap = self._cheap()

    # -- uniform work ----------------------------------------------------------------------------

    def _classify(self, nodes: Sequence[Nested]) -> None:
        while True:
            before = len(self.private)
            self.uniform = {i.dest.id for n in (*self.above, *self.before)
                            for i in n.instructions()} | {self.grid.instr.dest.id}
            self._walk(nodes)
            if len(self.private) == before:
                return

    def _walk(self, nodes: Sequence[Nested]) -> None:
        for n in nodes:
            if n.yes or n.end is not None:
                if n.has_barrier:
                    self.uniform.add(n.instr.dest.id)
                    self._walk([*n.yes, *n.no])
                else:
                    self.private |= {i.args[0].id for i in n.instructions() if i.opcode == "set"}
            elif self._is_uniform(n.instr):
                self.uniform.add(n.instr.dest.id)
            elif n.instr.opcode == "set":
                self.private.add(n.instr.args[0].id)

    def _is_uniform(self, i: Instr) -> bool:
        """Whether an instruction outside of divergent loops and branches is uniform."""
        if i.opcode in ("get", "set") and i.args[0].id in self.private:
            return False
        if i.opcode not in PURE and i.opcode not in ("get", "set") and not (
                i.opcode == "load" and i.attrs["mem"] in self.read_only):
            return False
        return i.opcode != "block_id" and all(
            a.is_const or a.kind == "variable" or a.id in self.uniform for a in i.args)

    def _split(self, nodes: Sequence[Nested], repeated: bool) -> None:
        segment = _Segment(repeated=repeated)

        def flush() -> None:
            nonlocal segment
            if segment.nodes:
                self.items.append(segment)
            segment = _Segment(repeated=repeated)

        for n in nodes:
            i = n.instr
            if i.opcode == "barrier":
                flush()
            elif n.has_barrier:
                flush()
                self.items.append(i)
                self._split(n.yes, repeated or i.opcode == "loop")
                if n.otherwise is not None:
                    self.items.append(n.otherwise)
                    self._split(n.no, repeated)
                assert n.end is not None
                self.items.append(n.end)
            elif i.opcode == "while":
                flush()
                self.items.append(i)
            elif n.end is None and i.dest.id in self.uniform:
                if i.opcode == "set":  # earlier reads of threads must see the old value
                    flush()
                self.items.append(i)
            else:
                segment.nodes.append(n)
        flush()

    def _cheap(self) -> set[int]:
        """Values that each segment recomputes, in place of storing them."""
        cheap = {self.counter.id}
        for s in self.segments:
            for n in s.nodes:
                i = n.instr
                if i.opcode in PURE and all(
                        a.is_const or a.id in self.uniform or a.id in cheap for a in i.args):
                    cheap.add(i.dest.id)
        return cheap

    # -- the new kernel --------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        old = self.old
        b = self.b = Builder(old.name, old.index, old.exact, first_id=next_id(old))
        self.spaces = {m.name: m.space for m in old.memories}
        for m in old.memories:
            b.memories[m.name] = replace(m, space="local") if m.space == "shared" else m
        b.variables = list(old.variables)
        self.bounds: dict[int, tuple[Operand, ...]] = {}  # of loops with barriers, by counter
        self.stays = self._stays()
        once = {a.id for x in self.items if isinstance(x, Instr) for a in x.args}
        used = set(once)
        for s in self.segments:
            used |= {a.id for i in s.instructions for a in i.args if a.id not in s.defined}
        # The arrays of values that are live across segments, by id.
        self.places = {i: self._place(self.made[i].dest) for i in sorted(used & {*self.made})
                       if i not in self.cheap or i in once}
        self.var_arrays = {v.id: self._place(v) for v in old.variables
                     if v.id in self.private and not self.stays[v.id]}
        for n in self.above:
            b.body += n.instructions()
        b.body.append(replace(self.grid.instr, attrs={"kind": "parallel"}))
        for n in self.before:
            b.body += n.instructions()
        for x in self.items:
            if isinstance(x, _Segment):
                self._segment(x)
            else:
                b.body.append(replace(x, args=self._args_of_first(x)))
            b.forget()
        assert self.grid.end is not None
        b.body.append(self.grid.end)
        return replace(old, memories=tuple(b.memories.values()), variables=tuple(b.variables),
                       body=tuple(b.body), workgroup=(1, 1, 1))

    def _stays(self) -> dict[int, bool]:
        """Whether each variable of a thread is live only within one segment."""
        homes: dict[int, list[_Segment]] = {v: [] for v in self.private}
        for s in self.segments:
            for v in {i.args[0].id for i in s.instructions if i.opcode in ("get", "set")}:
                if v in homes:
                    homes[v].append(s)
        return {v: len(own) == 1 and not own[0].repeated for v, own in homes.items()}

    def _place(self, x: Operand) -> str:
        name = f"thread_{x.id}"
        return self.b.memory(name, storage_dtype(x.dtype), self.size.number, "local", "rw")

    def _args_of_first(self, i: Instr) -> tuple[Operand, ...]:
        """The operands of a uniform instruction. The end of a loop has those of the loop."""
        if i.opcode == "end_loop":
            return (i.args[0], *self.bounds[i.args[0].id])
        args = tuple(map(self._of_first, i.args))
        if i.opcode == "loop":
            self.bounds[i.dest.id] = args
        return args

    def _of_first(self, a: Operand) -> Operand:
        """An operand of a uniform instruction: the value of the first thread."""
        if a.is_const or a.id not in self.places:
            return a
        return self._load(a, self.b.const(0, self.b.index))

    def _load(self, x: Operand, at: Operand) -> Operand:
        b = self.b
        y = b.load(self.places.get(x.id) or self.var_arrays[x.id], at)
        return b.ne(y, 0) if x.dtype is boolean else y

    def _store(self, mem: str, at: Operand, x: Operand) -> None:
        self.b.store(mem, at, self.b.cast(x, dtype=self.b.memories[mem].dtype))

    def _segment(self, s: _Segment) -> None:
        b, defined = self.b, s.defined
        touched = [i for i in s.instructions if i.opcode in ("get", "set")]
        variables = {i.args[0].id: i.args[0] for i in touched if i.args[0].id in self.var_arrays}
        changed = {i.args[0].id for i in touched if i.opcode == "set"}
        first: dict[int, bool] = {}  # by variable: whether it is set first, by all threads
        for n in s.nodes:
            for i in n.instructions():
                if i.opcode in ("get", "set"):
                    first.setdefault(i.args[0].id, i.opcode == "set" and n.instr is i)
        with b.loop(0, self.size) as t:
            new: dict[int, Operand] = {self.counter.id: t}
            self._load_inputs(s, t, new, defined)
            for v in variables.values():
                if not first[v.id]:
                    b.set(v, self._load(v, t))
            for n in s.nodes:
                for i in n.instructions():
                    args = tuple(new.get(a.id, a) if not a.is_const else a for a in i.args)
                    self._emit(replace(i, args=args), new)
                    if i.dest.id in self.places and n.instr is i:
                        self._store(self.places[i.dest.id], t, new.get(i.dest.id, i.dest))
                    b.forget()
            for v in variables.values():
                if v.id in changed:
                    self._store(self.var_arrays[v.id], t, b.get(v))

    def _load_inputs(self, s: _Segment, t: Operand, new: dict[int, Operand],
                     defined: set[int]) -> None:
        """Loads or recomputes the values of other segments."""
        def resolve(a: Operand) -> None:
            if a.is_const or a.id in defined or a.id in new or a.id not in self.made:
                return
            if a.id in self.cheap:
                i = self.made[a.id]
                for x in i.args:
                    resolve(x)
                args = tuple(new.get(x.id, x) if not x.is_const else x for x in i.args)
                new[a.id] = self.b.raw(i.opcode, a.dtype, a.lanes, args, **i.attrs)
            else:
                new[a.id] = self._load(a, t)

        for i in s.instructions:
            for a in i.args:
                resolve(a)

    def _emit(self, i: Instr, new: dict[int, Operand]) -> None:
        """An instruction. Atomic updates of a worker's local memory need not be atomic."""
        b = self.b
        if i.opcode not in ATOMICS or self.spaces[i.attrs["mem"]] == "global":
            b.body.append(i)
            return
        mem, at, off, xs = i.attrs["mem"], i.args[0], i.attrs["off"], i.args[1:]
        old, update = b.load(mem, at, off=off), i.opcode.removeprefix("atomic_")
        x = xs[-1]
        if update == "cas":
            same = b.eq(*(b.bitcast(y, dtype=BITS.get(y.dtype, y.dtype)) for y in (old, xs[0])))
            x = b.select(same, x, old)
        elif update != "exchange":
            x = b.emit(update, old, x)
        b.store(mem, at, x, off=off)
        new[i.dest.id] = old
