"""Regions that are alike, to be lowered once: the same work on other buffers, or further along.

A model repeats itself: every step of a recurrent layer, every block of a deep one. What a kernel
does depends on the ops of its region and on the positions at which it reads, not on where buffers
lie; and a position that is only moved on by a constant is the same position of a buffer that begins
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ztorch.graph.value import Value, attribute_key
from ztorch.ir.kernel import Instr, Kernel
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, is_view, traced


@dataclass(frozen=True)
class Span:
    """The part of a buffer that a region reads, in elements."""

    start: int  # its first element
    size: int  # how many there are


@dataclass
class RegionShape:
    """What a region does, apart from where its buffers lie. Equal keys, equal kernels."""

    key: tuple
    spans: dict[Value, Span]


def shape_of(region: Region, buffers: Sequence[Value], fixed: Mapping[Value, bool],
             rest: tuple) -> RegionShape:
    """The shape of a region. Buffers that are `fixed` are read from their beginning; `rest` is what
    else the kernel depends on."""
    look = _Look(region, {v: k for k, v in enumerate(buffers)})
    members = tuple(look.member(v) for v in region.members)
    spans = {}
    for v in buffers:
        low, high = look.ends.get(v, (0, v.size))
        if fixed[v] or v in look.anywhere or v not in look.ends:
            low, high = 0, v.size
        spans[v] = Span(low, high - low)
    starts = tuple(spans[v].start for v in buffers)
    moved = tuple(_moved(m, starts) for m in members)
    layouts = tuple((v.dtype, v.shape if fixed[v] else spans[v].size, v.rank) for v in buffers)
    key = (region.kind, region.outer, region.inner, region.full, region.size, region.axes,
           region.shape, tuple(region.flat[v] for v in region.members),
           tuple(region.members.index(v) for v in region.stores), moved, layouts, rest)
    return RegionShape(key, spans)


@dataclass(frozen=True)
class _Read:
    """An element of buffer number `buffer`, at a position."""

    buffer: int
    at: Index


class _Look:
    """Walks through what members read, down to buffers and other members."""

    def __init__(self, region: Region, number: Mapping[Value, int]):
        self.region, self.number = region, number
        self.order = {v: k for k, v in enumerate(region.members)}
        self.ends: dict[Value, tuple[int, int]] = {}
        self.anywhere: set[Value] = set()  # read where a loop's range does not tell

    def member(self, v: Value) -> tuple:
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
        return (v.op.name, attribute_key(v.attrs), v.shape, v.dtype, v.op.cost, reads)

    def _body(self, v: Value, index: Sequence[Index], certain: bool) -> tuple:
        if v.op.opcode:
            return tuple(self._read(a, index, certain) for a in v.args)
        trace = traced(v, index)
        certain = certain and not trace.computed
        return (tuple(index), tuple(trace.computed),
                tuple(self._read(a, at, certain) for a, at in trace.reads))

    def _read(self, v: Value, index: Sequence[Index], certain: bool) -> Any:
        index = tuple(Index() if n == 1 else i for i, n in zip(index, v.shape, strict=True))
        if v in self.order:
            return "member", self.order[v], flatten(index, v.shape)
        if is_view(v):
            trace = traced(v, index)
            if v.op.movement and len(trace.reads) == 1 and not trace.computed:
                return self._read(*trace.reads[0], certain)  # it only says where
            return (v.op.name, attribute_key(v.attrs), v.shape, v.dtype,
                    self._body(v, index, certain and not trace.computed))
        flat = flatten(index, v.shape)
        low, high = flat.range
        if certain and low == flat.const:
            first, last = self.ends.get(v, (low, high + 1))
            self.ends[v] = min(first, low), max(last, high + 1)
        else:
            self.anywhere.add(v)
        return _Read(self.number[v], flat)


def _moved(x: Any, starts: Sequence[int]) -> Any:
    """Every position counted from where its buffer's span begins."""
    if isinstance(x, _Read):
        return _Read(x.buffer, x.at - starts[x.buffer])
    return tuple(_moved(part, starts) for part in x) if isinstance(x, tuple) else x


def rebased(kernel: Kernel, spans: Mapping[str, Span]) -> Kernel:
    """The kernel with its memories beginning where their spans do."""
    body = []
    for i in kernel.body:
        span = spans.get(i.attrs.get("mem", ""))
        if span is not None and span.start:
            i = Instr(i.opcode, i.dest, i.args, {**i.attrs, "off": i.attrs["off"] - span.start})
        body.append(i)
    memories = tuple(replace(m, size=spans[m.name].size) if m.name in spans else m
                     for m in kernel.memories)
    return replace(kernel, body=tuple(body), memories=memories)
