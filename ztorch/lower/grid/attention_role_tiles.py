"""Which rows and columns of attention the workgroups compute that have roles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, MmaShape
from ztorch.ir.limits import Limits
from ztorch.ir.product_rules import CHUNK, MAX_SUMS
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.attention_tiles import padded
from ztorch.lower.grid.boxes import Lines, lines_of
from ztorch.lower.grid.role_tiles import TeamRegisters
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention import hidden_by, matrix_shape
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ATTENTION_DROPPED,
    ATTENTION_ROLES_COLUMNS,
    ATTENTION_ROLES_OTHERS,
    ATTENTION_ROLES_SIZE,
    ATTENTION_ROLES_TILES,
    ATTENTION_STAGES,
)


@dataclass(frozen=True, repr=False)
class GridAttentionRolesSchedule(Schedule):
    """Attention on a grid by workgroups with roles."""

    kind = "grid_attention_roles"
    teams: int  # warpgroups that multiply, each with 64 rows
    block: int  # columns whose keys and values a stage has
    stages: int

    def tile(self, lanes: int) -> str:
        return f"{self.teams}x{self.block}roles"


@dataclass(frozen=True)
class AttentionTile:
    """The rows and columns of a workgroup, and their layout in shared memory."""

    shape: MmaShape
    subgroup: int
    teams: int
    block: int
    stages: int
    depth: int  # of queries and keys, in whole matrices
    width: int  # of values and results, in whole matrices
    others: int  # registers of a thread that multiplies, beside those of matrices

    @property
    def width_along(self) -> int:
        """The width as the depth of a product."""
        return math.ceil(self.width / self.shape.k) * self.shape.k

    @property
    def rows(self) -> int:
        return self.teams * WARPGROUP * self.shape.m

    @property
    def line(self) -> int:
        """Elements of a line of swizzled memory."""
        return SWIZZLE_LINE // self.shape.of.bytes

    @property
    def team_threads(self) -> int:
        return self.subgroup * WARPGROUP

    @property
    def threads(self) -> int:
        """Threads that multiply."""
        return self.teams * self.team_threads

    @property
    def registers(self) -> TeamRegisters:
        return TeamRegisters(self.teams, self.team_threads)

    @property
    def used(self) -> int:
        """Registers of 32 bits of a thread that multiplies. Its matrices are results, scores, and
        weights, which take half as much."""
        halves = 2 * (self.width + self.block) + self.block
        return halves * self.shape.m // (2 * self.subgroup) + self.others


Tile = TypeVar("Tile", bound=AttentionTile)


@dataclass(frozen=True)
class Side:
    """Queries, keys or values: lines in shared memory, in panels beside one another."""

    name: str
    lines: Lines
    panels: int
    staged: bool

    def stages(self, tile: AttentionTile) -> int:
        return tile.stages if self.staged else 1

    def high(self, tile: AttentionTile) -> int:
        """Lines of a stage."""
        return tile.block if self.staged else tile.rows

    def panel(self, tile: AttentionTile) -> int:
        """Elements of a panel."""
        return self.high(tile) * tile.line

    def size(self, tile: AttentionTile) -> int:
        """Elements of a stage."""
        return self.panels * self.panel(tile)


def side_of(region: Region, name: str, number: int, axes: tuple[Var, Var], line: Var, along: Var,
            staged: bool) -> Side | None:
    """An operand as a side: its `axes` are those of its matrices. None if it cannot be copied in
    boxes."""
    node, sizes = region.members[0], sizes_of(region)
    batch = unflatten(Index.of(Var("matrix", sizes.matrices)), node.args[0].shape[:-2])
    lines = lines_of(node.args[number], (*batch, *map(Index.of, axes)), line, along)
    dtype = node.args[0].dtype
    if lines is None or lines.source.dtype != dtype:
        return None
    return Side(name, lines, math.ceil(along.extent / (SWIZZLE_LINE // dtype.bytes)), staged)


def sides_of(region: Region) -> tuple[Side, Side, Side] | None:
    """Queries, keys and values of an attention; None if some cannot be copied in boxes."""
    sizes = sizes_of(region)
    row, column = Var("row", sizes.rows), Var("column", sizes.columns)
    depth, place = Var("depth", sizes.depth), Var("place", sizes.width)
    queries = side_of(region, "queries", 0, (row, depth), row, depth, False)
    keys = side_of(region, "keys", 1, (depth, column), column, depth, True)
    values = side_of(region, "values", 2, (column, place), column, place, True)
    return None if queries is None or keys is None or values is None else (queries, keys, values)


def tile_of(s: GridAttentionRolesSchedule, region: Region, limits: Limits) -> AttentionTile | None:
    """The tile of a schedule; None if the machine has no such products or copies."""
    return tile_of_sizes(AttentionTile, s, region, limits)


def tile_of_sizes(kind: type[Tile], s: Any, region: Region, limits: Limits,
                  **more: Any) -> Tile | None:
    """The same of another kind, with its own fields."""
    grid = limits.grid
    assert grid is not None
    shape = matrix_shape(region.members[0].args[0].dtype, grid)
    if shape is None or not (grid.tile_copies and grid.asynchronous_products):
        return None
    depth, width = padded(sizes_of(region), shape)
    attention, others = region.members[0].attrs["attention"], ATTENTION_ROLES_OTHERS
    if attention.dropout_mask is not None:
        others += int(ATTENTION_DROPPED[hidden_by(attention.score) is not None] * s.block)
    return kind(shape, grid.subgroup, s.teams, s.block, s.stages, depth, width, others, **more)


def propose(region: Region, limits: Limits) -> GridAttentionRolesSchedule | None:
    """The largest tile that fits, where rows and columns fill some. Random numbers take longer than
    copies, so that few columns are enough with dropout."""
    sizes = sizes_of(region)
    dropped = region.members[0].attrs["attention"].dropout_mask is not None
    if sizes.columns < ATTENTION_ROLES_COLUMNS * (not dropped) or (
            sizes.depth + sizes.width < ATTENTION_ROLES_SIZE):
        return None
    for teams, block in ATTENTION_ROLES_TILES:
        s = GridAttentionRolesSchedule(teams, block, ATTENTION_STAGES)
        if not refusal(s, region, limits):
            return s
    return None


def refusal(s: GridAttentionRolesSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    return refusal_team(s, tile_of(s, region, limits), sides_of(region), limits)


def refusal_team(s: Any, tile: AttentionTile | None, sides: Sequence[Side] | None,
                 limits: Limits) -> str:
    """Why teams cannot have a tile; empty if they can."""
    grid = limits.grid
    assert grid is not None
    if tile is None or sides is None:
        return "this target has no copies of tiles, or an operand cannot be copied in boxes"
    if not 1 <= s.teams <= grid.threads // tile.team_threads - 1:
        return f"teams({s.teams}) must be 1 to {grid.threads // tile.team_threads - 1}"
    widest = MAX_SUMS * tile.shape.n
    if not 1 <= s.block <= widest or s.block % tile.shape.k or (
            max(tile.width, tile.depth) > widest):
        return f"block({s.block}) must be a multiple of {tile.shape.k}, at most {widest}"
    if s.stages < 2:
        return f"stages({s.stages}) must be at least 2"
    used, available = tile.used, tile.registers.more
    if used > available:
        return f"a thread takes {used} registers of {available}"
    needed = sum(side.stages(tile) * (side.size(tile) * tile.shape.of.bytes + 2 * CHUNK)
                 for side in sides)
    return f"it shares {needed} bytes of {grid.shared_bytes}" if needed > grid.shared_bytes else ""
