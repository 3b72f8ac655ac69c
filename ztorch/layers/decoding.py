"""Decoding: runs a causal model on a few positions of its rows, with caches of earlier positions.

`Prefill` runs whole rows and fills the caches; `Decoding` runs one position of each row. Caches are
program states: attention stores keys and values there, with one entry per position, and recurrent
layers their states, those after the last position.
"""

from __future__ import annotations

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.ops.attention import rotary_factors, rotated
from ztorch.ops.placing import PLACED


class Prefill:
    """All positions of some rows at once. Their caches are rewritten; others stay.

    Args:
        rows: Bool tensor `(rows,)`: the rows whose caches are written.
        position: int32 tensor `(rows,)`: the position of each row that is decoded next.
        length: Number of positions of a row.
    """

    def __init__(self, rows: Value, position: Value, length: int):
        self.rows, self.position, self.length = rows, position, length

    def before(self) -> Value:
        """A mask (rows, length) of the positions before the one that is decoded next."""
        return OPS.less(OPS.iota((self.position.size, self.length), 1),
                        OPS.reshape(self.position, (-1, 1)))

    def placed(self, new: Value, cache: Value, axis: int) -> Value:
        """`cache` with new entries in the rows to write."""
        return in_rows(self.rows, new, cache)


class Decoding:
    """One position of each row.

    Args:
        position: int32 tensor `(rows,)`: the position of each row.
        rows: Bool tensor `(rows,)`: the rows whose caches are written.
        length: Number of positions of a row.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> position = leaf("input", "position", (2,), "int32")
        >>> Decoding(position, leaf("input", "rows", (2,), "bool"), 32).seen().shape
        (2, 1, 32)
    """

    def __init__(self, position: Value, rows: Value, length: int):
        self.position, self.rows, self.length = position, rows, length

    def seen(self) -> Value:
        """A mask (rows, 1, length) of the positions up to this one."""
        shape = (self.position.size, 1, self.length)
        return OPS.less_equal(OPS.iota(shape, 2), OPS.reshape(self.position, (-1, 1, 1)))

    def row(self, table: Value) -> Value:
        """The entry for this position in a table (positions, features): (rows, 1, features)."""
        return OPS.expand_dims(OPS.take(table, self.position, 0), 1)

    def rotated(self, x: Value, max_wavelength: float) -> Value:
        """`x`, (rows, heads, 1, dim), after `ops.rotary` at this position."""
        factors = (OPS.take(constant(table, x.dtype), self.position, 0)
                   for table in rotary_factors(self.length, x.shape[3], max_wavelength))
        return rotated(x, *(OPS.expand_dims(f, (1, 2)) for f in factors))

    def placed(self, new: Value, cache: Value, axis: int) -> Value:
        """`cache` with `new`, of size 1 along the axis, written at this position of the chosen
        rows."""
        return PLACED(cache, new, OPS.where(self.rows, self.position, -1), axis=axis)

    def resumed(self, cache: Value, first: Value) -> Value:
        """The state in a cache, or at the first position of a row the first one."""
        return in_rows(OPS.equal(self.position, 0), first, cache)


def in_rows(rows: Value, new: Value, old: Value) -> Value:
    """`new` in the chosen rows, `old` in the others.

    >>> from ztorch.graph.op import leaf
    >>> in_rows(leaf("input", "r", (2,), "bool"), *(leaf("input", n, (2, 3), "float32")
    ...                                            for n in "xy")).shape
    (2, 3)
    """
    return OPS.where(OPS.reshape(rows, (-1, *(1,) * (old.rank - 1))), new, old)
