"""Operands of matrix products in the layout that asynchronous copies need: aligned row strides, and
float32 operands that are copied in boxes contiguous along k."""

from __future__ import annotations

from ztorch.dtypes import f16
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.ir.product_rules import CHUNK
from ztorch.lower.grid.asynchronous import async_shape
from ztorch.lower.grid.boxes import boxes_of
from ztorch.lower.grid.mma import shape_for
from ztorch.lower.grid.operands import is_copied
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.tuning import PITCH_REUSE


class Pitches:
    """The operands of one graph. Products that read the same matrix share a copy."""

    def __init__(self, limits: Limits):
        self.limits = limits
        # By the value in memory, the index in it, and the shape: rows may all be one in memory.
        self.copies: dict[tuple[Value, Index, tuple[int, ...]], Value] = {}
        self.deeper: dict[Value, Value] = {}  # by operand, with more steps along k

    def __call__(self, product: Value) -> tuple[Value, Value]:
        """The operands of a product: unchanged, or copies with padded rows or contiguous along k.
        """
        grid, (a, b) = self.limits.grid, product.args
        assert grid is not None
        if grid.tile_copies:
            return self._for_boxes(product, 0), self._for_boxes(product, 1)
        return self._for_threads(product) if grid.asynchronous_copies else (a, b)

    def _for_threads(self, product: Value) -> tuple[Value, Value]:
        """Operands of 16 bits that threads copy asynchronously: unchanged if they do so already, or
        not even with padded rows. Along k both are padded with zeros."""
        shape, (a, b) = shape_for(product, self.limits), product.args
        if shape is None or shape.of.bits != f16.bits or a.rank != 2 or not (
                a.dtype == b.dtype == shape.of):
            return a, b
        left, right = (
            x if is_copied(product, side, shape.of) else self._with_long_rows(product, side)
            for side, x in enumerate(product.args))
        rows, known = right.args[0] if right.args else right, {*self.copies.values()}
        extra = -a.shape[-1] % (CHUNK // a.dtype.bytes)
        if left in known or rows in known:  # contiguous along k
            left = left.args[0] if left in known else (
                OPS.transpose(self._with_zeros(a, OPS.transpose(a), b.shape[-1], extra)))
            right = OPS.transpose(rows.args[0]) if rows in known else (
                self._with_zeros(b, b, a.shape[-2], extra))
        if left.shape[-1] != right.shape[-2]:
            return a, b
        padded = Value(product.op, (left, right), product.attrs, product.shape, product.dtype)
        copied = all(is_copied(padded, side, shape.of) for side in (0, 1))
        return (left, right) if copied else (a, b)

    def _with_zeros(self, operand: Value, matrix: Value, uses: int, extra: int) -> Value:
        """A copy of an operand, as a matrix whose rows are steps along k, with rows of zeros; the
        matrix if that costs more than it gains."""
        if uses < PITCH_REUSE:
            return matrix
        if operand not in self.deeper:
            self.deeper[operand] = COPY(OPS.pad(matrix, (0, 0), (extra, 0)))
        return self.deeper[operand]

    def _for_boxes(self, product: Value, side: int) -> Value:
        """An operand that is copied in boxes."""
        operand = product.args[side]
        shape = async_shape(product, self.limits)
        if shape is None or operand.rank != 2:
            return operand
        boxes, pays = boxes_of(product, side), product.shape[-1 - side] >= PITCH_REUSE
        if boxes is not None and (boxes.along_k or not shape.mantissa_bits):
            return operand
        if shape.mantissa_bits:
            return self._along_k(operand, side) if pays else operand
        return self._with_long_rows(product, side)

    def _with_long_rows(self, product: Value, side: int) -> Value:
        """An operand from a copy with aligned rows; unchanged if that is impossible or costs more
        than it gains."""
        operand, pays = product.args[side], product.shape[-1 - side] >= PITCH_REUSE
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
