"""Stacks of loops that overwrite sequences that the same loops read.

    an LSTM: the product of its inputs, then its four gates, then their gradients, in one buffer

An iteration reads its part of a sequence before it writes its parts of the stacks over it. A stack
that is computed elementwise by the last kernel that reads the sequence, such as the gates of a GRU,
is copied there at the end of the iteration. Several stacks share each iteration's part; then only
loops may read them, since only loops know the stride between iterations. A stack of the backward
loop overwrites all of them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ztorch.graph.body import Body, arguments
from ztorch.graph.value import Value
from ztorch.lower.insets import INSET, content_before
from ztorch.lower.region import Region, real_reads
from ztorch.lower.rewrites.histories import row_elements


@dataclass(frozen=True)
class Overlay:
    """The location of a stack in the buffer of a sequence."""

    buffer: Value
    start: int  # offset in bytes
    row: int | None  # stride between iterations in bytes, if other stacks are in between


class Overwritten:
    """The stacks that need no separate buffers."""

    def __init__(self, regions: Sequence[Region], readers: Mapping[Value, Sequence[int]],
                 writers: Mapping[Value, Sequence[int]], bodies: Mapping[Value, Any], align: int):
        """
        Args:
            regions: The regions, in order.
            readers: For each buffer, the numbers of the regions that read it.
            writers: For each buffer in the arena, the numbers of the regions that store it.
            bodies: The placements of the loops' bodies.
            align: The alignment of each iteration's part, in bytes.
        """
        self.regions, self.readers, self.writers = regions, readers, writers
        self.bodies, self.align = bodies, align
        self.parts: dict[Value, Overlay] = {}
        self.late: dict[Value, list[int]] = {}  # by loop: outs copied at the end of an iteration
        for number, region in enumerate(regions):
            if region.kind == "loop" and list(regions).count(region) == 1:
                self._write_over(number, region)

    def _write_over(self, number: int, region: Region) -> None:
        loop = region.members[0]
        body: Body = loop.attrs["body"]
        sequences = arguments(body, loop.args)[1]
        inside = self.bodies[loop]
        last = {leaf: k for k, read in enumerate(inside.reads) for leaf in read}
        writers: dict[Value, list[int]] = {}  # the regions that store a value or insets of it
        for k, r in enumerate(inside.regions):
            for v in dict.fromkeys(map(buffer_of, r.stores)):
                writers.setdefault(v, []).append(k)
        out_of = {v: body.outs[v.attrs["index"] - len(body.carries)]
                  for v in region.stores if is_stack(v)}
        stacks = {v: writers[buffer_of(out_of[v])][0]
                  for v in region.stores if is_stack(v) and len(self.writers.get(v, ())) == 1}
        free = {x: last.get(leaf, -1) for leaf, x in zip(
            body.slices, sequences, strict=True)
            if len(self.writers.get(x, ())) == 1 and loop.args.count(x) == 1
            and self.readers[x][-1] == number}
        late = {v for v, written in stacks.items() if inside.regions[written].kind == "map"
                and inside.limits.grid is None}
        for buffer, row, read in self._rows(number, loop, free):
            candidates = [v for v, written in stacks.items() if v not in self.parts
                    and (written > read or v in late)]
            leaves = [leaf for leaf, x in zip(body.slices, sequences, strict=True) if buffer is (
                self.parts[x].buffer if x in self.parts else x)]
            for v in candidates:
                if writers[buffer_of(out_of[v])] == [read] and len(leaves) == 1 and by_element(
                        inside.regions[read], leaves[0], out_of[v]):
                    stacks[v] += 1
            candidates.sort(key=lambda v: stacks[v] <= read)
            as_long = [v for v in candidates if row_bytes(v, self.align) == row]
            parts, start = {}, 0
            if as_long:
                parts[as_long[0]] = Overlay(buffer, 0, None)
            for v in filter(self._is_read_by_iterations, () if as_long else candidates):
                if start + row_bytes(v, self.align) <= row:
                    parts[v] = Overlay(buffer, start, row)
                    start += row_bytes(v, self.align)
            self.parts |= parts
            self.late.setdefault(loop, []).extend(
                v.attrs["index"] - len(body.carries) for v in parts if stacks[v] <= read)

    def _rows(self, number: int, loop: Value, free: Mapping[Value, int]
              ) -> Iterator[tuple[Value, int, int]]:
        """The buffers that a loop may overwrite: each with its bytes per iteration and the number
        of the last kernel of an iteration that reads it."""
        body: Body = loop.attrs["body"]
        sequences = arguments(body, loop.args)[1]
        groups: dict[Value, list[Value]] = {}  # sequences that are in one buffer
        for x in free:
            groups.setdefault(self.parts[x].buffer if x in self.parts else x, []).append(x)
        for buffer, xs in groups.items():
            others = (x for x, part in self.parts.items() if part.buffer is buffer and x not in xs)
            if any(max(self.readers.get(x, (-1,))) >= number for x in others):
                continue
            row = self.parts[xs[0]].row if xs[0] in self.parts else None
            if row is None:
                leaf = body.slices[sequences.index(xs[0])]
                row = row_elements(leaf, self.align) * leaf.dtype.bytes
            yield buffer, row, max(free[x] for x in xs)

    def _is_read_by_iterations(self, v: Value) -> bool:
        """Whether a stack is read only by loops, one iteration's part per iteration."""
        for k in self.readers.get(v, ()):
            [loop, *_] = self.regions[k].members
            if self.regions[k].kind != "loop" or loop.args.count(v) != 1:
                return False
            body: Body = loop.attrs["body"]
            sequences = arguments(body, loop.args)[1]
            if v not in sequences or body.trip_count != v.args[0].attrs["body"].trip_count:
                return False
        return True


def buffer_of(inset: Value) -> Value:
    """The first inset of a buffer."""
    while (before := content_before(inset)) is not None:
        inset = before
    return inset


def by_element(region: Region, leaf: Value, out: Value) -> bool:
    """Whether a region reads each element of a leaf only where it stores an element of an inset at
    the same place: all loads of a position come before its stores."""
    if out.op is not INSET or leaf.shape != out.shape:
        return False
    stored = [region.flat[v] for v in region.members
              if v.op is INSET and buffer_of(v) is buffer_of(out)]
    return all(at in stored for v in region.members if v.op is not INSET
               for source, at in real_reads(v, region.index(v)) if source is leaf)


def row_bytes(stack: Value, align: int) -> int:
    """The stride of a stack between iterations in bytes, if it has its own buffer."""
    body: Body = stack.args[0].attrs["body"]
    out = body.outs[stack.attrs["index"] - len(body.carries)]
    return row_elements(out, align) * out.dtype.bytes


def is_stack(v: Value) -> bool:
    """Whether a value is a result of a loop with a part for every iteration that may be stored
    anywhere. A loop that may exit early does not store all parts."""
    if v.op.kind != "result" or v.args[0].op.kind != "loop":
        return False
    body: Body = v.args[0].attrs["body"]
    return body.proceed is None and v.attrs["index"] >= len(body.carries)
