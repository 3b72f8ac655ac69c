"""How a product reads the rows of its left operand in place. They may be windows of an image."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ztorch.graph.value import Value
from ztorch.lower.index import Index, Quotient, Remainder, Var
from ztorch.lower.positions import flatten
from ztorch.lower.region import is_view, view_key, view_of
from ztorch.lower.tuning import ACCESS_PATTERNS_KEPT, K_UNROLL, TILE_ROWS_MAX, UNROLL_WHOLE


@dataclass(frozen=True)
class Run:
    """Adjacent tiles of equal size along one axis."""

    start: int  # of the first tile
    size: int  # of each tile
    count: int  # tiles in a period
    repeats: int = 1  # periods
    period: int = 0  # rows from one period to the next

    @property
    def tiles(self) -> int:
        return self.count * self.repeats


@dataclass(frozen=True)
class AccessPattern:
    """How a product can read its left operand in place."""

    depths: tuple[int, ...]  # extents of the loops along k, outermost first; positions are affine
    even: tuple[int, ...]  # tile heights for which all tiles have the same row offsets
    period: int  # rows with a constant stride, such as those of one row of an image
    elements: int  # elements in memory; fewer than the rows have if windows overlap
    shift: int = 0  # steps along k after which a row reads the next row's element; 0: never
    row_step: int = 0  # elements in memory from one row to the next; 0: unknown

    @property
    def heights(self) -> tuple[int, ...]:
        """The heights that a tile can have."""
        return tuple(sorted({*self.even, *range(1, min(self.period, TILE_ROWS_MAX) + 1)}))

    def shared_registers(self, rows: int) -> int:
        """Registers for elements of A that several rows of a tile read in one iteration of the k
        loop: LLVM loads them once and keeps them. On Zen 3, a convolution of 3x3 windows from 3
        channels to 64 takes 190 us with tiles of 4 rows and 2 vectors, and 340 us with 6 rows,
        which leave no registers for these elements."""
        return rows - 1 if 0 < self.shift < steps_per_iteration(self.depths, K_UNROLL) else 0

    def runs(self, m: int, size: int) -> tuple[Run, ...]:
        """The m rows in tiles of at most `size` rows, as equal as possible."""
        if self.period == m:
            return split(m, size)
        if size in self.even:
            return equal_runs(m, size)
        return tuple(replace(run, repeats=m // self.period, period=self.period)
                     for run in split(self.period, size))


def plain(m: int, k: int) -> AccessPattern:
    """The access pattern of rows with one constant stride."""
    return AccessPattern((k,), (), m, m * k)


# By the key of the views. Networks repeat their layers.
_access_patterns: dict[tuple, AccessPattern | None] = {}


def access_pattern(left: Value) -> AccessPattern | None:
    """The access pattern of the rows of a matrix, which may be windows of an image; None if it has
    to be copied."""
    if not is_view(left):
        return replace(plain(*left.shape[-2:]), row_step=left.shape[-1])
    key = view_key(left)
    if key not in _access_patterns:
        if len(_access_patterns) == ACCESS_PATTERNS_KEPT:
            _access_patterns.clear()
        _access_patterns[key] = _access_pattern(left)
    return _access_patterns[key]


def _access_pattern(left: Value) -> AccessPattern | None:
    *batch, m, k = left.shape
    where = [Index.of(Var(f"b{a}", n)) for a, n in enumerate(batch)]
    depths = _depths(left, [*where, Index.of(Var("m", m))], [k])
    if depths is None:
        return None
    loops = [Var(f"k{a}", n) for a, n in enumerate(depths)]
    along = flatten([Index.of(v) for v in loops], depths)
    base = view_of(left, (*where, Index.of(Var("m", m)), along))
    even = tuple(h for h in range(1, min(m, TILE_ROWS_MAX) + 1) if _even(left, where, h, along))
    period = _period(left, where, along)
    row, step = _distances(left, where, period, along, loops[-1])
    shift = row // step if step > 0 and row > 0 and row % step == 0 else 0
    return AccessPattern(depths, even, period, min(m * k, base[0].size if base else 1), shift,
                         max(0, row))


def _distances(left: Value, where: list[Index], period: int, along: Index,
               depth: Var) -> tuple[int, int]:
    """The elements from one row to the next, and from one step of the innermost k loop to the
    next."""
    again, inside = Var("t", left.shape[-2] // period), Var("r", period)
    base = view_of(left, (*where, Index.of(again) * period + Index.of(inside), along))
    return (base[1].factor(inside), base[1].factor(depth)) if base else (0, 0)


def steps_per_iteration(depths: tuple[int, ...], unroll: int) -> int:
    """Steps along k in one iteration of the innermost loop. A short innermost loop is unrolled
    completely."""
    return depths[-1] if len(depths) > 1 and depths[-1] <= UNROLL_WHOLE * unroll else unroll


def _depths(left: Value, at: list[Index], sizes: list[int]) -> tuple[int, ...] | None:
    """The extents of loops along k for which positions are affine: the outermost is split wherever
    a quotient or remainder of it occurs. None if no split is enough."""
    loops = [Var(f"k{a}", n) for a, n in enumerate(sizes)]
    base = view_of(left, (*at, flatten([Index.of(v) for v in loops], sizes)))
    if base is None:
        return tuple(sizes)
    parts = [a for a in base[1].parts if a.inner.mentions(loops[0])]
    if not parts:
        return None if any(a.inner.mentions(v) for a in base[1].parts for v in loops) else (
            tuple(sizes))
    inside = [*parts, *(b for a in parts for b in a.inner.parts)]
    units = {a.by for a in inside} | {sizes[0] // a.by for a in inside}
    for unit in sorted(units, reverse=True):
        if 1 < unit < sizes[0] and sizes[0] % unit == 0:
            deeper = _depths(left, at, [sizes[0] // unit, unit, *sizes[1:]])
            if deeper is not None:
                return deeper
    return None


def _even(left: Value, where: list[Index], height: int, along: Index) -> bool:
    """Whether all tiles of a height have the same row offsets."""
    tile, row = Var("t", left.shape[-2] // height), Var("r", height)
    base = view_of(left, (*where, Index.of(tile) * height + Index.of(row), along))
    return base is None or not any(
        a.inner.mentions(row) and not _only(a.inner, row) for a in base[1].parts)


def _period(left: Value, where: list[Index], along: Index) -> int:
    """The largest number of rows with a constant stride, from every multiple of it on."""
    m = left.shape[-2]
    row = Var("m", m)
    base = view_of(left, (*where, Index.of(row), along))
    units, pending = {m}, list(base[1].parts) if base else []
    while pending:
        part = pending.pop()
        pending += part.inner.parts
        units.add(part.by // math.gcd(part.by, part.inner.factor(row) or 1))
    for rows in sorted(units, reverse=True):
        again, inside = Var("t", m // rows), Var("r", rows)
        at = Index.of(again) * rows + Index.of(inside)
        base = view_of(left, (*where, at, along)) if m % rows == 0 else None
        if base is not None and not any(a.inner.mentions(inside) for a in base[1].parts):
            return rows
    return m if base is None and units == {m} else 1


def _only(index: Index, var: Var) -> bool:
    """Whether an index depends on nothing but one variable."""
    return all(a == var or (isinstance(a, (Quotient, Remainder)) and _only(a.inner, var))
               for a, _ in index.terms)


def split(total: int, most: int) -> tuple[Run, ...]:
    """As few tiles as possible, as equal as possible.

    >>> [(run.start, run.size, run.count) for run in split(64, 14)]
    [(0, 13, 4), (52, 12, 1)]
    """
    tiles = math.ceil(total / most)
    size = math.ceil(total / tiles)
    large = total - tiles * (size - 1)
    runs = [Run(0, size, large), Run(large * size, size - 1, tiles - large)]
    return tuple(r for r in runs if r.count and r.size)


def equal_runs(total: int, size: int) -> tuple[Run, ...]:
    """Tiles of one size, and a smaller last one for the rest."""
    blocks = total // size
    runs = [Run(0, size, blocks), Run(blocks * size, total - blocks * size, 1)]
    return tuple(r for r in runs if r.count and r.size)


def in_halves(runs: tuple[Run, ...], total: int) -> tuple[Run, ...]:
    """The same tiles, except that both halves of all rows have as many of each size, so that two
    workers have half of the rows each. Runs that cannot be halved stay as they are.

    >>> [(run.start, run.size, run.count, run.repeats) for run in in_halves(split(64, 11), 64)]
    [(0, 11, 2, 2), (22, 10, 1, 2)]
    """
    if len(runs) == 1 or total % 2 or any(run.count % 2 or run.repeats > 1 for run in runs):
        return runs
    halves, start = [], 0
    for run in runs:
        halves.append(Run(start, run.size, run.count // 2, 2, total // 2))
        start += run.size * run.count // 2
    return tuple(halves)
