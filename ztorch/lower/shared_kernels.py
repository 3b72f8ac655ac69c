"""Finds regions that can share one kernel, so that each kernel is lowered once.

Models repeat themselves: the steps of a recurrent layer do the same work, and so do the blocks of
a deep network. A kernel depends on the ops of its region and on the positions that it reads, not on
the addresses of its buffers. Positions that differ only by a constant offset are normalized: each
buffer starts at the first element that its region reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ztorch.graph.text import is_told
from ztorch.graph.value import Op, Value, attribute_key
from ztorch.ir.kernel import Instr, Kernel
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, is_view, traced


@dataclass(frozen=True)
class Span:
    """The part of a buffer that a region reads, in elements."""

    start: int  # first element
    size: int  # number of elements


@dataclass
class RegionShape:
    """The computation of a region, independent of the locations of its buffers."""

    key: tuple  # regions with equal keys and ops share a kernel
    ops: tuple[Op, ...]  # whose names the key has
    is_complete: bool  # whether the key is valid in all programs, not only in this one
    spans: dict[Value, Span]  # the part of each buffer that the region uses


def shape_of(region: Region, buffers: Sequence[Value], fixed: Mapping[Value, bool],
             context: tuple) -> RegionShape:
    """The shape of a region.

    Args:
        region: The region.
        buffers: The buffers of its kernel, in order.
        fixed: Whether a buffer must be passed from its first element on.
        context: Everything else that the kernel depends on.
    """
    reads = _Reads(region, {v: k for k, v in enumerate(buffers)})
    members = tuple(reads.of_member(v) for v in region.members)
    spans = {}
    for v in buffers:
        start, end = 0, v.size
        if not fixed[v] and v not in reads.unbounded:
            start, end = reads.ranges.get(v, (start, end))
        spans[v] = Span(start, end - start)
    starts = tuple(spans[v].start for v in buffers)
    if any(starts):
        members = tuple(_from_starts(m, starts) for m in members)
    layouts = tuple((v.dtype, v.shape if fixed[v] else spans[v].size, v.rank) for v in buffers)
    key = (region.kind, region.outer, region.inner, region.full, region.size, region.axes,
           region.shape, tuple(region.flat[v] for v in region.members),
           tuple(region.members.index(v) for v in region.stores), members, layouts, context)
    return RegionShape(key, tuple(reads.ops), reads.is_complete, spans)


@dataclass(frozen=True)
class _Read:
    """A read of one element of a buffer."""

    buffer: int  # number of the buffer
    at: Index  # position in the buffer


class _Reads:
    """Describes the reads of members, through views down to buffers and other members."""

    def __init__(self, region: Region, number: Mapping[Value, int]):
        self.region, self.number = region, number
        self.order = {v: k for k, v in enumerate(region.members)}
        self.ranges: dict[Value, tuple[int, int]] = {}  # elements read: first and end
        self.unbounded: set[Value] = set()  # buffers with a read of unknown range
        self.ops: dict[Op, int] = {}  # of all described values: how many before have its name
        self.is_complete = True  # whether the key determines the meaning of all ops

    def of_member(self, v: Value) -> tuple:
        """The computation of a member, and the positions that it reads."""
        region = self.region
        if v.op.kind == "map":
            index = unflatten(region.flat[v], v.shape)
            reads = self._body(v, index, certain=True)
        elif v.op.kind == "reduce":
            x = v.args[0]
            reads = (self._read(x, unflatten(region.full, x.shape), True),)
        else:
            reads = tuple(self._read(a, [Index.of(Var(f"a{k}", n)) for k, n in enumerate(a.shape)],
                                     True) for a in v.args)
        return (self._named(v), attribute_key(v.attrs), v.shape, v.dtype, v.op.cost, reads)

    def _named(self, v: Value) -> str:
        """The name of an op, with a number if another one has it, too."""
        if v.op not in self.ops:
            self.ops[v.op] = sum(op.name == v.op.name for op in self.ops)
        self.is_complete = self.is_complete and is_told(v)
        return f"{v.op.name} {self.ops[v.op]}" if self.ops[v.op] else v.op.name

    def _body(self, v: Value, index: Sequence[Index], certain: bool) -> tuple:
        if v.op.opcode:
            return tuple(self._read(a, index, certain) for a in v.args)
        trace = traced(v, index)
        certain = certain and not trace.computed
        return (tuple(index), tuple(trace.computed), tuple(trace.bounds),
                tuple(self._read(a, at, certain) for a, at in trace.reads))

    def _read(self, v: Value, index: Sequence[Index], certain: bool) -> Any:
        index = tuple(Index() if n == 1 else i for i, n in zip(index, v.shape, strict=True))
        if v in self.order:
            return "member", self.order[v], flatten(index, v.shape)
        if is_view(v):
            trace = traced(v, index)
            if v.op.movement and len(trace.reads) == 1 and not trace.computed:
                return self._read(*trace.reads[0], certain)  # only the position changes
            return (self._named(v), attribute_key(v.attrs), v.shape, v.dtype,
                    self._body(v, index, certain and not trace.computed))
        flat = flatten(index, v.shape)
        low, high = flat.range
        if certain and low == flat.const:
            start, end = self.ranges.get(v, (low, high + 1))
            self.ranges[v] = min(start, low), max(end, high + 1)
        else:
            self.unbounded.add(v)
        return _Read(self.number[v], flat)


def _from_starts(x: Any, starts: Sequence[int]) -> Any:
    """A description with all positions relative to the starts of the buffers' spans."""
    if isinstance(x, _Read):
        return _Read(x.buffer, x.at - starts[x.buffer])
    return tuple(_from_starts(part, starts) for part in x) if isinstance(x, tuple) else x


def rebased(kernel: Kernel, spans: Mapping[str, Span]) -> Kernel:
    """The kernel with each memory reduced to its span."""
    body = []
    for i in kernel.body:
        for memory, off in (("mem", "off"), ("source", "source_off"), ("right", "right_off"),
                            ("bias", "bias_off")):
            span = spans.get(i.attrs.get(memory, ""))
            if span is not None and span.start:
                i = Instr(i.opcode, i.dest, i.args, {**i.attrs, off: i.attrs[off] - span.start})
        body.append(i)
    memories = tuple(replace(m, size=spans[m.name].size) if m.name in spans else m
                     for m in kernel.memories)
    return replace(kernel, body=tuple(body), memories=memories)
