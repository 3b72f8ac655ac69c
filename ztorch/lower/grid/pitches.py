"""Operands of matrix products in the layout that box copies need: aligned row strides, and float32
operands contiguous along k."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.ir.product_rules import CHUNK
from ztorch.lower.grid.asynchronous import async_shape
from ztorch.lower.grid.boxes import boxes_of
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.tuning import PITCH_REUSE


class Pitches:
    """The operands of one graph. Products that read the same matrix share a copy."""

    def __init__(self, limits: Limits):
        self.limits = limits
        # By the value in memory, the index in it, and the shape: rows may all be one in memory.
        self.copies: dict[tuple[Value, Index, tuple[int, ...]], Value] = {}

    def __call__(self, product: Value, side: int) -> Value:
        """An operand of a product: unchanged, or a copy with padded rows or contiguous along k."""
        operand, grid = product.args[side], self.limits.grid
        assert grid is not None
        shape = async_shape(product, self.limits) if grid.tile_copies else None
        if shape is None or operand.rank != 2:
            return operand
        boxes, pays = boxes_of(product, side), product.shape[-1 - side] >= PITCH_REUSE
        if boxes is not None and (boxes.along_k or not shape.mantissa_bits):
            return operand
        if shape.mantissa_bits:
            return self._along_k(operand, side) if pays else operand
        for matrix in (operand, OPS.transpose(operand)):
            rows, columns = (Var(f"d{k}", n) for k, n in enumerate(matrix.shape))
            base = view_of(matrix, (Index.of(rows), Index.of(columns)))
            if base and base[1].is_affine and base[1].factor(columns) == 1 and (
                    base[0].dtype is operand.dtype) and (
                        pays or _narrowed(base, matrix) is not None):
                copied = self._copy(base, matrix)
                return copied if matrix is operand else OPS.transpose(copied)
        return operand

    def _along_k(self, operand: Value, side: int) -> Value:
        """A float32 operand from a copy that is contiguous along k; unchanged if that is
        impossible."""
        matrix = OPS.transpose(operand) if side else operand
        rows, columns = (Var(f"d{k}", n) for k, n in enumerate(matrix.shape))
        base = view_of(matrix, (Index.of(rows), Index.of(columns)))
        if not base or not base[1].is_affine or base[0].dtype is not operand.dtype:
            return operand
        copied = self._copy(base, matrix)
        return OPS.transpose(copied) if side else copied

    def _copy(self, base: tuple[Value, Index], matrix: Value) -> Value:
        """A copy of a matrix whose row stride is a multiple of a chunk."""
        key = (*base, matrix.shape)
        if key not in self.copies:
            high = 0, -matrix.shape[1] % (CHUNK // matrix.dtype.bytes)
            source = _narrowed(base, matrix)
            padded = COPY(OPS.pad(matrix, (0, 0), high)) if source is None else base[0].op(
                OPS.pad(source, (0, 0), high), **base[0].attrs)
            self.copies[key] = OPS.slice(padded, (0, 0), (1, 1), matrix.shape)
        return self.copies[key]


def _narrowed(base: tuple[Value, Index], matrix: Value) -> Value | None:
    """The source of a matrix that is only a source rounded to fewer bits: the kernel that rounds
    can write padded rows without another copy. None for any other matrix."""
    v, at = base
    rows, columns = matrix.shape
    if v.op.name != "cast" or v.size != rows * columns or at.const or any(
            isinstance(atom, Var) and at.factor(atom) not in (1, columns) for atom, _ in at.terms):
        return None
    source = v.args[0]
    is_stored = source.op.kind == "leaf" or is_view(source)
    return OPS.reshape(source, matrix.shape) if is_stored else None
