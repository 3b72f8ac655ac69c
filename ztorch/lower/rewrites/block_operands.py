"""Operands of blocks of rows: the values that they read from outside their loops, and the slice of
each that a block reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.lower.rewrites.large_intermediates import Group


@dataclass(frozen=True)
class BlockOperand:
    """A tensor whose leading axes are those of the large intermediates, or of size 1."""

    value: Value
    rows: int | None = None  # the axis, after the leading ones, that runs along their rows
    columns: int | None = None  # the axis that runs along their columns

    def first(self) -> BlockOperand:
        """The operand without its first axis, which has size 1."""
        return replace(self, value=OPS.reshape(self.value, self.value.shape[1:]))

    def part_of_rows(self, start: int, end: int) -> BlockOperand:
        """A range of its rows; the whole operand if it has no row axis."""
        return self._part(self.rows, start, end)

    def first_columns(self, end: int) -> BlockOperand:
        """The columns before `end`; the whole operand if it has no column axis."""
        return self._part(self.columns, 0, end)

    def _part(self, axis: int | None, start: int, end: int) -> BlockOperand:
        shape = self.value.shape
        if axis is None or (start, end) == (0, shape[axis]):
            return self
        begin = tuple(start if k == axis else 0 for k in range(len(shape)))
        size = tuple(end - start if k == axis else n for k, n in enumerate(shape))
        return replace(self, value=OPS.slice(self.value, begin, (1,) * len(shape), size))


Use = tuple[Value, str]  # a value, and how it is read

# By the role of an operand in a product: its axes that run along rows and columns.
_AXES: dict[str, tuple[int | None, int | None]] = {
    "rows": (0, None),  # the left operand of a large product
    "across": (1, None),  # the left operand of a sum over rows, transposed
    "steps": (None, 1),  # the right operand of a large product
    "whole": (None, 0),  # the right operand of a sum along rows
}


class BlockOperands:
    """The operands of one group, by their uses."""

    def __init__(self, group: Group, order: Sequence[Value], new: dict[Value, Value]):
        """`order` has the values that each block computes, `new` the current replacements of the
        values that blocks read."""
        self.group, self.shape, self.new = group, group.shape, new
        self.by_use: dict[Use, BlockOperand] = {}
        for v in (*order, *group.results):
            self._add(v)

    def _add(self, v: Value) -> None:
        """Adds the operands of a value that is computed in blocks."""
        inner = self.group.inner
        axis = self._range_axis(v) if v in inner else None
        if axis is not None:
            n = v.shape[axis]
            numbers = np.arange(n).reshape([n if k == axis else 1 for k in range(v.rank)])
            self.by_use[v, "range"] = self._aligned(constant(numbers, v.dtype))
            return
        product = v.op.kind == "contract"
        large = self.group.large_side(v) if product and v not in inner else None
        for k, a in enumerate(v.args):
            if k == large or (a in inner and not product):
                continue
            use = a, self.role(v, k)
            if use in self.by_use:
                continue
            x = self.new[a]
            if product:
                rows, columns = _AXES[use[1]]
                self.by_use[use] = BlockOperand(x, rows, columns)
            elif a.rank == v.rank < len(self.shape.sizes):  # a number for each row
                self.by_use[use] = BlockOperand(x, rows=0)
            else:
                self.by_use[use] = self._aligned(x)

    def role(self, v: Value, k: int) -> str:
        """The role of an argument that is computed outside the loop."""
        if v.op.kind != "contract":
            return "aligned"
        if v in self.group.inner:
            return "rows" if k == 0 else "steps"
        if k == 0:
            return "across"
        return "whole" if v.args[0] in self.group.derived else "rows"

    def _range_axis(self, v: Value) -> int | None:
        """The axis along which v counts, if blocks differ in it."""
        axis = None if v.args else v.attrs.get("axis")
        differs = axis is not None and axis <= len(self.shape.batch) and v.shape[axis] > 1
        return axis if differs else None

    def _aligned(self, x: Value) -> BlockOperand:
        """A tensor that broadcasts to the large intermediates."""
        rank = len(self.shape.sizes)
        x = OPS.reshape(x, (*(1,) * (rank - x.rank), *x.shape))
        return BlockOperand(x, rows=0 if x.shape[-2] > 1 else None,
                            columns=1 if x.shape[-1] > 1 else None)
