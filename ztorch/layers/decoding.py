"""Decoding: running a causal model one position at a time.

Layers see a single position, of shape (batch, 1, ...), and its number. Attention keeps keys and
values of earlier positions in caches: states of the program with one entry per position, in which
each step writes its own.
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value


class Decoding:
    """The step at `position`, an int32 tensor of shape (1,), in rows of `length` positions.

    >>> from ztorch.graph.op import leaf
    >>> Decoding(leaf("input", "position", (1,), "int32"), 32).seen().shape
    (1, 32)
    """

    def __init__(self, position: Value, length: int):
        self.position, self.length = position, length

    def seen(self) -> Value:
        """A mask (1, length) of the positions up to this one."""
        return OPS.less_equal(OPS.iota((1, self.length), 1), self.position)

    def turned(self, new: Value) -> Value:
        """`new`, (batch, heads, 1, dim), after `ops.rotary` at this position."""
        shape = (*new.shape[:2], self.length, new.shape[3])
        alone = self.placed(new, OPS.full(shape, 0.0, new.dtype))
        return OPS.sum(OPS.rotary(alone), axis=2, keepdims=True)  # rotated zeros stay zeros

    def row(self, table: Value) -> Value:
        """The row of this position in a table of (positions, features): (1, 1, features)."""
        return OPS.expand_dims(OPS.take(table, self.position), 0)

    def placed(self, new: Value, others: Value) -> Value:
        """`others`, (batch, heads, length, dim), with `new` at this position."""
        here = OPS.equal(OPS.iota(others.shape, 2), self.position)
        return OPS.where(here, OPS.broadcast_to(new, others.shape), others)
