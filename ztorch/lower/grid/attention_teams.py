"""Attention by workgroups with roles: one thread copies lines into rings of stages in shared
memory, and warpgroups multiply them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import WARPGROUP, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention_fragments import FragmentRows
from ztorch.lower.grid.attention_role_tiles import AttentionTile, Side
from ztorch.lower.grid.roles import RingPlace
from ztorch.lower.region import Region


class TeamRows(FragmentRows):
    """The rows of a workgroup. Each team has 64 of them."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 tile: AttentionTile, sides: Sequence[Side], matrix: Operand, first: Operand,
                 t: Operand):
        super().__init__(b, region, memory, limits, tile.shape, 1, tile.block,
                         tile.teams * WARPGROUP, matrix, first, t)
        self.tile, self.sides = tile, sides
        for side in sides:
            b.memory(side.name, tile.shape.of, side.stages(tile) * side.size(tile), "shared", "rw",
                     swizzled=True)
        self.full, self.empty = (
            [b.barriers(f"{state}_{side.name}", side.stages(tile)) for side in sides]
            for state in ("full", "empty"))
        self.team = b.div(t, tile.team_threads)

    def in_roles(self, produce: Callable[[], None], consume: Callable[[], None]) -> None:
        """One thread runs `produce`; those of the teams that multiply run `consume`."""
        b, tile, t = self.b, self.tile, self.t
        with b.if_(b.eq(t, 0)):
            for side, full, empty in zip(self.sides, self.full, self.empty, strict=True):
                for stage in range(side.stages(tile)):
                    b.mbarrier_init(full, stage, 1)
                    b.mbarrier_init(empty, stage, tile.teams)
            b.mbarrier_fence()
        b.barrier()
        registers = tile.registers
        moved = registers.moved(tile.used)
        with b.if_(b.ge(self.team, tile.teams), els=True) as roles:
            if moved:
                b.thread_registers(registers.fewer, fewer=True)
            with b.if_(b.eq(t, tile.threads)):
                produce()
            b.else_(roles)
            if moved:
                b.thread_registers(registers.more, fewer=False)
            self.elected = b.eq(b.rem(t, tile.team_threads), 0)
            consume()

    # -- the thread that copies --------------------------------------------------------------------

    def bring(self, n: int, first: Operand, stage: int | Operand = 0) -> None:
        """Starts to copy the lines of side n, from the `first` on, to a stage."""
        b, tile, side = self.b, self.tile, self.sides[n]
        lines, matrix = side.lines, self.e.value(side.lines.matrix)
        at = stage if isinstance(stage, Operand) else b.const(stage, b.index)
        b.mbarrier_expect(self.full[n], at, side.size(tile) * tile.shape.of.bytes)
        for panel in range(side.panels):
            b.copy_tile(side.name, b.mul(at, side.size(tile)), self.e.memory[lines.source],
                        [b.const(panel * tile.line, b.index), first, matrix], lines.extents,
                        lines.pitches, lines.box(side.high(tile)), self.full[n], at,
                        off=panel * side.panel(tile), source_off=lines.first)

    # -- the teams that multiply -------------------------------------------------------------------

    def release(self, n: int, ring: RingPlace) -> None:
        """Gives a stage back."""
        with self.b.if_(self.elected):
            self.b.mbarrier_arrive(self.empty[n], ring()[0])
        ring.step()

    def start_transposed(self, left: int, right: int, depth: int, stage: Operand,
                     sums: list[Operand]) -> None:
        """Starts the products of a team's lines of one side with those of a stage of another."""
        b, tile = self.b, self.tile
        lines, others = self.sides[left], self.sides[right]
        own = b.mul(self.team, self.shape.m * WARPGROUP * tile.line)
        for k in range(0, depth, self.shape.k):
            panel, place = divmod(k, tile.line)
            b.mma_async(lines.name, own, others.name, b.mul(stage, others.size(tile)), sums,
                        off=panel * lines.panel(tile) + place,
                        source_off=panel * others.panel(tile) + place, source_transposed=True,
                        fresh=k == 0)
        b.mma_commit()

    def start_held(self, lefts: list[Operand], right: int, stage: Operand,
                   sums: list[Operand]) -> None:
        """Starts to add the products of matrices in registers with a stage of a side."""
        b, tile, side = self.b, self.tile, self.sides[right]
        for k, left in enumerate(lefts):
            b.mma_held_async(left, side.name, b.mul(stage, side.size(tile)), sums,
                             off=k * self.shape.k * tile.line, panel=side.panel(tile))
        b.mma_commit()
