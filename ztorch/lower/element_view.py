"""What the body of an op sees while an element of its result is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ztorch.dtypes import boolean, i32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.index import Atom, Index, LoadedIndex, Var


class EmissionScope(Protocol):
    """What a view needs of the scope of emission that it is made by."""

    b: Builder
    bound: dict[Var, Operand]
    lane: Var | None
    borderless: bool
    ahead: Mapping[Atom, int]

    def element(self, v: Value, index: Sequence[Index], where: Operand | None = None) -> Operand:
        """v at an index."""

    def value(self, index: Index) -> Operand:
        """The value of an index."""


@dataclass
class ElementView:
    """The arguments of the value that is emitted, and operations on indices."""

    e: EmissionScope
    v: Value
    where: Operand | None

    @property
    def b(self) -> Builder:
        return self.e.b

    @property
    def count(self) -> int:
        return len(self.v.args)

    @property
    def zero(self) -> Index:
        return Index()

    def shape(self, k: int) -> tuple[int, ...]:
        return self.v.args[k].shape

    def read(self, k: int, index: Sequence[Index | int], where: Operand | None = None) -> Operand:
        at = tuple(Index.of(i) for i in index)
        if where is not None:  # elsewhere nothing is read
            at = tuple(map(self._inside, at, self.v.args[k].shape))
        if where is not None and self.where is not None:
            where = self.b.and_(where, self.where)
        return self.e.element(self.v.args[k], at, self.where if where is None else where)

    def _inside(self, at: Index, extent: int) -> Index:
        """An index that is a loop variable, as one that ends where the argument does: its quotients
        and remainders simplify then."""
        e = self.e
        (atom, factor), *others = at.terms or ((None, 0),)
        if others or at.const or factor != 1 or not isinstance(atom, Var) or (
                atom.extent <= extent or atom == e.lane or extent == 1 or atom in e.ahead):
            return at
        inside = Var(atom.name, extent)
        e.bound[inside] = e.bound[atom]
        return Index.of(inside)

    def value(self, index: Index) -> Operand:
        return self.e.value(index)

    def index(self, operand: Operand, extent: int) -> Index:
        """A number loaded at run time as an index, clamped to [0, extent)."""
        b = self.b
        short = operand.dtype == i32 and extent.bit_length() < i32.bits  # twice the lanes
        number = operand if short else b.cast(operand, dtype=b.index)
        clamped = b.cast(b.max(b.min(number, extent - 1), 0), dtype=b.index)
        return Index.of(LoadedIndex(clamped, extent))

    def within(self, index: Sequence[Index], low: Sequence[int],
               high: Sequence[int]) -> Operand | None:
        """Whether low <= index < high on every axis; None if that is certain."""
        b, out = self.b, None
        for i, a, z in zip(index, low, high, strict=True):
            least, most = i.range
            if most < a or least >= z:
                return b.const(0, boolean)
            if self.e.borderless:
                continue
            tests = []
            if least < a:
                tests.append(b.ge(self.e.value(i), a))
            if most >= z:
                tests.append(b.lt(self.e.value(i), z))
            for t in tests:
                out = t if out is None else b.and_(out, t)
        return out
