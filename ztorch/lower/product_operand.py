"""Operands of a matrix product, as the tiles of a processor read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.graph.value import Value
from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.region import view_of


class ProductOperand:
    """An operand of the product: elements of some rows, at steps along k.

    The distance between rows is known, and each step along k adds a constant. So positions are
    computed once for a tile, not once for an element."""

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

    def prefetch_beside(self, across: Var, step: Index, bound: Mapping[Var, Operand]) -> None:
        """Have a step of the next panel brought into the second cache."""
        if self.known:
            base, flat = self._moved(0, step)
            e = self.e.within(bound={**self.e.bound, **bound})
            e.prefetch(base, flat + flat.factor(across), cache=2)

    def _moved(self, row: int, step: int | Index) -> tuple[Value, Index]:
        base, flat = self.bases[row]
        return base, flat + step * flat.factor(self.depth)
