"""The loop nests of Winograd convolutions on a processor: transforms of kernels and tiles, and the
inverse transform of products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.elements import lanes_refusal
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, multiply_add, spread, vectors
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.winograd import AT_POINTS, KIND, POINTS, RESULTS, TILE, TILES, WINDOW
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import TRANSFORM_FAR, TRANSFORM_NEAR

_P, _Q = Fraction(TRANSFORM_NEAR), Fraction(TRANSFORM_FAR)  # the points: 0, +-P, +-Q, infinity


def _matrix(rows: Sequence[Sequence[Fraction | int]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in rows)


def _kernel_rows() -> Iterator[tuple[Fraction | int, ...]]:
    """The rows that evaluate a kernel at each point, divided by the product of the distances to the
    other points."""
    finite = (0, _P, -_P, _Q, -_Q)
    for p in finite:
        scale = 1 / math.prod((Fraction(p) - q for q in finite if q != p), start=Fraction(1))
        yield scale, scale * p, scale * p * p
    yield 0, 0, 1


# The transforms along one axis: of a kernel, of a tile, and the inverse transform of products.
_KERNEL = _matrix([*_kernel_rows()])
_TILE = _matrix([
    (_P ** 2 * _Q ** 2, 0, -_P ** 2 - _Q ** 2, 0, 1, 0),
    *((0, -s * a * b ** 2, -b ** 2, s * a, 1, 0)
      for a, b in ((_P, _Q), (_Q, _P)) for s in (1, -1)),
    (0, _P ** 2 * _Q ** 2, 0, -_P ** 2 - _Q ** 2, 0, 1)])
_RESULT = _matrix([(int(k == 0), *(p ** k for p in (_P, -_P, _Q, -_Q)), int(k == RESULTS - 1))
                   for k in range(RESULTS)])


@dataclass(frozen=True, repr=False)
class WinogradSchedule(Schedule):
    """A transform of a Winograd convolution on a processor."""

    kind = KIND
    lanes: int  # channels computed at once

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}"


def _main(region: Region) -> Value:
    """The transform that a region is built around."""
    return next(v for v in region.members if v.op.kind == KIND)


def propose(region: Region, limits: Limits) -> WinogradSchedule:
    """All lanes."""
    return WinogradSchedule(limits.lanes(_main(region).dtype))


def refusal(s: WinogradSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    return lanes_refusal(s.lanes, limits.lanes(_main(region).dtype))


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: WinogradSchedule) -> None:
    """One transform. Workers share the channels of a kernel, or the tiles."""
    v, e = _main(region), Emitter(b, memory, members=region.flat)
    if v.op is AT_POINTS:
        _kernel(e, v, target[v], limits, s.lanes)
    elif v.op is TILES:
        _ImageTiles(v, target[v], limits, s.lanes).emit(e)
    else:
        _Results(region, v, target, limits, s.lanes).emit(e)


def _kernel(e: Emitter, v: Value, memory: str, limits: Limits, lanes: int) -> None:
    """The transform of a kernel."""
    [kernel] = v.args
    channel, column = Var("c", kernel.shape[0] // WINDOW ** 2), Var("f", v.shape[-1])
    with e.b.loop(0, channel.extent, kind="parallel") as r:
        for scope, _ in vectors(e.within(bound={channel: r}), column, lanes):
            at = [[scope.element(kernel, (Index.of(channel) + (i * WINDOW + j) * channel.extent,
                                          Index.of(column))) for j in range(WINDOW)]
                  for i in range(WINDOW)]
            _store_points(scope, v, memory, _both_axes(scope.b, limits, _KERNEL, at),
                          (Index.of(channel), Index.of(column)))


class _ImageTiles:
    """The transform of the tiles of an image."""

    def __init__(self, v: Value, memory: str, limits: Limits, lanes: int):
        self.v, self.memory, self.limits = v, memory, limits
        self.lanes = lanes if v.shape[-1] > 1 else 1
        [self.image] = v.args
        self.tile = [Var("n", self.image.shape[0]), Var("y", v.attrs["down"]),
                     Var("x", v.attrs["across"])]
        self.n, *places = (Index.of(a) for a in self.tile)
        # The first row and column of a tile, in the image.
        self.first = [i * RESULTS - low for i, low in zip(places, v.attrs["low"], strict=True)]
        self.sides = self.image.shape[1:-1]
        self.column = Var("c", v.shape[-1])

    def emit(self, e: Emitter) -> None:
        """All tiles. Tiles that cross the border are first copied to a small local array, with
        zeros outside the image."""
        b, places = e.b, range(TILE)
        local = b.memory("tile", self.v.dtype, POINTS * self.lanes, "local", "rw")
        with b.loop(0, math.prod(a.extent for a in self.tile), kind="parallel") as t:
            scope = e.within(bound=spread(e, t, self.tile))
            inside = self._inside(scope)
            with b.if_(inside):
                if min(self.sides) >= TILE:  # else no tile is inside
                    for one in self._vectors(scope):
                        self._transform(one, [[self._element(one, i, j) for j in places]
                                              for i in places])
            with b.if_(b.not_(inside)):
                for one in self._vectors(scope):
                    self._copy(one, local)
                    self._transform(one, [[b.load(local, 0, (i * TILE + j) * self.lanes, self.lanes)
                                           for j in places] for i in places])

    def _vectors(self, e: Emitter) -> Iterator[Emitter]:
        return (scope for scope, _ in vectors(e.within(), self.column, self.lanes))

    def _element(self, e: Emitter, i: Index | int, j: Index | int) -> Operand:
        y, x = self.first
        return e.element(self.image, (self.n, y + i, x + j, Index.of(self.column)))

    def _transform(self, e: Emitter, elements: Sequence[Sequence[Operand]]) -> None:
        number = flatten([Index.of(a) for a in self.tile], [a.extent for a in self.tile])
        _store_points(e, self.v, self.memory, _both_axes(e.b, self.limits, _TILE, elements),
                      (number, Index.of(self.column)))

    def _copy(self, e: Emitter, local: str) -> None:
        """The part of the image in a tile, and zeros around it."""
        b, loops = e.b, [Var("i", TILE), Var("j", TILE)]
        zeros = b.splat(b.const(0.0, self.v.dtype), self.lanes)
        for k in range(POINTS):
            b.store(local, 0, zeros, off=k * self.lanes)
        (low, high), (left, right) = (
            (b.max(b.sub(0, first), 0), b.min(b.sub(n, first), TILE))
            for first, n in zip((e.value(i) for i in self.first), self.sides, strict=True))
        with b.loop(low, high) as i, b.loop(left, right) as j:
            one = e.within(bound={**e.bound, **dict(zip(loops, (i, j), strict=True))})
            x = self._element(one, *(Index.of(a) for a in loops))
            b.store(local, b.mul(b.add(b.mul(i, TILE), j), self.lanes), x)

    def _inside(self, e: Emitter) -> Operand:
        """Whether a tile is entirely inside the image."""
        b = e.b
        inside: Operand = b.const(int(min(self.sides) >= TILE), boolean)
        for i, n in zip(self.first, self.sides, strict=True):
            if i.range[0] < 0:
                inside = b.and_(inside, b.ge(e.value(i), 0))
            if i.range[1] + TILE > n:
                inside = b.and_(inside, b.le(e.value(i), n - TILE))
        return inside


def _store_points(e: Emitter, v: Value, memory: str, values: Sequence[Sequence[Operand]],
                  index: tuple[Index, ...]) -> None:
    for k, x in enumerate(x for line in values for x in line):
        e.store(memory, v, flatten((Index(const=k), *index), v.shape), x)


class _Results:
    """The inverse transform of products, with the epilogue of each result."""

    def __init__(self, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
                 lanes: int):
        self.region, self.v, self.target = region, v, target
        self.limits, self.lanes = limits, lanes
        batch, *sides, filters = v.shape
        down, across = (math.ceil(n / RESULTS) for n in sides)
        self.tile = [Var("n", batch), Var("y", down), Var("x", across)]
        self.column = Var("f", filters)
        self.inside = [Var("i", RESULTS), Var("j", RESULTS)]

    def emit(self, e: Emitter) -> None:
        """All tiles. The results of a tile are stored to a small local array, and a loop over those
        inside the image applies the epilogue."""
        b, [products], (down, across) = e.b, self.v.args, self.inside
        n, y, x, i, j, f = (Index.of(a) for a in (*self.tile, down, across, self.column))
        number = flatten((n, y, x), [a.extent for a in self.tile])
        at = flatten((n, y * RESULTS + i, x * RESULTS + j, f), self.v.shape)
        array = b.memory("results", self.v.dtype, RESULTS ** 2 * self.lanes, "local", "rw")
        with b.loop(0, math.prod(a.extent for a in self.tile), kind="parallel") as t:
            bound = spread(e, t, self.tile)
            ends = [self._within(e, bound[a], n) for a, n in zip(
                self.tile[1:], self.v.shape[1:], strict=False)]
            for scope, _ in vectors(e.within(bound=bound), self.column, self.lanes):
                points = [scope.element(products, (Index(const=k), number, f))
                          for k in range(POINTS)]
                lines = [points[k:k + TILE] for k in range(0, POINTS, TILE)]
                results = _both_axes(b, self.limits, _RESULT, lines)
                for k, result in enumerate(r for line in results for r in line):
                    b.store(array, 0, result, off=k * self.lanes)
                with b.loop(0, ends[0]) as row, b.loop(0, ends[1]) as column:
                    one = scope.within(bound={**scope.bound, down: row, across: column})
                    where = b.mul(b.add(b.mul(row, RESULTS), column), self.lanes)
                    one.here[self.v] = b.load(array, where, lanes=self.lanes)
                    evaluate(one, self.region.members, self.region, {self.region.outer: at},
                             self.target)

    def _within(self, e: Emitter, tile: Operand, size: int) -> Operand | int:
        """The number of results of a tile that are inside an axis."""
        if size % RESULTS == 0:
            return RESULTS
        return e.b.min(e.b.sub(size, e.b.mul(tile, RESULTS)), RESULTS)


def _both_axes(b: Builder, limits: Limits, matrix: Sequence[Sequence[float]],
               lines: Sequence[Sequence[Operand]]) -> list[list[Operand]]:
    """matrix @ lines @ transposed(matrix)."""
    columns = [_combined(b, limits, matrix, [line[j] for line in lines])
               for j in range(len(lines[0]))]
    return [_combined(b, limits, matrix, [column[i] for column in columns])
            for i in range(len(matrix))]


def _combined(b: Builder, limits: Limits, matrix: Sequence[Sequence[float]],
              xs: Sequence[Operand]) -> list[Operand]:
    """matrix @ xs. The rows of points p and -p differ only in the signs of odd terms, so both are
    computed from the same two sums, which the builder emits once."""
    return [_row(b, limits, row, xs) for row in matrix]


def _row(b: Builder, limits: Limits, row: Sequence[float], xs: Sequence[Operand]) -> Operand:
    even, odd = (_sum(b, limits, row[k::2], xs[k::2]) for k in range(2))
    if even is None or odd is None:
        x, sign = even or odd or (b.splat(b.const(0.0, xs[0].dtype), xs[0].lanes), 1)
        return x if sign > 0 else b.neg(x)
    if even[1] < 0:
        return b.sub(odd[0], even[0]) if odd[1] > 0 else b.neg(b.add(even[0], odd[0]))
    return b.add(even[0], odd[0]) if odd[1] > 0 else b.sub(even[0], odd[0])


def _sum(b: Builder, limits: Limits, factors: Sequence[float],
         xs: Sequence[Operand]) -> tuple[Operand, int] | None:
    """The sum of products up to its sign, and the sign, chosen so that the last factor is positive;
    None for no terms."""
    terms = [(f, x) for f, x in zip(factors, xs, strict=True) if f]
    if not terms:
        return None
    sign = 1 if terms[-1][0] > 0 else -1
    total: Operand | None = None
    for f, x in sorted(terms, key=lambda term: abs(term[0]) != 1):
        f *= sign
        if total is None:
            total = x if f == 1 else b.mul(x, f)
        else:
            total = multiply_add(b, limits, x, b.const(f, x.dtype), total) if limits.fma else (
                b.add(total, b.mul(x, f)))
    assert total is not None
    return total, sign
