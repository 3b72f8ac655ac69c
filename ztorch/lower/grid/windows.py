"""Convolutions whose workgroups have roles and compute several tiles. The thread that copies takes
patches of positions as boxes, straight from the images. A box that extends over the border is
filled with zeros, so no padded copy is ever made. Where a window has several positions along the
outermost axis of a patch, a strip extends over all of them, and the products of each position
start further down in the same strip.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.patches import WindowTile
from ztorch.lower.grid.roles import Corner, Raster, RolesNest, member_of
from ztorch.lower.grid.strips import Strip
from ztorch.lower.grid.window_axes import Boxed, Parts, WindowAxes
from ztorch.lower.index import Index, Quotient, Remainder, Var
from ztorch.lower.region import Region

Place = dict[Var, Operand]  # the start of strips, by part


class WindowsNest(RolesNest):
    """The tiles of a workgroup."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: WindowTile, windows: WindowAxes,
                 tiles: Raster):
        self.cut, self.patch, self.windows = tile, tile.patch, windows
        self.line = SWIZZLE_LINE // tile.shape.of.bytes
        super().__init__(b, region, product, memory, target, limits, tile, None, tiles)
        self.count = tile.strips(windows)

    def lay_out(self) -> None:
        tile, line = self.cut, self.line
        lines = (self.patch.lines, tile.columns if self.along_k(1) else tile.depth)
        sizes = tile.left_lines * line, tile.repeats * tile.right_size
        for side, (count, size) in enumerate(zip(lines, sizes, strict=True)):
            name = self.b.memory(f"strip_{'ab'[side]}", self.of, self.stages * size, "shared",
                                 "rw", swizzled=True)
            self.strips.append(Strip(name, line, self.along_k(side), size, count * line))

    def along_k(self, side: int) -> bool:
        return self.windows.operands[side].inner == self.windows.k[-1]

    # -- products --------------------------------------------------------------------------------

    def start_products(self, stage: Operand, team: Operand, sums: list[Operand]) -> None:
        """Starts the products of the strips of a stage, for all positions of a window that it has.
        """
        b, tile, (left, right) = self.b, self.cut, self.strips
        shift = self.patch.shift * self.line
        index = b.add(b.mul(stage, left.size), self.part_of(team))
        other = b.mul(stage, right.size)
        panel = right.panel if tile.columns > self.line else 0
        b.mma_fence()
        for place in range(tile.repeats):
            for d in range(0, tile.depth, tile.shape.k):
                b.mma_async(
                    left.name, index, right.name, other, sums,
                    off=place * shift + (d if left.along_k else d * left.pitch),
                    transposed=not left.along_k,
                    source_off=place * tile.right_size + (
                        d if right.along_k else d * right.pitch),
                    source_transposed=right.along_k, panel=panel)
        b.mma_commit()

    def part_of(self, team: Operand) -> Operand:
        """Where the rows of a team start in a strip of the left operand."""
        b, tile, panel = self.b, self.cut, self.strips[0].panel
        rows = tile.shape.m * WARPGROUP
        if tile.deep:
            panels = rows // self.line  # of a team
            return b.mul(team, self.patch.shift * self.line if self.patch.tap else panels * panel)
        teams = self.patch.positions // rows  # of a patch
        if tile.patches == 1:
            return b.mul(team, rows * self.line)
        return b.add(b.mul(b.div(team, teams), panel),
                     b.mul(b.rem(team, teams), rows * self.line))

    # -- copies ----------------------------------------------------------------------------------

    @contextmanager
    def along_strips(self, corner: Corner) -> Iterator[tuple[list[Place], Place]]:
        """The start of each strip of a tile, by part: the rows of each patch, and all others."""
        b, tile, w = self.b, self.cut, self.windows
        batch_number, down, left = corner
        rows = [self._rows_at(b.add(b.mul(down, tile.patches), n)) for n in range(tile.patches)]
        place: Place = {w.batch: batch_number, **_digits(b, left, _sizes(w.n))}
        sizes = self.patch.sizes if tile.deep else dict.fromkeys(w.k[:-1], 1) | {
            w.k[-1]: tile.depth}
        with ExitStack() as loops:
            for v, size in sizes.items():
                if v == self.patch.tap:
                    place[v] = b.const(0, b.index)
                    continue
                count = math.ceil(v.extent / size)
                at = loops.enter_context(b.loop(0, count)) if count > 1 else b.const(0, b.index)
                place[v] = b.mul(at, size)
            yield rows, place

    def _rows_at(self, down: Operand) -> Place:
        """The start of a patch, or of a deep tile, along m, by part."""
        b, tile, w = self.b, self.cut, self.windows
        if not tile.deep:
            sizes = {v: math.ceil(v.extent / n) for v, n in self.patch.sizes.items()}
            at = _digits(b, down, sizes)
            return {v: b.mul(x, self.patch.sizes[v]) for v, x in at.items()}
        if self.patch.tap is None:
            return _digits(b, b.mul(down, tile.rows), _sizes(w.m))
        others = {v: v.extent for v in w.m if v != self.patch.tap}
        others[w.m[-1]] //= self.line
        at = _digits(b, down, others)
        at[w.m[-1]] = b.mul(at[w.m[-1]], self.line)
        return {**at, self.patch.tap: b.const(0, b.index)}

    def copy_strips(self, g: Operand, places: tuple[list[Place], Place], stage: Operand) -> None:
        b, tile, w = self.b, self.cut, self.windows
        (left, right), far, (rows, place) = w.operands, self.strips[1], places
        down, along = member_of(b, tile, g)
        self._copy_left(left, along, rows, place, stage)
        for number in range(tile.repeats):
            at = dict(place)
            if self.patch.tap and not tile.deep:
                at[self.patch.tap] = b.const(number, b.index)
            for part, source in enumerate(w.parts):
                x = replace(right, source=source)
                begin = b.add(b.mul(stage, far.size),
                              number * tile.right_size + part * tile.columns * tile.depth)
                self._copy_right(x, down, at, begin, stage)

    def _copy_left(self, left: Boxed, rank: Operand, rows: list[Place], place: Place,
                   stage: Operand) -> None:
        """Copies the workgroup's share of a strip of the left operand to those that share it:
        panels, or lines of each."""
        b, tile, w, near = self.b, self.cut, self.windows, self.strips[0]
        sharing, panels, lines = tile.sharing(0), tile.left_panels, self.patch.box_lines
        inner = w.m[-1] if tile.deep else w.k[-1]
        starts, to = [place | start for start in rows], b.mul(stage, near.size)
        if sharing[0] > 1 and tile.panels_shared:
            panels //= sharing[0]
            first = b.mul(rank, panels)
            starts = [at | _moved(b, at, w.m, b.mul(first, self.line)) for at in starts]
            to = b.add(to, b.mul(first, near.panel))
        elif sharing[0] > 1:
            assert tile.shared_part is not None
            v, lines[v] = tile.shared_part
            starts = [at | {v: b.add(at[v], b.mul(rank, lines[v]))} for at in starts]
            to = b.add(to, b.mul(rank, math.prod(lines.values()) * self.line))
        if tile.deep:
            starts += [starts[0] | _moved(b, starts[0], w.m, n * self.line)
                       for n in range(1, panels)]
        for n, at in enumerate(starts):
            self._copy_box(left, {inner: self.line, **lines}, at, near.name,
                           b.add(to, n * near.panel), stage, *sharing)

    def _copy_right(self, right: Boxed, rank: Operand, place: Place, begin: Operand,
                    stage: Operand) -> None:
        """The same of the right operand."""
        b, tile, w, far = self.b, self.cut, self.windows, self.strips[1]
        column, (cluster, apart) = w.n[-1], tile.sharing(1)
        if far.along_k:
            share = tile.columns // cluster
            first = b.mul(rank, share)
            self._copy_box(right, {w.k[-1]: self.line, column: share},
                           {**place, column: b.add(place[column], first)}, far.name,
                           b.add(begin, b.mul(first, self.line)), stage, cluster, apart)
            return
        panels = tile.columns // self.line
        lines = dict(self.patch.sizes) if tile.deep else {w.k[-1]: tile.depth}
        at, to = dict(place), begin
        if panels % cluster:  # each copies lines of every panel
            lines[w.k[-1]] //= cluster
            first = b.mul(rank, lines[w.k[-1]])
            at[w.k[-1]], to = b.add(place[w.k[-1]], first), b.add(begin, b.mul(first, self.line))
        else:
            panels //= cluster
            first = b.mul(rank, panels)
            at |= _moved(b, place, w.n, b.mul(first, self.line))
            to = b.add(begin, b.mul(first, far.panel))
        for n in range(panels):
            self._copy_box(right, {column: self.line, **lines},
                           at | _moved(b, at, w.n, n * self.line), far.name,
                           b.add(to, n * far.panel), stage, cluster, apart)

    def _copy_box(self, x: Boxed, sizes: Mapping[Var, int], place: Place, to: str, index: Operand,
                  stage: Operand, cluster: int = 1, apart: int = 1) -> None:
        """Copies a box: `sizes` along the inner axis, and then of lines, the outermost first."""
        b = self.b
        inner, *lines = sizes
        rest = list(x.axes[1:])
        axes, box = [x.axes[0]], [sizes[inner]]
        for v in reversed(lines):
            axis = x.axis_of(v)
            if axis is not None:
                axes.append(axis)
                box.append(sizes[v])
                rest.remove(axis)
        axes, box = [*axes, *rest], [*box, *[1] * len(rest)]
        b.copy_tile(to, index, self.memory[x.source], [_value(b, a.at, place) for a in axes],
                    [a.extent for a in axes], [a.pitch for a in axes], box, self.full, stage,
                    source_off=x.first, cluster=cluster, apart=apart)

    # -- rows ------------------------------------------------------------------------------------

    @property
    def rows_whole(self) -> bool:
        if self.cut.deep:
            return self.m % self.cut.rows == 0
        return not (self._ragged or any(v.extent % n for v, n in self.patch.sizes.items()))

    @property
    def _ragged(self) -> bool:
        """Whether the last tiles have patches behind the last position."""
        return self.cut.down(self.windows) * self.cut.patches > self.patch.count

    def row_at(self, first: Operand, line: Operand) -> Operand:
        b, tile, w = self.b, self.cut, self.windows
        if tile.deep and self.patch.tap is None:
            return b.add(b.mul(first, tile.rows), line)
        inside = {self.patch.tap: self.patch.taps, w.m[-1]: self.line} if tile.deep else (
            self.patch.sizes)
        if tile.patches > 1:
            first = b.add(b.mul(first, tile.patches), b.div(line, self.patch.positions))
            line = b.rem(line, self.patch.positions)
        start = self._rows_at(first)
        at = _digits(b, line, {v: n for v, n in inside.items() if v is not None})
        at = {v: b.add(start[v], at[v]) if v in at else start[v] for v in w.m}
        row = _number(b, at, w.m)
        if self.rows_whole or tile.deep:
            return row
        tests = [b.lt(at[v], v.extent) for v, n in self.patch.sizes.items()
                 if v.extent % n or (self._ragged and v == self.patch.outermost)]
        return b.select(functools.reduce(b.and_, tests), row, self.m)


def _sizes(parts: Parts) -> dict[Var, int]:
    return {v: v.extent for v in parts}


def _moved(b: Builder, place: Place, parts: Parts, by: Operand | int) -> Place:
    """A position along a dimension, moved by some elements."""
    return _digits(b, b.add(_number(b, place, parts), by), _sizes(parts))


def _digits(b: Builder, number: Operand, sizes: Mapping[Var, int]) -> Place:
    """A number as digits, the most significant first."""
    digits: Place = {}
    first, *others = sizes
    for v in reversed(others):
        digits[v] = b.rem(number, sizes[v])
        number = b.div(number, sizes[v])
    return {first: number, **digits}


def _number(b: Builder, digits: Place, parts: Parts) -> Operand:
    """The number with these digits."""
    total = b.const(0, b.index)
    for v in parts:
        total = b.add(b.mul(total, v.extent), digits[v])
    return total


def _value(b: Builder, at: Index, place: Place) -> Operand:
    total = b.const(at.const, b.index)
    for atom, factor in at.terms:
        if isinstance(atom, Var):
            x = place[atom]
        else:
            assert isinstance(atom, (Quotient, Remainder)) and atom.inner.range[0] >= 0
            divide = b.div if isinstance(atom, Quotient) else b.rem
            x = divide(_value(b, atom.inner, place), atom.by)
        total = b.add(total, b.mul(x, factor))
    return total
