"""Symbolic indices: which element a loop nest reads, simplified before any code exists.

An Index is a sum of atoms with integer factors. Atoms are loop variables, numbers loaded at run
time, and quotients or remainders that would not simplify. Since every range is known, reshapes
that only regroup loop variables vanish, and the rest gives the stride of neighbors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

# Cached results of each function of indices: networks repeat them soon. A cache of four times the
# size made no model compile faster.
CACHE_SIZE = 1 << 12


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable: an integer in [0, extent). A `kept` variable (lanes, steps) stays in an
    index even if its extent is 1."""

    name: str
    extent: int
    kept: bool = False

    def __hash__(self) -> int:
        return hash(self.name) + self.extent

    @property
    def range(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """A number read at run time (a register of the kernel), known to be in [0, extent)."""

    operand: Any
    extent: int

    @property
    def range(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True, slots=True)
class Quotient:
    """inner // by, where it does not simplify."""

    inner: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        low, high = self.inner.range
        return low // self.by, high // self.by


@dataclass(frozen=True, slots=True)
class Remainder:
    """inner % by, where it does not simplify."""

    inner: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        return 0, self.by - 1


Atom = Var | LoadedIndex | Quotient | Remainder


class Index:
    """constant + sum of factor * atom. Never changed; a plain class, because many are made and
    looked up in dictionaries: the hash is computed once.

    >>> i, j = Index.of(Var("i", 4)), Index.of(Var("j", 6))
    >>> flat = i * 6 + j
    >>> flat // 6 == i, flat % 6 == j, flat // 12 * 2 + flat // 6 % 2 == i
    (True, True, True)
    >>> k = Index.of(Var("k", 147))
    >>> k // 3 % 7 * 3 + k % 3 == k % 21, k % 21 // 3 == k // 3 % 7
    (True, True)
    """

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...] = (), const: int = 0):
        self.terms = terms
        self.const = const
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Index):
            return NotImplemented
        return self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.terms, self.const))
        return self._hash

    def __repr__(self) -> str:
        return f"Index(terms={self.terms!r}, const={self.const!r})"

    @staticmethod
    def of(x: Index | Atom | int) -> Index:
        if isinstance(x, Index):
            return x
        if isinstance(x, int):
            return Index((), x)
        single = isinstance(x, (Var, LoadedIndex)) and x.extent == 1
        if single and not (isinstance(x, Var) and x.kept):
            return Index()  # a loop that runs once has no variable
        return Index(((x, 1),), 0)

    @property
    def range(self) -> tuple[int, int]:
        low = high = self.const
        for atom, factor in self.terms:
            a, b = atom.range
            low += min(a * factor, b * factor)
            high += max(a * factor, b * factor)
        return low, high

    def factor(self, atom: Atom) -> int:
        for a, f in self.terms:
            if a is atom or a == atom:
                return f
        return 0

    def without(self, atom: Atom) -> Index:
        """The index where the atom is zero, outside quotients and remainders."""
        return Index(tuple([t for t in self.terms if t[0] != atom]), self.const)

    def mentions(self, atom: Atom) -> bool:
        """Whether the atom occurs at all, also inside quotients and remainders."""
        for a, _ in self.terms:
            if a is atom or a == atom or (
                    isinstance(a, (Quotient, Remainder)) and a.inner.mentions(atom)):
                return True
        return False

    @property
    def parts(self) -> list[Quotient | Remainder]:
        """Its quotients and remainders."""
        return [a for a, _ in self.terms if isinstance(a, (Quotient, Remainder))]

    @property
    def is_affine(self) -> bool:
        return not self.parts

    @property
    def divisions(self) -> int:
        """The number of quotients and remainders in the index."""
        return sum(1 + a.inner.divisions for a in self.parts)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        sums: dict[Atom, int] = dict(self.terms)
        for atom, factor in other.terms:
            sums[atom] = sums.get(atom, 0) + factor
        return _merged(sums, self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def __mul__(self, k: int) -> Index:
        if k == 1:
            return self
        if k == 0:
            return Index()
        return Index(tuple([(a, f * k) for a, f in self.terms]), self.const * k)

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> Index:
        return _quotient(self, by)

    def __mod__(self, by: int) -> Index:
        return _remainder(self, by)

    def _split(self, by: int) -> tuple[Index, Index]:
        """(a, b) with self == a * by + b, b holding no multiples of `by`."""
        quotients = tuple([(a, f // by) for a, f in self.terms if f % by == 0])
        rest = tuple([(a, f) for a, f in self.terms if f % by])
        return Index(quotients, self.const // by), Index(rest, self.const % by)

    def _units(self, by: int) -> list[int]:
        """Proper divisors of `by` that are common with the factor of some term, largest first."""
        units = {math.gcd(by, f) for _, f in self.terms}
        return sorted((u for u in units if 1 < u < by), reverse=True)

    def replace(self, values: dict[Var, Index]) -> Index:
        """The index with loop variables replaced."""
        out = Index((), self.const)
        for atom, factor in self.terms:
            if isinstance(atom, Var):
                part = values.get(atom, Index.of(atom))
            elif isinstance(atom, Quotient):
                part = atom.inner.replace(values) // atom.by
            elif isinstance(atom, Remainder):
                part = atom.inner.replace(values) % atom.by
            else:
                part = Index.of(atom)
            out = out + part * factor
        return out


# A model needs few different quotients and remainders, many times each.

@functools.lru_cache(CACHE_SIZE)
def _quotient(x: Index, by: int) -> Index:
    if by == 1:
        return x
    quotient, rest = x._split(by)
    low, high = rest.range
    if low // by == high // by:
        return quotient + low // by
    for unit in rest._units(by):
        coarse, fine = rest._split(unit)
        if fine.range[0] >= 0 and fine.range[1] < unit:
            return quotient + coarse // (by // unit)
    for atom, f in rest.terms:
        if isinstance(atom, Remainder) and atom.by % by == 0 and rest == Index.of(atom):
            return quotient + atom.inner // by % (atom.by // by)
        if f == 1 and isinstance(atom, Quotient):  # (x // a + y) // b == (x + y * a) // (a * b)
            others = rest.without(atom)
            return quotient + (atom.inner + others * atom.by) // (atom.by * by)
    return quotient + Index(((Quotient(rest, by), 1),), 0)


@functools.lru_cache(CACHE_SIZE)
def _remainder(x: Index, by: int) -> Index:
    if by == 1:
        return Index()
    _, rest = x._split(by)
    low, high = rest.range
    if low // by == high // by:
        return rest - low // by * by
    for unit in rest._units(by):
        coarse, fine = rest._split(unit)
        if fine.range[0] >= 0 and fine.range[1] < unit:
            return coarse % (by // unit) * unit + fine
    if len(rest.terms) == 1:
        atom, f = rest.terms[0]
        if f == 1 and isinstance(atom, Remainder) and atom.by % by == 0:
            return (atom.inner + rest.const) % by
    return Index(((Remainder(rest, by), 1),), 0)


def _merged(sums: dict[Atom, int], const: int) -> Index:
    """An index of terms in a fixed order, with x // d * d + x % d simplified to x, and
    x // d % e * d + x % d to x % (d * e)."""
    for atom in [a for a in sums if isinstance(a, Remainder)]:
        f = sums[atom]
        quotient = atom.inner // atom.by
        if f and quotient.terms and all(
                sums.get(a, 0) == f * atom.by * g for a, g in quotient.terms):
            for a in (atom, *(a for a, _ in quotient.terms)):
                del sums[a]
            for a, g in atom.inner.terms:
                sums[a] = sums.get(a, 0) + g * f
            return _merged(sums, const + (atom.inner.const - quotient.const * atom.by) * f)
        single = f and len(quotient.terms) == 1 and not quotient.const
        coarse = quotient.terms[0][0] if single else None
        if isinstance(coarse, Quotient) and quotient.terms[0][1] == 1:  # the digit above
            above = next((a for a, g in sums.items() if isinstance(a, Remainder)
                          and a.inner == quotient and g == f * atom.by), None)
            if above is not None:
                del sums[atom], sums[above]
                return _merged(sums, const) + atom.inner % (atom.by * above.by) * f
    terms = [(a, f) for a, f in sums.items() if f]
    return Index(tuple(sorted(terms, key=_order)) if len(terms) > 1 else tuple(terms), const)


def _order(term: tuple[Atom, int]) -> tuple[str, str]:
    return _name(term[0])


@functools.lru_cache(CACHE_SIZE)
def _name(atom: Atom) -> tuple[str, str]:
    """The key by which atoms are sorted: the same in every run."""
    return type(atom).__name__, repr(atom)
