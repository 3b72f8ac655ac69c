"""Which lines of attention a workgroup computes gradients of."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention_role_tiles import (
    AttentionTile,
    Side,
    refusal_team,
    side_of,
    tile_of_sizes,
)
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.role_tiles import TeamRegisters
from ztorch.lower.index import Var
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ATTENTION_GRADIENT_BLOCKS,
    ATTENTION_GRADIENT_COPIER,
    ATTENTION_STAGES,
)


@dataclass(frozen=True, repr=False)
class GridAttentionGradientSchedule(Schedule):
    """Gradients of attention on a grid, by workgroups with roles."""

    kind = "grid_attention_gradient"
    teams: int  # warpgroups that multiply, each with 64 keys or queries
    block: int  # queries or keys of a stage
    stages: int

    def tile(self, lanes: int) -> str:
        return f"{self.teams}x{self.block}roles"


@dataclass(frozen=True)
class GradientTile(AttentionTile):
    """The lines of a workgroup whose gradients are sums over the lines of stages."""

    by_keys: bool = False

    @property
    def registers(self) -> TeamRegisters:
        return TeamRegisters(self.teams, self.team_threads, ATTENTION_GRADIENT_COPIER)

    @property
    def used(self) -> int:
        """Registers of 32 bits of a thread that multiplies: results, scores and slopes, and half
        as many for those as operands."""
        results = self.depth + self.width * self.by_keys
        elements = (results + 2 * self.block + self.block) * self.shape.m
        return elements // self.subgroup + self.others


Sides = tuple[Side, Side, Side, Side]


def sides_of(region: Region) -> Sides | None:
    """What stays in shared memory and what is staged: keys, values, queries and slopes, or queries,
    slopes, keys and values. None if some cannot be copied in boxes."""
    sizes, by_keys = sizes_of(region), region.members[0].attrs["by_keys"]
    row, column = Var("row", sizes.rows), Var("column", sizes.columns)
    depth, place = Var("depth", sizes.depth), Var("place", sizes.width)
    parts = {"queries": ((row, depth), row, depth), "keys": ((depth, column), column, depth),
             "values": ((column, place), column, place), "slopes": ((row, place), row, place)}
    resident, staged = ("keys", "values"), ("queries", "slopes")
    if not by_keys:
        resident, staged = staged, resident
    sides = [side_of(region, name, [*parts].index(name), *parts[name], staged=name in staged)
             for name in (*resident, *staged)]
    one, two, three, four = sides
    if one is None or two is None or three is None or four is None:
        return None
    return one, two, three, four


def tile_of(s: GridAttentionGradientSchedule, region: Region,
            limits: Limits) -> GradientTile | None:
    """The tile of a schedule; None if the machine has no such products or copies."""
    return tile_of_sizes(GradientTile, s, region, limits,
                         by_keys=region.members[0].attrs["by_keys"])


def propose(region: Region, limits: Limits) -> GridAttentionGradientSchedule | None:
    """The largest block that fits."""
    for teams in (2, 1):
        for block in ATTENTION_GRADIENT_BLOCKS:
            s = GridAttentionGradientSchedule(teams, block, ATTENTION_STAGES)
            if not refusal(s, region, limits):
                return s
    return None


def refusal(s: GridAttentionGradientSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    return refusal_team(s, tile_of(s, region, limits), sides_of(region), limits)
