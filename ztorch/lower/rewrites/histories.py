"""States of loops that are kept for every iteration, as rows of one array.

    rows       0          1          2         ...   T
    state      initial    after 0    after 1   ...   after T-1
               <---- before each iteration ---->
                          <---- after each iteration ----->

Such a state has no separate buffer: an iteration reads it from one row and writes the next state to
the following row. The last value, and the stacks of states before and after each iteration, are
views of the array. A reversed loop begins at the last row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ztorch.graph.body import Body
from ztorch.graph.value import Value
from ztorch.lower.region import Region

Views = Mapping[int, tuple[int, bool]]  # by out: its carry, and whether it is the next state


def row_elements(v: Value, align: int) -> int:
    """The stride of a stack in elements, from one iteration's part to the next; parts are aligned.

    >>> from ztorch.graph.op import leaf
    >>> row_elements(leaf("slice", "x", (3, 5), "float32"), 64)
    16
    """
    step = align // math.gcd(align, v.dtype.bytes)
    return -(-v.size // step) * step


def state_outs(body: Body) -> Views:
    """The outs of a body that are the state before or after the iteration. A loop that may exit
    early has none, since its last row is not known in advance."""
    if body.proceed is not None:
        return {}
    states = {v: (k, True) for k, v in enumerate(body.news) if v.op.kind != "leaf"}
    states |= {c: (k, False) for k, c in enumerate(body.carries) if body.news[k] is not c}
    return {k: states[v] for k, v in enumerate(body.outs) if v in states}


def carry_of(result: Value) -> int | None:
    """The number of the carry whose buffer contains a result of a loop; None if it has its own."""
    body: Body = result.args[0].attrs["body"]
    index, count = result.attrs["index"], len(body.carries)
    if index < count:
        return index
    return state_outs(body).get(index - count, (None,))[0]


def row_steps(body: Body, align: int) -> dict[int, int]:
    """For each carry whose states are rows of an array, the bytes from the row that an iteration
    reads to the row that it writes."""
    carries = dict.fromkeys(carry for carry, _ in state_outs(body).values())
    sign = -1 if body.reverse else 1
    return {k: sign * row_elements(body.carries[k], align) * body.carries[k].dtype.bytes
            for k in carries}


class Histories:
    """The arrays of states of all loops among some regions. The first value of a carry represents
    its array.

    Args:
        regions: The regions of the program.
        align: Bytes that each row is aligned to.
    """

    def __init__(self, regions: Sequence[Region], align: int):
        self.sizes: dict[Value, int] = {}  # of arrays, in bytes
        self._starts: dict[Value, int] = {}  # where a value begins in its array, in bytes
        for region in regions:
            if region.kind == "loop":
                self._add(region, align)

    def _add(self, region: Region, align: int) -> None:
        loop = region.members[0]
        body: Body = loop.attrs["body"]
        steps, views = row_steps(body, align), state_outs(body)
        for k, step in steps.items():
            self.sizes[loop.args[k]] = abs(step) * (body.trip_count + 1)
            self._starts[loop.args[k]] = max(-step, 0) * body.trip_count
        for v in region.members[1:]:
            index = v.attrs["index"]
            if index in steps:  # the last value
                self._starts[v] = max(steps[index], 0) * body.trip_count
            elif (view := views.get(index - len(body.carries))) is not None:
                carry, after = view
                self._starts[v] = max(steps[carry] if after else -steps[carry], 0)

    def part(self, v: Value, buffer: Any) -> Any:
        """The location of a value in a buffer: one row, all rows but one, or the whole buffer."""
        if v not in self._starts:
            return buffer
        return replace(buffer, offset=buffer.offset + self._starts[v], size=v.nbytes)
