"""Blocks of row tiles, and the copy of a panel of B that the first tile of a block makes.

Rows of a panel are far apart in B: they fall on few sets of a cache, so each tile would fetch them
again. The other tiles of the block read the copy, which is contiguous. The first tile stores what
it loads anyway, between its multiply-adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.cpu.left_operand import Run
from ztorch.lower.cpu.tiling import Tiling
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import BLOCK_PANEL_BYTES


def panel_refusal(s: ProductSchedule, right: Value, packed: bool, vector_bytes: int) -> str:
    """Why the blocks of a schedule cannot copy their panels; empty if they can.

    Args:
        s: A schedule that asks for copies.
        right: The right operand.
        packed: Whether its panels are contiguous already.
        vector_bytes: The size of a vector of it.
    """
    if s.block_rows == 1:
        return f"block(pack={s.block_pack}) needs block(rows=...) of 2 or more"
    if packed:
        return f"block(pack={s.block_pack}): the right operand is packed already"
    size = right.shape[-2] * s.tile_vectors * vector_bytes
    if size > BLOCK_PANEL_BYTES:
        return f"block(pack={s.block_pack}) needs {size} bytes of {BLOCK_PANEL_BYTES}"
    return ""


class BlockPanel:
    """A local array with the vectors of a panel, step by step along k.

    Args:
        b: The builder.
        name: The name of the array.
        dtype: The dtype of B.
        steps: The steps along k.
        vectors: The vectors of a step.
        lanes: The lanes of a vector.
    """

    def __init__(self, b: Builder, name: str, dtype: DType, steps: int, vectors: int, lanes: int):
        self.b, self.vectors, self.lanes = b, vectors, lanes
        self.array = b.memory(name, dtype, steps * vectors * lanes, "local", "rw")

    def start(self, e: Emitter, along: Index) -> Operand:
        """The position of a step along k."""
        return self.b.mul(e.value(along), self.vectors * self.lanes)

    def load(self, start: Operand, step: int) -> list[Operand]:
        """The vectors of a later step than that at `start`."""
        return [self.b.load(self.array, start, off=self._offset(step, j), lanes=self.lanes)
                for j in range(self.vectors)]

    def store(self, start: Operand, step: int, vectors: list[Operand]) -> None:
        """Keeps the vectors of a step."""
        for j, x in enumerate(vectors):
            self.b.store(self.array, start, x, off=self._offset(step, j))

    def _offset(self, step: int, j: int) -> int:
        return (step * self.vectors + j) * self.lanes


@dataclass(frozen=True)
class ProductTile:
    """One tile: loop counters, and the positions of its rows and vectors of columns."""

    bound: dict[Var, Operand]
    scopes: list[Emitter]  # of each vector
    where: tuple[Index, ...]  # the matrix
    first: Index  # row
    rows: list[Index]
    columns: list[Index]
    down: Var  # the number of the tile in its run
    across: Var  # the number of the panel


@dataclass(frozen=True)
class TilePlace:
    """The place of a tile in its row block."""

    rows: Run  # its run
    at_row: Operand  # its number in the run
    number: Operand  # its number in the block
    panel: BlockPanel | None  # a copy of the panel
    fills: bool  # whether the tile makes the copy, which other tiles read


def tiles_of_block(b: Builder, tiling: Tiling, size: int, at_block: Operand | None,
                   panel: BlockPanel | None = None) -> Iterator[TilePlace]:
    """The tiles of a row block, in loops.

    Args:
        b: The builder.
        tiling: The tiles.
        size: The tiles of a block.
        at_block: The number of the block; None: it is the only one.
        panel: A copy of the panel. Default: `None`, tiles read it in place.
    """
    before = 0
    first = b.const(0, b.index) if at_block is None else b.mul(at_block, size)
    for rows in tiling.rows:
        begin: Operand | int = 0
        end: Operand | int = rows.tiles
        second: Operand | int = 0 if before else 1
        if at_block is not None:
            begin = b.max(b.sub(first, before), 0)
            end = b.min(b.sub(b.add(first, size), before), rows.tiles)
            if panel:  # the first tile of the block may be in another run
                second = b.min(b.max(b.sub(first, before - 1), 0), rows.tiles)
        parts = ((begin, second, True), (second, end, False)) if panel else ((begin, end, False),)
        for start, stop, fills in parts:
            if not (isinstance(start, int) and isinstance(stop, int) and start >= stop):
                with b.loop(start, stop) as at_row:
                    number = b.sub(b.add(at_row, before), first)
                    yield TilePlace(rows, at_row, number, panel, fills)
        before += rows.tiles
