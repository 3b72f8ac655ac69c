"""The gradient of a loop in less memory: segments of iterations run again.

The forward loop keeps only the states where segments begin. The loop that goes back takes one
segment of iterations at a time: it runs their forward iterations again, keeps the values that their
gradients read, and goes back through them. The numbers are the same, and so are the groups in which
they are added (`loop_totals.py`), so results keep every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from ztorch.graph.body import Body, carry_leaf, iterations_of, slice_leaf, with_own_leaves
from ztorch.graph.loop_gradient import Backward
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Value, topological

MIN_TRIP_COUNT = 4  # the shortest loop that is split into segments
Results = tuple[list[Value], list[Value]]  # last values of carries, stacks
Loop = Callable[..., Results]  # makes a loop: body, first values, sequences, ahead=
Parts = Mapping[Value, Value]  # sequences: the segment's part of each

_active: ContextVar[bool] = ContextVar("loops in segments", default=False)


@contextmanager
def loops_in_segments() -> Iterator[None]:
    """Within a `with` block, gradients of loops are those of this module."""
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def segment_size(body: Body) -> int | None:
    """The iterations of a segment, for a loop whose gradient is asked to save memory; else None."""
    if body.segment is not None:
        return body.segment if body.segment < body.trip_count else None
    if not _active.get() or body.trip_count < MIN_TRIP_COUNT or body.recompute or (
            body.proceed is not None):
        return None
    return root_of(body.trip_count)


def root_of(trip_count: int) -> int:
    """The iterations of a segment that take the least memory.

    These are a segment and the states at the ends of all segments, so there are as many segments as
    iterations in each. A number that divides the iterations needs less code.
    """
    root = math.isqrt(trip_count - 1) + 1
    return next((n for n in range(root, 2 * root) if trip_count % n == 0), root)


class Segments:
    """The loop that goes back through the segments of another one."""

    def __init__(self, backward: Backward, iteration: Body, loop: Loop):
        """`iteration` is the body of the loop that would go back through all iterations."""
        self.backward, self.iteration, self.loop = backward, iteration, loop
        self.totals = backward.totals
        # Of several groups, each segment adds its own to the long sums, so their stacks can go.
        self.adds = self.totals.has_groups
        read = backward.read_by_slopes if self.adds else self.totals.read
        self.known, forward = dict(backward.slices), backward.body
        for v, value in backward.again.items():
            # A single sum reads states where the forward loop has them.
            if not self.adds and value in forward.carries:
                self.known[v] = backward.states[forward.carries.index(value)]
        self.kept = [v for v in read if v not in self.known]
        shared = dict(zip(forward.shared, backward.shared, strict=True))
        again = replace(forward, outs=tuple(backward.again.values()), shared=(), again=True)
        again = again.with_roots(substituted(again.roots, shared))
        used = set(topological(again.roots))
        sequences = dict(zip(forward.slices, backward.sequences, strict=True))
        self.sequences = {s: x for s, x in sequences.items() if s in used}
        self.again = replace(again, slices=tuple(self.sequences))

    def slopes(self, inits: Sequence[Value], size: int) -> tuple[Value | None, ...]:
        """The gradients of the forward loop's arguments, in segments, and one of the iterations
        that remain.

        Args:
            inits: First values of the carries of the loop that goes back.
            size: The iterations of a segment, which are made whole groups.
        """
        trip_count = self.backward.body.trip_count
        states = list(inits)
        if self.adds:
            size = min(size + -size % self.totals.group, trip_count)
            states += self.totals.firsts()
        main = trip_count - trip_count % size
        others = (main, trip_count) if main < trip_count else None
        rest: list[Value] = []
        if others and self.iteration.reverse:
            states, rest = self._rest(states, *others)
        states, stacks = self._main(states, main, size)
        if others and not self.iteration.reverse:
            states, rest = self._rest(states, *others)
        if rest:
            stacks = [OPS.concat(a, b, axis=0) for a, b in zip(stacks, rest, strict=True)]
        known = {**self.known, **dict(zip(self.kept, stacks, strict=True))}
        return self.backward.slopes(states[:len(inits)], known,
                                    self.totals.whole(states[len(inits):]) if self.adds else None)

    def _main(self, inits: Sequence[Value], trip_count: int, size: int) -> Results:
        """A loop over segments of equal size."""
        count = trip_count // size
        carries = [carry_leaf(v, k) for k, v in enumerate(inits)]
        rows = {x: OPS.reshape(iterations_of(x, 0, trip_count), (count, size, *x.shape[1:]))
                for x in self._read()}
        first = size - 1 if self.backward.body.reverse else 0
        starts = {x: iterations_of(x, first, first + trip_count - size + 1, size)
                  for x in self.backward.states if x is not None}
        slices = [slice_leaf(x, k) for k, x in enumerate((*rows.values(), *starts.values()))]
        parts = dict(zip(rows, slices, strict=False))
        begin = dict(zip(starts, slices[len(rows):], strict=True))
        last, stacks = self._segment(carries, parts, begin, size)
        body = Body(count, self.iteration.reverse, tuple(carries), tuple(slices), (), tuple(last),
                    tuple(stacks))
        last, stacks = self.loop(body, inits, [*rows.values(), *starts.values()], ahead=False)
        return last, [OPS.reshape(y, (trip_count, *y.shape[2:])) for y in stacks]

    def _rest(self, inits: Sequence[Value], start: int, end: int) -> Results:
        """One segment."""
        first = end - 1 if self.backward.body.reverse else start
        begin = {x: OPS.reshape(iterations_of(x, first, first + 1), x.shape[1:])
                 for x in self.backward.states if x is not None}
        return self._segment(inits, {x: iterations_of(x, start, end) for x in self._read()}, begin,
                             end - start)

    def _read(self) -> list[Value]:
        """The sequences of which a segment reads its part."""
        return list(dict.fromkeys([*self.sequences.values(), *self.backward.slices.values()]))

    def _segment(self, inits: Sequence[Value], rows: Parts, begin: Parts,
                 trip_count: int) -> Results:
        """Forward through the iterations of a segment, and back."""
        backward = self.backward
        states = [v if x is None else begin[x]
                  for v, x in zip(backward.inits, backward.states, strict=True)]
        _, values = self.loop(with_own_leaves(replace(self.again, trip_count=trip_count)), states,
                              [rows[x] for x in self.sequences.values()], ahead=self.again.ahead)
        stacks = {s: rows[x] for s, x in backward.slices.items()}
        stacks |= zip(backward.again, values, strict=True)
        segment = with_own_leaves(replace(self.iteration, trip_count=trip_count))
        count = len(segment.carries)
        last, outs = self.loop(segment, inits[:count], [stacks[s] for s in self.iteration.slices])
        stacks |= zip(self.iteration.outs, outs, strict=True)
        totals = self.totals.added(inits[count:], stacks, trip_count) if self.adds else []
        return [*last, *totals], [stacks[v] for v in self.kept]
