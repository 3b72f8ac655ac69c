"""The operands of a matrix product as boxes, which hardware copies with a tensor map."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE
from ztorch.ir.product_rules import CHUNK
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import certain, view_of


@dataclass(frozen=True)
class Boxes:
    """An operand in memory: contiguous along one axis, with constant strides along the others."""

    source: Value  # the value in memory
    first: int  # the operand's first element in it
    along_k: bool  # whether contiguous elements are neighbors along k
    extents: tuple[int, ...]  # of the inner axis, the outer axis, and the batch axis
    pitches: tuple[int, ...]  # strides of these axes, in elements

    def at(self, place: object, k: object, batch_number: object) -> list:
        """The coordinates of a position along the tile, along k and in the batch."""
        inner = [k, place] if self.along_k else [place, k]
        return [*inner, batch_number][:len(self.extents)]

    def box(self, lines: int) -> tuple[int, ...]:
        """The sizes of a box of lines of swizzled memory."""
        line = SWIZZLE_LINE // self.source.dtype.bytes
        return (line, lines, 1)[:len(self.extents)]


def boxes_of(product: Value, side: int) -> Boxes | None:
    """An operand as boxes; None if its layout does not allow it or is not aligned."""
    operand, k = product.args[side], product.args[0].shape[-1]
    extent, batch = product.shape[-2 + side], math.prod(product.shape[:-2])
    place, step, number = Var("x", extent), Var("k", k), Var("b", batch)
    pair = (Index.of(place), Index.of(step))
    index = (*unflatten(Index.of(number), product.shape[:-2]), *(pair if side == 0 else pair[::-1]))
    base = view_of(operand, index)
    if base is None or not certain(operand, index) or not base[1].is_affine:
        return None
    source, flat = base
    chunk = CHUNK // source.dtype.bytes
    across, along, matrix_stride = (flat.factor(v) for v in (place, step, number))
    pairs = [(k, along), (extent, across)]
    if along != 1:
        pairs.reverse()
    if batch > 1:
        pairs.append((batch, matrix_stride))
    extents, pitches = tuple(n for n, _ in pairs), tuple(p for _, p in pairs)
    others = (*pitches[1:], flat.const)
    if pitches[0] != 1 or min(pitches) < 1 or flat.const < 0 or any(n % chunk for n in others):
        return None
    return Boxes(source, flat.const, along == 1, extents, pitches)


@dataclass(frozen=True)
class Lines:
    """An operand in memory as lines of contiguous elements. The lines of each matrix in a batch
    have a constant stride."""

    source: Value  # the value in memory
    first: int  # the operand's first element in it
    extents: tuple[int, ...]  # along a line, from line to line, and from matrix to matrix
    pitches: tuple[int, ...]
    matrix: Index  # the coordinate of a matrix in the batch

    def box(self, lines: int) -> tuple[int, ...]:
        """The sizes of a box of lines of swizzled memory."""
        return (SWIZZLE_LINE // self.source.dtype.bytes, lines, 1)


def lines_of(operand: Value, index: tuple[Index, ...], line: Var, along: Var) -> Lines | None:
    """An operand as lines; None if its layout has none or is not aligned."""
    base = view_of(operand, index)
    if base is None or not certain(operand, index):
        return None
    source, flat = base
    others = tuple((atom, f) for atom, f in flat.terms if atom not in (line, along))
    rest, pitch = Index(others), flat.factor(line)
    matrix_stride = math.gcd(*(f for _, f in others)) or pitch
    coordinate = Index(tuple((atom, f // matrix_stride) for atom, f in others))
    low, high = coordinate.range
    chunk = CHUNK // source.dtype.bytes
    last = flat.const + along.extent - 1 + (line.extent - 1) * pitch + high * matrix_stride
    if flat.factor(along) != 1 or pitch < 1 or low < 0 or last >= source.size or any(
            rest.mentions(v) for v in (line, along)) or any(
            n < 0 or n % chunk for n in (pitch, matrix_stride, flat.const)):
        return None
    return Lines(source, flat.const, (along.extent, line.extent, high + 1),
                 (1, pitch, matrix_stride), coordinate)
