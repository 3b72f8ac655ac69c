"""Which positions of tensors are real, where sequences and batches are filled up to a larger size.

An axis whose size varies is padded at its end. What lies there is arbitrary, so it must not reach
results. Most ops compute each position by itself: padding stays where it is. Layers that look at
several positions get the mask of the padding (see `Context.mask_of`) and hide it. Any other op that
mixes positions is an error, which names the layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, topological
from ztorch.layers.axes import OpenSize
from ztorch.layers.padded_axes import Mask, Padded, mixed, padded_axes, place

REAL = "real"  # the port that tells real rows (1) from those that fill up a batch (0)
LENGTHS = "lengths"  # the role of ports that hold the size of an axis for each row


@dataclass
class Padding:
    """What is padded in one function that is traced.

    Args:
        sizes: The size of each named axis in this function.
        rows_vary: Whether batches may be filled up with rows that must not count at all.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    rows_vary: bool = False
    _known: dict[Value, Padded] = field(default_factory=dict)
    _named: dict[str, Mask] = field(default_factory=dict)
    _real_rows: Value | None = None

    def begin(self, x: Value, axis: int, name: str) -> None:
        """Notes that an axis of an input varies. The function gets an input with the sizes of rows
        along it. An axis of size 1 needs none: sizes are at least 1."""
        if name not in self.sizes or self.sizes[name] == 1:
            return
        if name not in self._named:
            batch, size = x.shape[0], self.sizes[name]
            lengths = leaf("input", f"{LENGTHS}/{name}", (batch,), "int32")
            position = OPS.iota((batch, size), 1, "int32")
            self._named[name] = Mask(name, OPS.less(position, OPS.expand_dims(lengths, 1)))
        self.declare(x, {axis: self._named[name]})

    def declare(self, v: Value, padded: Mapping[int, Mask]) -> Value:
        """Notes which axes of a tensor are padded, whatever it was computed from. Returns it."""
        if self._known or padded:  # else nothing is padded in this function
            self._known[v] = {math.prod(v.shape[:axis]): mask for axis, mask in padded.items()}
        return v

    def of(self, v: Value) -> dict[int, Mask]:
        """The axes of a tensor that are padded; axis 0 is the batch.

        Raises:
            Unsupported: It was computed by an op that mixes padding into results.
        """
        if not self._known:
            return {}
        for node in topological([v], self._known):
            if node not in self._known:
                self._known[node] = padded_axes(node, [self._known[a] for a in node.args])
        axes = {}
        for before, mask in self._known[v].items():
            axis, inner = place(v, before, mask)
            if inner > 1 or v.shape[:1] != (mask.batch,) or v.shape[axis] != mask.size:
                raise mixed(v, [self._known[v]])  # it is a part of a larger axis
            axes[axis] = mask
        return axes

    def named_shape(self, v: Value) -> tuple[int, ...]:
        """The shape of an example, with the names of axes whose size varies."""
        try:
            padded = self.of(v)
        except Unsupported:  # an error when the model is compiled
            padded = {}
        return tuple(OpenSize(padded[k].axis) if k in padded else n
                     for k, n in enumerate(v.shape))[1:]

    def along(self, v: Value, axis: int) -> Value | None:
        """A bool tensor (batch, size) that is true where positions along the axis are real; None
        where all are."""
        mask = self.of(v).get(axis)
        return None if mask is None else mask.value

    def owns(self, mask: Value) -> bool:
        """Whether a mask tells padding, and nothing else."""
        return any(mask is named.value for named in self._named.values())

    def zeroed(self, v: Value, axis: int) -> Value:
        """The tensor with zeros in place of padding along an axis."""
        mask = self.along(v, axis)
        if mask is None:
            return v
        return self.declare(OPS.where(spread(mask, v.rank, axis), v, OPS.zeros_like(v)), self.of(v))

    def real(self, v: Value) -> Value | None:
        """A float tensor that broadcasts to v: 1 for real elements, 0 for those that fill up the
        batch or an axis; None where all are real."""
        real: Value | None = None
        for axis, mask in self.of(v).items():
            part = spread(OPS.cast(mask.value, v.dtype), v.rank, axis)
            real = part if real is None else real * part
        if self.rows_vary:
            if self._real_rows is None:
                self._real_rows = leaf("input", REAL, v.shape[:1], v.dtype)
            rows = OPS.reshape(self._real_rows, (v.shape[0], *(1,) * (v.rank - 1)))
            real = rows if real is None else real * rows
        return real

    def hidden(self, inputs: Sequence[Any], outputs: Sequence[Any], masks: Sequence[Any]) -> None:
        """Notes that a layer with a mask has hidden the padding of its inputs, so that it may mix
        steps: of its outputs, those that have a mask themselves are padded as the inputs are.

        Args:
            inputs: The tensors that the layer was called on. Its masks are those of axis 1.
            outputs: What it returned.
            masks: For the first of these, the mask or None.
        """
        padded = [self.of(x) for x in inputs if isinstance(x, Value)]
        if not any(padded) or any(set(axes) - {1} for axes in padded):
            return
        steps = next(axes[1] for axes in padded if axes)
        for v, mask in zip_longest(outputs, masks):
            try:
                self.of(v)  # also what a layer has declared
            except Unsupported:
                self.declare(v, {} if mask is None else {1: steps})


def spread(mask: Value, rank: int, axis: int) -> Value:
    """A mask (batch, size) as a tensor that broadcasts along all axes but the batch and `axis`."""
    shape = [1] * rank
    shape[0], shape[axis] = mask.shape
    return OPS.reshape(mask, tuple(shape))
