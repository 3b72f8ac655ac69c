"""Vector arithmetic as scalar arithmetic, for machines that load and store vectors but compute with
none."""

from __future__ import annotations

from dataclasses import replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.rewrite import next_id


def lane_by_lane(kernel: Kernel) -> Kernel:
    """The kernel with vectors computed lane by lane, and still loaded and stored whole.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("double")
    >>> _ = b.memory("x", f32, 4), b.memory("y", f32, 4, access="w")
    >>> b.store("y", 0, b.mul(b.load("x", 0, lanes=4, align=16), 2.0), align=16)
    >>> [i.opcode for i in lane_by_lane(b.kernel()).body if i.opcode != "extract"]
    ['load', 'mul', 'mul', 'mul', 'mul', 'join', 'store']
    """
    return _LaneByLane(kernel).kernel() if any(map(_has_lanes, kernel.body)) else kernel


class _LaneByLane:
    """A kernel whose vectors are computed lane by lane."""

    def __init__(self, kernel: Kernel):
        self.vectors = kernel
        self.b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
        self.parts: dict[int, list[Operand]] = {}  # the lanes of a vector
        self.extracted: dict[int, Operand] = {}  # the lane that an operand is

    def kernel(self) -> Kernel:
        """The kernel of scalars."""
        kernel, b = self.vectors, self.b
        for v in kernel.variables:
            whole_value = v.lanes == 1 or v.fragment is not None
            self.parts[v.id] = [v] if whole_value else [b.var(v.dtype) for _ in range(v.lanes)]
        read_by_lane = {a.id for i in kernel.body if _computes_lanes(i) for a in i.args
                        if a.lanes > 1}
        for i in kernel.body:
            self._add(i, i.dest.id in read_by_lane)
        variables = tuple(x for v in kernel.variables for x in self.parts[v.id])
        return replace(kernel, variables=variables, body=tuple(b.body))

    def _add(self, i: Instr, read_by_lane: bool) -> None:
        b, part = self.b, self._part
        lanes = max(o.lanes for o in (i.dest, *i.args))
        if i.opcode == "shuffle":
            all_lanes = [part(a, k) for a in i.args for k in range(a.lanes)]
            self.parts[i.dest.id] = [all_lanes[k] for k in i.attrs["perm"]]
        elif _computes_lanes(i):
            self.parts[i.dest.id] = [_lane(b, i, [part(a, k) for a in i.args], k)
                                     for k in range(lanes)]
        elif i.opcode == "extract" and i.args[0].id in self.parts:
            self.extracted[i.dest.id] = self.parts[i.args[0].id][i.attrs["lane"]]
        else:
            args = tuple([self._whole(a) for a in i.args])
            b.body.append(Instr(i.opcode, i.dest, args, i.attrs))
            b.forget()
            if read_by_lane:
                self.parts[i.dest.id] = [b.extract(i.dest, k) for k in range(lanes)]

    def _part(self, x: Operand, k: int) -> Operand:
        """A lane of an operand."""
        if x.is_const:
            return replace(x, lanes=1)
        return self.parts[x.id][k] if x.lanes > 1 else self.extracted.get(x.id, x)

    def _whole(self, x: Operand) -> Operand:
        """An operand with all its lanes."""
        if x.lanes == 1 or x.fragment is not None or not (x.is_const or x.id in self.parts):
            return self.extracted.get(x.id, x)
        return self.b.join(*(self._part(x, k) for k in range(x.lanes)))


def _computes_lanes(i: Instr) -> bool:
    """Whether an instruction computes with a vector: does more than load, store or extract. Matrix
    fragments do not count as vectors."""
    if not _has_lanes(i) or len(i.args) == {"load": 1, "store": 2, "extract": 1}.get(i.opcode):
        return False
    return all(o.fragment is None for o in (i.dest, *i.args))


def _has_lanes(i: Instr) -> bool:
    """Whether the result or an operand of an instruction has several lanes."""
    return i.dest.lanes > 1 or True in [a.lanes > 1 for a in i.args]  # quicker than `any`


def _lane(b: Builder, i: Instr, args: list[Operand], k: int) -> Operand:
    """One lane of a vector instruction."""
    if i.opcode == "splat":
        return args[0]
    if i.opcode == "iota":
        return b.const(k, i.dest.dtype)
    if i.opcode == "join":
        return args[k]
    opcode = {"gather": "load", "scatter": "store"}.get(i.opcode, i.opcode)
    attrs = dict(i.attrs)
    if "mem" in attrs:
        attrs["align"] = 0
        if opcode == i.opcode:
            attrs["off"] += k
    return b.raw(opcode, i.dest.dtype, 1, tuple(args), i.dest.kind, **attrs)
