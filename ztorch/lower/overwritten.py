"""Stacks of loops that overwrite sequences that the loops read.

    an LSTM: the inputs' product, then its four gates, then their slopes, all in one buffer

An iteration has read its part of a sequence before it writes its parts of stacks over it: those
that the kernel which reads it last computes by element, such as the gates of a GRU, it copies there
at its end. Several stacks are side by side in each iteration's part; then only loops may read them,
since only they know how far it is from one iteration to the next. A stack of the loop that goes
back takes the place of them all again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ztorch.graph.body import Body, arguments
from ztorch.graph.value import Value
from ztorch.lower.histories import row_elements
from ztorch.lower.region import Region


@dataclass(frozen=True)
class Overlay:
    """Where a stack is in a buffer that was there before."""

    buffer: Value
    start: int  # in bytes
    row: int | None  # bytes from one iteration's part to the next, if others are in between


class Overwritten:
    """The stacks that need no separate buffers."""

    def __init__(self, regions: Sequence[Region], readers: Mapping[Value, Sequence[int]],
                 writers: Mapping[Value, Sequence[int]], bodies: Mapping[Value, Any], align: int):
        """
        Args:
            regions: The regions, in order.
            readers: Of each buffer, the numbers of the regions that read it.
            writers: Of the buffers in the arena, the numbers of the regions that store them.
            bodies: The placements of the loops' bodies.
            align: Bytes that each iteration's part is aligned to.
        """
        self.regions, self.readers, self.writers = regions, readers, writers
        self.bodies, self.align = bodies, align
        self.parts: dict[Value, Overlay] = {}
        self.late: dict[Value, list[int]] = {}  # of loops: outs that an iteration copies at its end
        for number, region in enumerate(regions):
            if region.kind == "loop" and list(regions).count(region) == 1:
                self._write_over(number, region)

    def _write_over(self, number: int, region: Region) -> None:
        loop = region.members[0]
        body: Body = loop.attrs["body"]
        inside = self.bodies[loop]
        last = {leaf: k for k, read in enumerate(inside.reads) for leaf in read}
        made = {v: k for k, r in reversed([*enumerate(inside.regions)]) for v in r.stores}
        stacks = {v: made[body.outs[v.attrs["index"] - len(body.carries)]]
                  for v in region.stores if is_stack(v) and len(self.writers.get(v, ())) == 1}
        free = {x: last.get(leaf, -1) for leaf, x in zip(
            body.slices, arguments(body, loop.args)[1], strict=True)
            if len(self.writers.get(x, ())) == 1 and loop.args.count(x) == 1
            and self.readers[x][-1] == number}
        late = {v for v, written in stacks.items() if inside.regions[written].kind == "map"
                and inside.limits.grid is None}
        for buffer, row, read in self._rows(number, loop, free):
            here = [v for v, written in stacks.items() if v not in self.parts
                    and (written > read or v in late)]
            here.sort(key=lambda v: stacks[v] <= read)
            whole = [v for v in here if row_bytes(v, self.align) == row]
            parts, start = {}, 0
            if whole:
                parts[whole[0]] = Overlay(buffer, 0, None)
            for v in filter(self._is_read_by_iterations, () if whole else here):
                if start + row_bytes(v, self.align) <= row:
                    parts[v] = Overlay(buffer, start, row)
                    start += row_bytes(v, self.align)
            self.parts |= parts
            self.late.setdefault(loop, []).extend(
                v.attrs["index"] - len(body.carries) for v in parts if stacks[v] <= read)

    def _rows(self, number: int, loop: Value, free: Mapping[Value, int]
              ) -> Iterator[tuple[Value, int, int]]:
        """The memory that a loop may write over: the buffer, its bytes for an iteration, and the
        number of the kernel of an iteration that reads it last."""
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
        """Whether only loops read a stack, each iteration the part that an iteration has stored."""
        for k in self.readers.get(v, ()):
            [loop, *_] = self.regions[k].members
            if self.regions[k].kind != "loop" or loop.args.count(v) != 1:
                return False
            body: Body = loop.attrs["body"]
            sequences = arguments(body, loop.args)[1]
            if v not in sequences or body.trip_count != v.args[0].attrs["body"].trip_count:
                return False
        return True


def row_bytes(stack: Value, align: int) -> int:
    """The bytes from one iteration's part of a stack to the next, if it has a separate buffer."""
    body: Body = stack.args[0].attrs["body"]
    out = body.outs[stack.attrs["index"] - len(body.carries)]
    return row_elements(out, align) * out.dtype.bytes


def is_stack(v: Value) -> bool:
    """Whether a value is a result of a loop with a part for every iteration, stored anywhere:
    a loop that may end early stores no parts of the iterations after."""
    if v.op.kind != "result" or v.args[0].op.kind != "loop":
        return False
    body: Body = v.args[0].attrs["body"]
    return body.proceed is None and v.attrs["index"] >= len(body.carries)
