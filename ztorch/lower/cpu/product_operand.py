"""Operands of a matrix product, as the tiles of a processor read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ztorch.graph.body import SLICE
from ztorch.graph.value import Value
from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.region import view_of


class ProductOperand:
    """An operand of a product: the elements of some rows at steps along k.

    The strides of rows and of steps along k are constants. So addresses are computed once per tile,
    not once per element."""

    def __init__(self, e: Emitter, v: Value, rows: Sequence[tuple[Index, ...]], depth: Var):
        self.e, self.v, self.rows, self.depth = e, v, rows, depth
        views = [view_of(v, index) for index in rows]
        self.bases = [base for base in views if base is not None and base[0] in e.memory
                      and not any(a.inner.mentions(depth) for a in base[1].parts)]
        self.known = len(self.bases) == len(rows)

    def at(self, row: int, step: int) -> Operand:
        if self.known:
            return self.e.load(*self._moved(row, step))
        moved = {self.depth: Index.of(self.depth) + step} if step else {}
        return self.e.element(self.v, tuple(i.replace(moved) for i in self.rows[row]))

    def prefetch(self, step: int) -> None:
        if self.known:
            self.e.prefetch(*self._moved(0, step))

    def prefetch_next_panel(self, across: Var, step: Index, bound: Mapping[Var, Operand]) -> None:
        """Prefetches a step of the next panel into the L2 cache. That of the last panel is the
        first one of the slice of the loop's next iteration, which follows in memory."""
        if not self.known:
            return
        (base, flat), b, last = self._moved(0, step), self.e.b, across.extent - 1
        bound, apart = {**self.e.bound, **bound}, Index((), flat.factor(across))
        if base.attrs.get("role") == SLICE and last:
            jump = Var("j", base.size)
            is_last = b.eq(bound[across], last)
            to_next = b.const(base.size - last * apart.const, b.index)
            bound[jump], apart = b.select(is_last, to_next, apart.const), Index.of(jump)
        self.e.within(bound=bound).prefetch(base, flat + apart, cache=2)

    def prefetch_next_rows(self, down: Var, across: Var) -> None:
        """Prefetches a step of the rows of the next tile into the L2 cache. The tiles of one row of
        tiles, one for each panel, share these rows."""
        if not self.known or down.extent == 1:
            return
        (base, flat), *others = self.bases
        apart = (others[0][1] - flat).const if others else 0
        height, b = len(self.rows), self.e.b
        rows_per_step = math.ceil(height / across.extent)
        first = Var("u", height - rows_per_step + 1)
        start = b.min(b.mul(self.e.bound[across], rows_per_step), height - rows_per_step)
        e = self.e.within(bound={**self.e.bound, first: start})
        for u in range(rows_per_step):
            e.prefetch(base, flat + flat.factor(down) + (Index.of(first) + u) * apart, cache=2)

    def prefetch_next_slice(self, across: Var, at: Operand) -> None:
        """Prefetches a line of the operand of the loop's next iteration, which follows this one in
        memory, into the L2 cache. The tiles of one row of tiles, one for each panel, share its
        steps along k.

        Args:
            across: The number of the panel.
            at: The current step along k.
        """
        if not self.known:
            return
        (base, flat), b, k = self.bases[0], self.e.b, self.v.shape[-1]
        step = Var("s", k)
        first = b.mul(self.e.bound[across], math.ceil(k / across.extent))
        bound = {step: b.min(b.add(first, b.div(at, across.extent)), k - 1)}
        e = self.e.within(bound={**self.e.bound, **bound})
        e.prefetch(base, flat.replace({self.depth: Index.of(step)}) + base.size, cache=2)

    def _moved(self, row: int, step: int | Index) -> tuple[Value, Index]:
        base, flat = self.bases[row]
        return base, flat + step * flat.factor(self.depth)
