"""The tiles of matrix products whose threads multiply, and their estimated times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.epilogue import Block
from ztorch.lower.tuning import (
    FEW_ROWS_TILES,
    GRID_TILE_START,
    GRID_TILES,
    READ_COST,
    SCHEDULED_THREADS,
    STRIP_COST,
    STRIP_PADDING,
    STRIP_WAIT,
    TEAM_DEPTH,
    TEAMS_MOST,
    TEAMS_THREADS,
)
from ztorch.machines.unit_rates import UnitRates


@dataclass(frozen=True)
class Tile(Block):
    """The schedule of a product: a workgroup's tile, its depth, and a thread's part of it."""

    thread_rows: int  # rows of a thread, adjacent
    thread_columns: int  # columns of a thread, interleaved with those of other threads
    bands: int = 1  # in which the finished tile passes through shared memory
    teams: int = 1  # groups of threads that divide the depth of a strip

    @property
    def across(self) -> int:
        return self.columns // self.thread_columns

    @property
    def team(self) -> int:
        """Threads of a team. Each team covers the whole tile."""
        return self.rows // self.thread_rows * self.across

    @property
    def threads(self) -> int:
        return self.team * self.teams

    def step_time(self, tiles: int, unit: UnitRates) -> float:
        """The estimated time of a unit with some tiles for a step along k of each, in
        multiply-adds: that in which instructions start, that of shared memory, or that of one
        thread, whichever is longest."""
        reads = 1 / self.thread_rows + 1 / self.thread_columns
        copies = 1 / self.rows + 1 / self.columns
        start, shared = (read * reads + copy * copies for read, copy in zip(
            READ_COST, STRIP_COST, strict=True))
        shared *= unit.f32 / unit.shared_bytes
        threads = math.ceil(tiles * self.threads / SCHEDULED_THREADS) * SCHEDULED_THREADS
        products = self.thread_rows * self.thread_columns
        share, (load, change) = self.depth // self.teams, STRIP_WAIT
        alone = (max(load, share * products * (1 + start)) + change) / share
        return max(threads * products * max(1 + start, shared), unit.f32 * alone)

    def vectors(self, most: int) -> tuple[int, int]:
        """Neighbors that a thread reads at once from the strip of either operand."""
        return math.gcd(self.thread_rows, most), math.gcd(self.thread_columns, most)

    def shared(self, element: int, has_epilogue: bool) -> int:
        """Bytes of shared memory; with an epilogue the finished tile passes through it as well."""
        strips = (self.rows + self.columns) * self.depth + STRIP_PADDING * self.depth
        size = self.rows * self.columns
        band = size // self.bands if has_epilogue else 0
        return element * (strips + (self.teams - 1) * size + band)

    def banded(self, shared_bytes: int, element: int, has_epilogue: bool) -> Tile:
        """The tile with the fewest bands that fit in shared memory."""
        tiles = (replace(self, bands=n) for n in range(1, self.thread_rows + 1)
                 if self.thread_rows % n == 0)
        return next((t for t in tiles if t.shared(element, has_epilogue) <= shared_bytes), self)


TILES = tuple(Tile(*sizes) for sizes in GRID_TILES)
WIDE_TILES = tuple(Tile(*sizes) for sizes in FEW_ROWS_TILES)


def estimate(m: int, n: int, k: int, batch: int, grid: GridLimits, element: int,
             has_epilogue: bool) -> tuple[float, Tile]:
    """The tile with the least estimated time, in sequential multiply-adds of one thread. This
    includes discarded work at the edges, idle units, and loads from shared memory. The time is
    infinite, and the tile is the smallest, if the device has room for none.

    >>> estimate(4096, 4096, 4096, 1, GridLimits(), 4, False)[1]
    Tile(rows=128, columns=128, depth=8, thread_rows=8, thread_columns=8, bands=1, teams=1)
    """
    best = math.inf, TILES[-1]
    for tile in (*_wide_tiles(m), *TILES):
        tile = tile.banded(grid.declared_shared_bytes, element, has_epilogue)
        if tile.threads > grid.threads or tile.shared(element, has_epilogue) > grid.shared_bytes:
            continue
        tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns) * batch
        if tiles <= grid.compute_units:
            tile = _in_teams(tile, k, grid, element, has_epilogue)
        step = tile.step_time(math.ceil(tiles / grid.compute_units), grid.unit)
        time = step * (k + GRID_TILE_START) / tile.teams
        if time < best[0]:
            best = time, tile
    return best


def _wide_tiles(m: int) -> list[Tile]:
    """The smallest tile for few rows that covers all of them, so B is read once."""
    return [tile for tile in WIDE_TILES if tile.rows >= m][:1]


def _in_teams(tile: Tile, k: int, grid: GridLimits, element: int, has_epilogue: bool) -> Tile:
    """The tile with as many teams as its depth and the machine allow, where a compute unit has one
    tile: with one team, threads wait for memory at each step."""
    teams = TEAMS_MOST
    while teams > 1:
        depth = teams * TEAM_DEPTH
        more = replace(tile, depth=depth, teams=teams)
        if (depth <= k and more.threads <= min(TEAMS_THREADS, grid.threads)
                and more.shared(element, has_epilogue) <= grid.declared_shared_bytes):
            return more
        teams //= 2
    return tile
