"""Chooses tiles, patches and stages of convolutions whose workgroups have roles."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ztorch.dtypes import f16
from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.ring_rules import MAX_AXES, MAX_BOX
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid import mma
from ztorch.lower.grid.parts import IN_PARTS
from ztorch.lower.grid.patches import REPEAT, Patch, WindowTile
from ztorch.lower.grid.role_tiles import clustered, fitting, refusal_cluster, refusal_team
from ztorch.lower.grid.window_axes import WindowAxes, windows_of
from ztorch.lower.index import Var
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ROLES_STAGES_LEAST,
    ROLES_STAGES_MOST,
    WINDOW_COLUMNS,
    WINDOW_DEPTHS,
    WINDOW_ROWS_TRIED,
    WINDOW_STRIP_LINES,
)


@dataclass(frozen=True, repr=False)
class GridWindowsSchedule(Schedule):
    """A convolution whose workgroups have roles and compute several tiles."""

    kind = "grid_windows"
    tile_rows: int  # rows of a workgroup
    tile_columns: int  # columns of a workgroup
    stages: int  # strips in shared memory at once
    epilogue_bands: int  # parts of a tile that pass through shared memory one after another
    cluster_rows: int  # workgroups below one another, which share strips of the right operand
    cluster_columns: int  # workgroups beside one another, which share strips of the left operand
    taps: int  # positions of a window that read the same strip of the left operand
    patch: tuple[int, ...]  # of positions, along each axis of the images

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}windows"


def cut_of(product: Value, limits: Limits) -> tuple[MmaShape, WindowAxes] | None:
    """The shape of the machine's matrix instructions, and both operands as boxes; None if there is
    no such shape, or both operands are plain matrices."""
    grid = limits.grid
    if grid is None or not (grid.tile_copies and grid.asynchronous_products):
        return None
    shape = mma.shape_for(product, limits)
    able = shape and (shape.split if product.op is IN_PARTS else shape.of.bits == f16.bits)
    if shape is None or not able or any(x.dtype != shape.of for x in product.args):
        return None
    w = windows_of(product)
    plain = w is not None and all(len(parts) == 1 for parts in (w.m, w.n, w.k))
    if w is None or plain or any(len(x.axes) > MAX_AXES for x in w.operands):
        return None
    return shape, w


def tile_of(s: GridWindowsSchedule, shape: MmaShape, w: WindowAxes, grid: GridLimits) -> WindowTile:
    deep, line = w.contiguous[0], SWIZZLE_LINE // shape.of.bytes
    tap = w.tap() if s.taps > 1 else None
    sizes = dict(zip(w.spatial, s.patch, strict=True))
    if tap:  # its lines are consecutive
        sizes = {tap[1]: sizes.pop(tap[1]), **sizes}
    patch = Patch(sizes, tap[0] if tap else None, tap[2] if tap else 0)
    tile = WindowTile(s.tile_rows, s.tile_columns, patch.positions if deep else line, shape,
                      grid.subgroup, s.stages, s.epilogue_bands, s.cluster_rows, s.cluster_columns,
                      patch, deep)
    return tile.padded(grid)


def propose(region: Region, limits: Limits) -> GridWindowsSchedule | None:
    """The tile and the patch with the least estimated time."""
    product = product_of(region)
    cut = cut_of(product, limits)
    best = estimated(product, *cut, limits) if cut else None
    return best.schedule if best else None


class Estimate(NamedTuple):
    """The best schedule of a convolution."""

    cycles: float  # of the workgroup with the most tiles
    tiles: int
    schedule: GridWindowsSchedule


def estimated(product: Value, shape: MmaShape, w: WindowAxes, limits: Limits) -> Estimate | None:
    """The schedule with the least estimated time for a product whose operands are boxes."""
    grid = limits.grid
    assert grid is not None
    n, batch = product.shape[-1], math.prod(product.shape[:-2])
    best: Estimate | None = None
    for s in _tried(w, n, shape, grid):
        tile = tile_of(s, shape, w, grid)
        if tile.used > tile.registers.more or tile.threads + tile.team_threads > grid.threads:
            continue
        along = math.ceil(n / tile.columns) * batch
        tiles = tile.down(w) * along
        if grid.compute_units > 1:
            count = functools.partial(_count, w=w, along=along)
            tile = clustered(tile, count, functools.partial(_shares, w=w, n=n), grid)
        timed = [(t.cycles(w, n, batch, grid), t) for t in fitting(tile, grid, ROLES_STAGES_MOST)]
        time, tile = min(timed, key=lambda x: x[0], default=(math.inf, tile))
        if time < (best.cycles if best else math.inf):
            best = Estimate(time, tiles, replace(
                s, stages=tile.stages, epilogue_bands=tile.bands, cluster_rows=tile.cluster_rows,
                cluster_columns=tile.cluster_columns))
    return best


def _tried(w: WindowAxes, n: int, shape: MmaShape,
           grid: GridLimits) -> Iterator[GridWindowsSchedule]:
    """All tiles, each with the best patches of each size. A tile has one patch, or one for each
    team or for a few teams."""
    lined = w.contiguous[0] and shape.split
    tap, team = None if lined else w.tap(), shape.m * WARPGROUP
    for taps in sorted({1, tap[0].extent if tap else 1}, reverse=True):
        alone = (taps * team,) if w.contiguous[0] and taps > 1 else WINDOW_ROWS_TRIED
        for rows in alone:
            if w.contiguous[0]:
                patches = iter([_lined(w, shape)]) if lined else _divided(w.spatial)
            else:
                patches = itertools.chain.from_iterable(
                    _powers(w.spatial, rows // n) for n in range(1, rows // team + 1)
                    if rows % (n * team) == 0)
            schedules = (GridWindowsSchedule(rows, team, ROLES_STAGES_LEAST, 1, 1, 1, taps, patch)
                    for patch in patches)
            tiles = ((tile_of(s, shape, w, grid).patch, s) for s in schedules
                     if not _refusal(tile_of(s, shape, w, grid), w))
            yield from (replace(s, tile_columns=c) for s in _best(tiles)
                        for c in WINDOW_COLUMNS if c == WINDOW_COLUMNS[-1] or c < 2 * n)


def _best(tiles: Iterable[tuple[Patch, GridWindowsSchedule]]) -> Iterator[GridWindowsSchedule]:
    """Those whose patches cover all positions with the fewest lines, and with the fewest patches,
    of each size."""
    sizes: dict[int, list[tuple[int, int, GridWindowsSchedule]]] = {}
    for patch, s in tiles:
        lines = patch.lines + patch.positions + WINDOW_STRIP_LINES
        sizes.setdefault(patch.positions, []).append((patch.count, lines, s))
    for group in sizes.values():
        yield from {min(group, key=lambda x: x[0] * x[1])[2]: None,
                    min(group, key=lambda x: x[:2])[2]: None}


def _powers(parts: Sequence[Var], size: int) -> Iterator[tuple[int, ...]]:
    """Patches of this many positions, which may extend over the edges."""
    first, *others = parts
    if not others:
        yield from [(size,)] if size <= MAX_BOX else []
        return
    for n in (d for d in range(1, size + 1) if size % d == 0 and d < 2 * first.extent):
        for rest in _powers(others, size // n):
            yield n, *rest


def _divided(parts: Sequence[Var]) -> Iterator[tuple[int, ...]]:
    """Patches that divide all positions, with as many positions as strips are deep."""
    divisors = [[d for d in range(1, min(v.extent, MAX_BOX) + 1) if v.extent % d == 0]
                for v in parts]
    low, high = WINDOW_DEPTHS
    yield from (p for p in itertools.product(*divisors) if low <= math.prod(p) <= high)


def _lined(w: WindowAxes, shape: MmaShape) -> tuple[int, ...]:
    """The patch that is one line of both operands."""
    return (*[1] * (len(w.k) - 1), SWIZZLE_LINE // shape.of.bytes)


def _count(tile: WindowTile, w: WindowAxes, along: int) -> int:
    """The number of tiles, of which `along` are beside one another or in other products."""
    return tile.down(w) * along


def _shares(tile: WindowTile, w: WindowAxes, n: int) -> bool:
    """Whether all tiles of n columns can be assigned to clusters, and each workgroup has whole
    lines of both strips to copy."""
    line, cluster = SWIZZLE_LINE // tile.shape.of.bytes, tile.cluster_rows
    if tile.down(w) % cluster or math.ceil(n / tile.columns) % tile.cluster_columns:
        return False
    if tile.cluster_columns > 1 and not tile.panels_shared and tile.shared_part is None:
        return False
    if not w.contiguous[1]:
        return tile.columns % (cluster * REPEAT) == 0
    if tile.columns // line % cluster == 0:
        return True
    lines = tile.patch.sizes[w.k[-1]] if tile.deep else tile.depth
    together = not tile.deep or (lines == tile.depth and tile.patch.tap is None)
    return together and lines % (cluster * REPEAT) == 0


def _refusal(tile: WindowTile, w: WindowAxes) -> str:
    """Why positions cannot be cut into these patches; empty if they can."""
    patch, line, team = tile.patch, SWIZZLE_LINE // tile.shape.of.bytes, tile.shape.m * WARPGROUP
    if max(*patch.sizes.values(), patch.sizes[patch.outermost] + patch.reach) > MAX_BOX:
        return f"patch(...): a box has at most {MAX_BOX} elements along an axis"
    if patch.taps > 1 and patch.shift % REPEAT:
        return f"taps({patch.taps}): they are {patch.shift} lines apart, no multiple of {REPEAT}"
    if tile.deep:
        if any(v.extent % n for v, n in patch.sizes.items()):
            return "patch(...) must divide the positions"
        if patch.lines % REPEAT or tile.depth % tile.shape.k:
            return f"patch(...) must have a multiple of {tile.shape.k} positions"
        if tile.shape.split and (*patch.sizes.values(),) != _lined(w, tile.shape):
            return f"patch(...) must be {line} positions along the last axis"
        if patch.taps > 1 and tile.rows != patch.taps * line:
            return f"tile(rows=...) must be {patch.taps * line} with {patch.taps} taps"
        return ""
    if patch.positions != tile.rows and (tile.rows % patch.positions or patch.positions % team):
        return f"patch(...) must have tile(rows=...) positions, or some that teams of {team} share"
    return ""


def refusal(s: GridWindowsSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    product = product_of(region)
    cut = cut_of(product, limits)
    if cut is None:
        return "this target has no copies of tiles, or an operand cannot be copied in boxes"
    assert limits.grid is not None
    shape, w = cut
    if len(s.patch) != len(w.spatial) or min(s.patch) < 1:
        return f"patch(...) must have {len(w.spatial)} sizes"
    tap = w.tap()
    if s.taps not in (1, tap[0].extent if tap else 1):
        return f"taps({s.taps}) must be 1{f' or {tap[0].extent}' if tap else ''}"
    tile = tile_of(s, shape, w, limits.grid)
    if why := _refusal(tile, w) or refusal_team(tile, limits):
        return why
    if why := refusal_cluster(tile, _shares(tile, w, product.shape[-1])):
        return why
    if s.stages > ROLES_STAGES_MOST or s.stages < ROLES_STAGES_LEAST:
        return f"stages({s.stages}) must be {ROLES_STAGES_LEAST} to {ROLES_STAGES_MOST}"
    return ""
