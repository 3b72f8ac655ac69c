"""Chooses tiles, stages and clusters of matrix products whose workgroups have roles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ztorch.dtypes import f16
from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE, SWIZZLE_REPEAT, WARPGROUP, MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.product_rules import CHUNK
from ztorch.ir.ring_rules import MOST_REGISTERS, REGISTERS, registers_of
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid import asynchronous
from ztorch.lower.grid.asynchronous import AsyncTile
from ztorch.lower.grid.boxes import Boxes, boxes_of
from ztorch.lower.grid.tiles import propose_async_of, refusal_tile
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    CLUSTERS,
    CONSUMER_REGISTERS,
    GPC_UNITS,
    MMA_PADDING,
    PRODUCER_REGISTERS,
    ROLES_FEW_STRIPS,
    ROLES_STAGES_ENOUGH,
    ROLES_STAGES_LEAST,
    ROLES_STAGES_MOST,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, repr=False)
class GridRolesSchedule(Schedule):
    """A matrix product whose workgroups have roles and stay for several tiles."""

    kind = "grid_roles"
    tile_rows: int  # rows of a workgroup
    tile_columns: int  # columns of a workgroup
    stages: int  # strips in shared memory at once
    epilogue_bands: int  # parts of a tile that pass through shared memory one after another
    cluster_rows: int  # workgroups below one another, which share strips of the right operand
    cluster_columns: int  # workgroups beside one another, which share strips of the left operand

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}roles"


@dataclass(frozen=True)
class RolesTile(AsyncTile):
    """A tile; its `threads` are those that multiply."""

    cluster_rows: int = 1
    cluster_columns: int = 1

    @property
    def cluster(self) -> int:
        return self.cluster_rows * self.cluster_columns

    def count_of(self, product: tuple[int, ...]) -> int:
        """The number of tiles of a product of a shape, with empty ones of the last clusters."""
        *batch, m, n = product
        down, along = self.cluster_rows, self.cluster_columns
        return (math.prod(batch) * math.ceil(m / self.rows / down) * down
                * math.ceil(n / self.columns / along) * along)

    def sharing(self, side: int) -> tuple[int, int]:
        """How many workgroups share a strip of an operand, and the distance of their numbers."""
        below, beside = self.cluster_rows, self.cluster_columns
        return (below, beside if below > 1 else 1) if side else (beside, 1)

    @property
    def teams(self) -> int:
        """The number of warpgroups that multiply."""
        return self.rows // (self.shape.m * WARPGROUP)

    @property
    def team_threads(self) -> int:
        return self.subgroup * WARPGROUP

    @property
    def shared(self) -> int:
        return super().shared + 2 * self.stages * CHUNK  # barriers take less, but are aligned

    def padded(self, grid: GridLimits) -> Self:
        """The same with half of the padding where it fits so alone."""
        return self if self.shared <= grid.shared_bytes else replace(self, padding=MMA_PADDING // 2)

    @property
    def used(self) -> int:
        """Registers of a thread that multiplies."""
        return self.columns // 2 + CONSUMER_REGISTERS

    @property
    def registers(self) -> TeamRegisters:
        return TeamRegisters(self.teams, self.team_threads)


Staged = TypeVar("Staged", bound=RolesTile)


@dataclass(frozen=True)
class TeamRegisters:
    """Registers of the threads of a workgroup in which one warpgroup copies and others multiply.

    >>> r = TeamRegisters(teams=2, threads=128)
    >>> r.first, r.fewer, r.more, r.moved(150), r.moved(200)
    (168, 40, 232, False, True)
    """

    teams: int  # warpgroups that multiply
    threads: int  # of a warpgroup
    fewer: int = PRODUCER_REGISTERS  # of a thread that copies, where it gives some up

    @property
    def first(self) -> int:
        """Of every thread when it starts."""
        return registers_of(self.threads * (self.teams + 1))

    @property
    def more(self) -> int:
        """Of a thread that multiplies then; one that asked for more would wait forever."""
        most = self.first + (self.first - self.fewer) // self.teams
        return max(n for n in REGISTERS if n <= min(most, MOST_REGISTERS))

    def moved(self, used: int) -> bool:
        """Whether threads that multiply need some of those that copy."""
        return used > self.first


def tile_of(s: GridRolesSchedule, shape: MmaShape, grid: GridLimits) -> RolesTile:
    depth = SWIZZLE_LINE // shape.of.bytes
    return RolesTile(s.tile_rows, s.tile_columns, depth, shape, grid.subgroup, s.stages,
                     s.epilogue_bands, s.cluster_rows, s.cluster_columns).padded(grid)


def cut_of(region: Region, limits: Limits) -> tuple[MmaShape, tuple[Boxes, Boxes]] | None:
    """The shape in which a machine multiplies, and both operands as boxes; None if it cannot."""
    return cut_of_product(product_of(region), limits)


def cut_of_product(product: Value, limits: Limits
                   ) -> tuple[MmaShape, tuple[Boxes, Boxes]] | None:
    """The same of a product alone."""
    grid = limits.grid
    assert grid is not None
    shape = asynchronous.async_shape(product, limits) if grid.tile_copies else None
    if shape is None:
        return None
    left, right = (boxes_of(product, side) for side in (0, 1))
    if left is None or right is None or {left.source.dtype, right.source.dtype} != {shape.of}:
        return None
    if shape.of.bits != f16.bits and not (left.along_k and right.along_k):
        return None
    return shape, (left, right)


def propose(region: Region, limits: Limits) -> GridRolesSchedule | None:
    """The tile for asynchronous products, with as many stages as fit."""
    cut = cut_of(region, limits)
    like = propose_async_of(cut[0], region, limits) if cut else None
    if cut is None or like is None:
        return None
    product, grid = product_of(region), limits.grid
    assert grid is not None
    rows, columns = like.tile_rows, like.tile_columns
    k = product.args[0].shape[-1]
    tile = in_clusters(rows, columns, product.shape, k, cut[0], grid)
    several = tile.count_of(product.shape) > grid.compute_units  # tiles of a workgroup
    staged = staged_tile(tile, grid, k, several)
    return None if staged is None else GridRolesSchedule(
        rows, columns, staged.stages, staged.bands, tile.cluster_rows, tile.cluster_columns)


def in_clusters(rows: int, columns: int, of: tuple[int, ...], k: int, shape: MmaShape,
                grid: GridLimits) -> RolesTile:
    """A tile of a product of a shape in the best clusters, with the fewest stages."""
    tile = tile_of(GridRolesSchedule(rows, columns, ROLES_STAGES_LEAST, 1, 1, 1), shape, grid)
    if grid.compute_units == 1 or k <= tile.depth:  # one strip waits for its epilogue anyway
        return tile
    return clustered(tile, lambda t: t.count_of(of), can_share, grid)


def clustered(tile: Staged, count: Callable[[Staged], int], shares: Callable[[Staged], bool],
              grid: GridLimits) -> Staged:
    """The same in the clusters that read the fewest bytes from the shared cache, of those that can
    share strips and take no more rounds than workgroups alone. `count` is the number of tiles, with
    empty ones of the last clusters."""
    def rounds(t: Staged) -> int:
        return math.ceil(count(t) / (t.cluster * clusters_at_once(grid, t.cluster)))

    clusters = [replace(tile, cluster_rows=down, cluster_columns=along) for down, along in CLUSTERS]
    fit = [t for t in clusters if rounds(t) <= rounds(tile) or (
        t.cluster == 2 and count(t) == count(tile))]
    return min(filter(shares, fit), default=tile,
               key=lambda t: t.rows / t.cluster_columns + t.columns / t.cluster_rows)


def clusters_at_once(grid: GridLimits, cluster: int) -> int:
    """How many clusters run at once: units are in parts of a chip of at least GPC_UNITS each, and
    a cluster is in one of them.

    >>> from ztorch.codegen.targets import target
    >>> [clusters_at_once(target("cuda:sm_90a").limits.grid, n) for n in (1, 2, 4)]
    [132, 66, 32]
    """
    if GPC_UNITS % cluster or cluster <= 2:
        return max(1, grid.compute_units // cluster)
    return max(1, grid.compute_units // GPC_UNITS * (GPC_UNITS // cluster))


def can_share(tile: RolesTile) -> bool:
    """Whether each workgroup of a cluster has whole panels of a strip to copy, or lines of them.
    One panel is not worth sharing."""
    repeat = SWIZZLE_REPEAT // SWIZZLE_LINE
    return all(cluster == 1 or (length > tile.depth and not (
        tile.depth % (cluster * repeat) or length % (cluster * repeat)))
        for cluster, length in ((tile.cluster_rows, tile.columns),
                                (tile.cluster_columns, tile.rows)))


class StripBox(NamedTuple):
    """A box of a strip. Each workgroup of a cluster copies a box at another position."""

    begin: int  # its position along the tile for the first workgroup
    distance: int  # the distance from one workgroup to the next
    distance_along_k: int  # the distance along k
    lines: int  # of swizzled memory


def shares_of(length: int, tile: RolesTile, cluster: int, along_k: bool) -> list[StripBox]:
    """The boxes that a workgroup copies of a strip: whole panels if their number can be shared
    out, or else lines of each."""
    panel, part = tile.depth, length // cluster
    if along_k:
        return [StripBox(0, part, 0, part)]
    if length % (panel * cluster) == 0:
        return [StripBox(n, part, 0, panel) for n in range(0, part, panel)]
    return [StripBox(n, 0, panel // cluster, panel // cluster) for n in range(0, length, panel)]


def staged_tile(tile: RolesTile, grid: GridLimits, k: int, several: bool) -> RolesTile | None:
    """The same with as many stages, and then as few bands, as fit: a unit has one workgroup. With
    several tiles of few strips, their ends count: two bands come first, beside enough stages."""
    few = several and k <= ROLES_FEW_STRIPS * tile.depth
    tiles = [*fitting(tile, grid, 2 * math.ceil(k / tile.depth))]
    enough = [t for t in tiles if t.stages >= ROLES_STAGES_ENOUGH] if few else []
    return min(enough, key=lambda t: (max(t.bands, 2), -t.stages), default=next(iter(tiles), None))


def fitting(tile: Staged, grid: GridLimits, stages: int) -> Iterator[Staged]:
    """The same with every number of stages and bands that fits, the most stages first."""
    most = max(ROLES_STAGES_LEAST, min(ROLES_STAGES_MOST, stages))
    return (t for n, m in itertools.product(range(most, ROLES_STAGES_LEAST - 1, -1), tile.cuts)
            if (t := replace(tile, stages=n, bands=m, padding=MMA_PADDING).padded(grid)).shared
            <= grid.shared_bytes)


def refusal(s: GridRolesSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    cut = cut_of(region, limits)
    if cut is None:
        return "this target has no copies of tiles, or an operand cannot be copied in boxes"
    assert limits.grid is not None
    return refusal_roles(tile_of(s, cut[0], limits.grid), limits)


def refusal_roles(tile: RolesTile, limits: Limits) -> str:
    """Why a tile cannot be one of workgroups with roles; empty if it can."""
    return refusal_team(tile, limits) or refusal_cluster(tile, can_share(tile))


def refusal_cluster(tile: RolesTile, shares: bool) -> str:
    """Why workgroups cannot be in such clusters; empty if they can. `shares`: each workgroup has
    whole lines to copy."""
    down, along = tile.cluster_rows, tile.cluster_columns
    if (down, along) in ((1, 1), *CLUSTERS) and shares:
        return ""
    return (f"cluster(rows={down}, columns={along}) must be 1 x 1 or one of "
            f"{', '.join(f'{a} x {b}' for a, b in CLUSTERS)}, and divide the lines of strips")


def refusal_team(tile: RolesTile, limits: Limits) -> str:
    """Why threads cannot have roles and a tile; empty if they can."""
    assert limits.grid is not None
    if tile.stages < ROLES_STAGES_LEAST:
        return f"stages({tile.stages}) must be at least {ROLES_STAGES_LEAST}"
    if why := refusal_tile(tile, limits):
        return why
    if tile.threads + tile.team_threads > limits.grid.threads:
        return f"its roles take {tile.threads + tile.team_threads} threads"
    used, available = tile.used, tile.registers.more
    return f"its threads take {used} registers of {available}" if used > available else ""
