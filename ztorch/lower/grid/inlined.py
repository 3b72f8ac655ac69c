"""Instructions of kernels that become parts of another kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand, matching
from ztorch.ir.ranges import range_of, ranges
from ztorch.ir.rewrite import next_id
from ztorch.lower.grid.workgroups import where


class Inlined:
    """Adds instructions to a kernel under new numbers.

    Args:
        b: The builder of the kernel.
        new: The operands that take the place of others, by their ids.
        memories: The names of memories in the kernel, by their names elsewhere.
    """

    def __init__(self, b: Builder, new: Mapping[int, Operand], memories: Mapping[str, str]):
        self.b, self.new, self.memories = b, dict(new), memories

    def add(self, i: Instr) -> Operand:
        """Adds an instruction and returns its result."""
        b, attrs = self.b, i.attrs
        for name in ("mem", "source", "barriers"):
            if name in attrs:
                attrs = {**attrs, name: self.memories[attrs[name]]}
        self.new[i.dest.id] = dest = replace(i.dest, id=b.fresh())
        b.body.append(Instr(i.opcode, dest, tuple(self.new.get(a.id, a) for a in i.args), attrs))
        b.forget()  # what a scope holds is not visible after it
        return dest


def unrolled(kernel: Kernel, most: int) -> Kernel:
    """The kernel without its innermost serial loops of at most `most` trips. Trips that only some
    threads run are in an `if`.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("sum")
    >>> _ = b.memory("x", f32, 3), b.memory("y", f32, 3, access="w")
    >>> with b.loop(0, 3) as i:
    ...     b.store("y", i, b.load("x", i))
    >>> [i.opcode for i in unrolled(b.kernel(), 4).body]
    ['load', 'store', 'load', 'store', 'load', 'store']
    """
    known, ends = ranges(kernel), dict(matching(kernel.body))
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    code = Inlined(b, {}, {m.name: m.name for m in kernel.memories})
    at = 0
    while at < len(kernel.body):
        i = kernel.body[at]
        inside = kernel.body[at + 1:ends.get(at, at)]
        if i.opcode == "loop" and i.attrs["kind"] == "serial" and _can_unroll(inside):
            start, stop, step = i.args
            first, last = range_of(start, known)
            if stop.is_const and step.is_const and first + most * step.number >= stop.number:
                for ahead in range(0, max(0, stop.number - first), step.number):
                    counter = b.add(code.new.get(start.id, start), ahead)
                    _trip(b, code, i, inside, counter,
                          None if last + ahead < stop.number else stop)
                at = ends[at] + 1
                continue
        code.add(i)
        at += 1
    return replace(kernel, body=tuple(b.body))


def _can_unroll(inside: Sequence[Instr]) -> bool:
    return not {"loop", "while", "barrier", "shuffle_xor"} & {i.opcode for i in inside}


def _trip(b: Builder, code: Inlined, loop: Instr, inside: Sequence[Instr], counter: Operand,
          stop: Operand | None) -> None:
    """One trip of a loop, guarded if not all threads run it."""
    code.new[loop.dest.id] = counter
    with where(b, None if stop is None else b.lt(counter, stop)):
        for i in inside:
            code.add(i)
