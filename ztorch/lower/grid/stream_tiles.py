"""Chooses which tiles of a matrix product are shared between workgroups with roles (stream-K)."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid import asynchronous, mma_tiles, role_tiles
from ztorch.lower.grid.role_tiles import (
    GridRolesSchedule,
    RolesTile,
    clusters_at_once,
    cut_of,
    cut_of_product,
)
from ztorch.lower.region import Region
from ztorch.lower.tuning import (
    ASYNC_TILES,
    CHAIN_UNIT_BYTES,
    ROLES_STAGES_LEAST,
    SPLIT_START,
    STREAM_GAIN,
    STREAM_GAPS,
    STREAM_SIGNAL,
    STREAM_STRIPS,
)

MOST_CLUSTER = 2  # workgroups: not all clusters of more are known to run at once


@dataclass(frozen=True, repr=False)
class GridStreamSchedule(GridRolesSchedule):
    """A matrix product whose workgroups have roles and share tiles."""

    kind = "grid_stream"
    whole: int  # tiles of each workgroup alone; the strips of all others are divided equally

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}stream"


class Shares(NamedTuple):
    """How tiles are divided between clusters of workgroups. The tiles of a cluster count as one."""

    tiles: int  # whose strips are divided
    strips: int  # of each of them
    clusters: int
    whole: int  # further tiles of each cluster

    @property
    def all_strips(self) -> int:
        """Those that are divided."""
        return self.tiles * self.strips


class Sizes(NamedTuple):
    """What the time of a product depends on."""

    of: tuple[int, ...]  # the shape of the product
    k: int
    nbytes: int  # of an element of the product
    shape: MmaShape  # of the machine's instructions


def shares_of(s: GridStreamSchedule, tile: RolesTile, of: tuple[int, ...], k: int,
              grid: GridLimits) -> Shares:
    """As many clusters as can run at once, or as there are strips."""
    count, strips = tile.count_of(of) // tile.cluster, math.ceil(k / tile.depth)
    most = clusters_at_once(grid, tile.cluster)
    clusters = most if s.whole else min(most, count * strips)
    return Shares(count - s.whole * clusters, strips, clusters, s.whole)


def propose(region: Region, limits: Limits) -> GridStreamSchedule | None:
    """The tile that takes the least time."""
    sizes = _sizes(product_of(region), limits)
    best = None if sizes is None else _fastest(sizes, limits)
    return None if best is None or refusal(best[1], region, limits) else best[1]


def _sizes(product: Value, limits: Limits) -> Sizes | None:
    """None if this target or its instructions have no signals or no asynchronous products."""
    shape = None if _refusal_here(limits) else asynchronous.async_shape(product, limits)
    if shape is None:
        return None
    return Sizes(product.shape, product.args[0].shape[-1], product.dtype.bytes, shape)


def refusal(s: GridStreamSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    why = _refusal_here(limits) or role_tiles.refusal(s, region, limits)
    cut = cut_of(region, limits)
    if why or cut is None or limits.grid is None:
        return why
    product = product_of(region)
    tile = role_tiles.tile_of(s, cut[0], limits.grid)
    shares = shares_of(s, tile, product.shape, product.args[0].shape[-1], limits.grid)
    return _refusal_shares(s, tile, shares, limits)


def _refusal_here(limits: Limits) -> str:
    grid = limits.grid
    able = grid is not None and grid.launch_barriers and grid.mma_layout and grid.tile_copies
    return "" if able else "this target has no signals between workgroups"


def _refusal_shares(s: GridStreamSchedule, tile: RolesTile, shares: Shares, limits: Limits) -> str:
    if tile.cluster > MOST_CLUSTER:
        return f"clusters of more than {MOST_CLUSTER} workgroups may not all run at once"
    if s.whole < 0 or shares.tiles < 1:
        return f"whole({s.whole}) leaves no tile to share"
    if shares.clusters < 2 or shares.all_strips < shares.clusters:
        return "there are too few strips to share"
    if shares.tiles % shares.clusters == 0:
        return "the tiles fill whole rounds"
    if shares.all_strips * shares.clusters >= 1 << (limits.index.bits - 1):
        return f"{shares.all_strips} strips are too many to share"
    return ""


def gains(region: Region, limits: Limits) -> bool:
    """Whether shared tiles take less time than whole ones."""
    product = product_of(region)
    return _gains(product, product, 0.0, limits)


def gains_over_parts(product: Value, parts: Value, limits: Limits) -> bool:
    """Whether a product with shared tiles takes less time than products of parts of k, as a batch,
    and the kernel that adds them up."""
    grid = limits.grid
    assert grid is not None
    adding = 2 * parts.size * parts.dtype.bytes / (grid.unit.l2_bytes * grid.compute_units)
    return _gains(product, parts, adding + SPLIT_START / grid.unit.f32, limits)


def _gains(product: Value, other: Value, more: float, limits: Limits) -> bool:
    """Whether shared tiles of a product take less time than whole ones of another, and `more`."""
    sizes, others = (_sizes(v, limits) for v in (product, other))
    best = None if sizes is None else _fastest(sizes, limits)
    if best is None or others is None or best[0] >= (1 - STREAM_GAIN) * (
            more + _whole_cycles(others, limits)):
        return False
    return cut_of_product(product, limits) is not None


@functools.cache
def _whole_cycles(sizes: Sizes, limits: Limits) -> float:
    """The estimated cycles of whole tiles, round after round."""
    (*batch, m, n), k, nbytes, shape = sizes
    grid = limits.grid
    assert grid is not None
    chosen = asynchronous.choose(m, n, k, math.prod(batch), grid, shape)
    if chosen is None:
        return 0.0
    tile = role_tiles.in_clusters(chosen[1].rows, chosen[1].columns, sizes.of, k, shape, grid)
    rounds = math.ceil(tile.count_of(sizes.of) / tile.cluster / clusters_at_once(
        grid, tile.cluster))
    return _busy_cycles(tile, rounds * math.ceil(k / tile.depth), rounds, nbytes, grid)


@functools.cache
def _fastest(sizes: Sizes, limits: Limits) -> tuple[float, GridStreamSchedule] | None:
    """The estimated cycles with shared tiles, and the schedule; None where subgroups multiply
    faster than workgroups with roles."""
    (of, k, nbytes, shape), grid, best = sizes, limits.grid, None
    assert grid is not None
    *batch, m, n = of
    chosen = asynchronous.choose(m, n, k, math.prod(batch), grid, shape)
    if chosen is None or mma_tiles.choose(m, n, k, math.prod(batch), grid, shape, chosen[0]):
        return None
    for (rows, columns), cluster in itertools.product(ASYNC_TILES, range(1, MOST_CLUSTER + 1)):
        s = GridStreamSchedule(rows, columns, ROLES_STAGES_LEAST, 1, cluster, 1, 0)
        tile = role_tiles.tile_of(s, shape, grid)
        rounds = tile.count_of(of) // (cluster * clusters_at_once(grid, cluster))
        # Each workgroup has more than one shared tile then, so few tiles have more than two parts.
        s = replace(s, whole=max(0, rounds - 1))
        shares = shares_of(s, tile, of, k, grid)
        empty = tile.count_of(of) > replace(tile, cluster_rows=1).count_of(of)
        small = shares.all_strips < STREAM_STRIPS * shares.clusters
        if empty or small or _refusal_shares(s, tile, shares, limits) or (
                role_tiles.refusal_roles(tile, limits)):
            continue
        cycles = _shared_cycles(tile, shares, nbytes, grid)
        if best is None or cycles < best[0]:
            best = cycles, s, tile, shares
    if best is None:
        return None
    cycles, s, tile, shares = best
    staged = role_tiles.staged_tile(tile, grid, k, shares.tiles > shares.clusters)
    if staged is None:
        return None
    return cycles, replace(s, stages=staged.stages, epilogue_bands=staged.bands)


def _shared_cycles(tile: RolesTile, shares: Shares, nbytes: int, grid: GridLimits) -> float:
    """With shared tiles. All units are busy to the end, and then the workgroups of each tile meet.
    Parts are written to the shared cache and read from it."""
    part, size = shares.all_strips / shares.clusters, tile.rows * tile.columns * f32.bytes
    # Parts that the last tile of a workgroup lacks.
    others = max(_others(shares, n) for n in range(shares.tiles)) if part < shares.strips else 1
    meeting = others * STREAM_SIGNAL + (1 + others) * size / CHAIN_UNIT_BYTES
    strips = part + shares.whole * shares.strips
    busy = _busy_cycles(tile, strips, max(1.0, strips / shares.strips), nbytes, grid)
    return busy + meeting + STREAM_GAPS


def _others(shares: Shares, tile: int) -> int:
    """The number of workgroups that have parts of a shared tile, but not its first strip."""
    first, last = (((at + 1) * shares.clusters - 1) // shares.all_strips for at in (
        tile * shares.strips, (tile + 1) * shares.strips - 1))
    return last - first


def _busy_cycles(tile: RolesTile, strips: float, tiles: float, nbytes: int, grid: GridLimits
                 ) -> float:
    """The cycles in which a unit multiplies so many strips and finishes so many tiles, which pass
    through shared memory, or those in which the shared cache brings and takes their bytes."""
    rate = grid.unit.tf32 if tile.shape.mantissa_bits else grid.unit.products
    copied = (tile.rows / tile.cluster_columns + tile.columns / tile.cluster_rows) * (
        tile.depth * tile.shape.of.bytes)
    size = tile.rows * tile.columns
    finish = 2 * size * tile.shape.into.bytes / grid.unit.shared_bytes
    return max(strips * size * tile.depth / rate + tiles * finish,
               (strips * copied + tiles * size * nbytes) / grid.unit.l2_bytes)
