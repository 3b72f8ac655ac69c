"""Which positions of tensors are real, where sequences and batches are padded to a larger size.

A variable axis is padded at its end with arbitrary values, which must not affect results. Most ops
compute each position separately, so padding stays in place. Layers that combine positions get the
mask of the padding (see `Context.mask_of`) and hide it. Any other op that mixes positions is an
error that names the layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, current_layer, topological
from ztorch.layers.axes import OpenSize
from ztorch.layers.axis_movement import place
from ztorch.layers.padded_axes import (
    Mask,
    Padded,
    mixed,
    padded_axes,
    padded_parts,
    spread_parts,
)
from ztorch.real_sizes import OpenAxis, Step, followed, multiple

REAL = "real"  # the port that marks real rows (1) and padding rows (0)
LENGTHS = "lengths"  # the role of ports that hold the size of an axis for each row


@dataclass
class Padding:
    """Padded values in one traced function.

    Args:
        sizes: The size of each named axis in this function.
        rows_vary: Whether batches may contain padding rows, which must not count at all.

    Attributes:
        multiples: For each axis name, a number that its sizes are multiples of, so that joined
            tensors have equal sizes.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    rows_vary: bool = False
    single: bool = False  # whether a variable axis became an axis of size 1
    multiples: dict[str, int] = field(default_factory=dict)
    declared: set[Value] = field(default_factory=set)  # values whose padding was declared
    _known: dict[Value, Padded] = field(default_factory=dict)
    _named: dict[str, Mask] = field(default_factory=dict)
    _derived: dict[tuple[Mask, tuple[Step, ...], int], Mask] = field(default_factory=dict)
    _roots: dict[Mask, Mask] = field(default_factory=dict)  # of derived masks: their sources
    layers_that_hide_rows: set[str] = field(default_factory=set)  # and combine the real ones
    _real_rows: Value | None = None
    _steps: int = 1  # rows that are steps of one row, within a TimeDistributed
    real_steps: Value | None = None  # which of them are real

    def begin(self, x: Value, axes: Mapping[int, str]) -> None:
        """Records that axes of an input vary. For each, the function gets an input with the sizes
        of rows. An axis of size 1 needs none: sizes are at least 1."""
        padded = {}
        for axis, name in axes.items():
            if self.sizes.get(name, 1) == 1:
                continue
            if name not in self._named:
                batch, size = x.shape[0], self.sizes[name]
                lengths = leaf("input", f"{LENGTHS}/{name}", (batch,), "int32")
                position = OPS.iota((batch, size), 1, "int32")
                self._named[name] = Mask(name, OPS.less(position, OPS.expand_dims(lengths, 1)))
            padded[axis] = self._named[name]
        if padded:
            self.declare(x, padded)

    def declare(self, v: Value, padded: Mapping[int, Mask]) -> Value:
        """Declares which axes of a tensor are padded, regardless of how it was computed. Returns
        it."""
        if self._known or padded:  # otherwise nothing in this function is padded
            self._known[v] = {(1, math.prod(v.shape[:axis])): mask
                              for axis, mask in padded.items()}
            self.declared.add(v)
        return v

    def declare_places(self, v: Value, padded: Padded) -> Value:
        """Declares which parts of axes of a tensor are padded, by their places. Returns it."""
        self._known[v] = padded
        self.declared.add(v)
        return v

    def places(self, v: Value) -> Padded:
        """The padded parts of axes of a tensor, by their places.

        Raises:
            Unsupported: An op that mixes padding into its result computed it.
        """
        if not self._known:
            return {}
        for node in topological([v], self._known):
            if node not in self._known:
                self._known[node] = padded_axes(node, [self._known[a] for a in node.args],
                                                self.multiples)
        return self._known[v]

    def of(self, v: Value) -> dict[int, Mask]:
        """The padded axes of a tensor; axis 0 is the batch.

        Raises:
            Unsupported: An op that mixes padding into its result computed it.
        """
        axes = {}
        for (rows, before), mask in self.places(v).items():
            axis, inner = place(v, before, mask.size)
            if (rows, inner) != (1, 1) or v.shape[:1] != (mask.batch,) or (
                    v.shape[axis] != mask.size):
                raise mixed(v, [self._known[v]])  # it is part of a larger axis
            axes[axis] = mask
        return axes

    def named_shape(self, v: Value) -> tuple[int, ...]:
        """The shape of an example, with the names of variable axes."""
        try:
            padded = self.of(v)
        except Unsupported:  # reported when the model is compiled
            padded = {}
        names = {k: OpenAxis(mask.axis, mask.steps).formula for k, mask in padded.items()}
        return tuple(OpenSize(names[k]) if k in names else n for k, n in enumerate(v.shape))[1:]

    def along(self, v: Value, axis: int) -> Value | None:
        """A bool tensor (batch, size) that is true at real positions along the axis; None if all
        are."""
        mask = self.of(v).get(axis)
        return None if mask is None else mask.value

    def parts(self, v: Value) -> set[int]:
        """The axes of a tensor that are padded or contain a padded part."""
        return padded_parts(v, self.places(v))

    def real_along(self, v: Value, axes: Iterable[int]) -> Value | None:
        """A bool tensor that broadcasts to v and is true for elements that are real along axes;
        None if all are."""
        real: Value | None = None
        for at, mask in self.places(v).items():
            if place(v, at[1], mask.size)[0] in axes:
                part = spread_parts(mask, at, v.shape)
                real = part if real is None else OPS.bitwise_and(real, part)
        return real

    def of_size(self, axis: str, size: int) -> Mask | None:
        """The mask of all tensors so far with this size along a named axis. If several have this
        size, sizes become multiples of a number for which their real sizes are equal."""
        masks = [m for m in (*self._named.values(), *self._derived.values())
                 if m.axis == axis and m.size == size]
        for m in masks[1:]:
            of = multiple(OpenAxis(axis, masks[0].steps), OpenAxis(axis, m.steps))
            if of is None:
                return None
            self.multiples[axis] = math.lcm(self.multiples.get(axis, 1), of)
        return masks[0] if masks else None

    def owns(self, mask: Value) -> bool:
        """Whether a mask describes padding and nothing else."""
        return any(mask is row.value for row in (*self._named.values(),
                                                     *self._derived.values()))

    def resize(self, padded: dict[int, Mask], axis: int, step: Step, size: int) -> None:
        """Records, among the padded axes of a tensor, that one now has `size` positions, and that
        its real size follows from the previous one by a step. All rows have the same size before
        padding."""
        if size > 1:
            padded[axis] = self._resized(padded[axis], step, size)
        else:
            del padded[axis]
            self.single = True

    def _resized(self, mask: Mask, step: Step, size: int) -> Mask:
        root, steps = self._roots.get(mask, mask), followed(mask.steps, step)
        if root.steps == steps:
            return root
        key = (root, steps, size)
        if key not in self._derived:
            times, plus, over = step
            lengths = OPS.sum(OPS.cast(mask.value, "int32"), 1, True)
            ends = OPS.iota((mask.batch, size), 1, "int32") * over + over  # k + 1, times over
            value = OPS.less_equal(ends, lengths * times + plus)
            self._derived[key] = Mask(mask.axis, value, steps, (mask, step))
            self._roots[self._derived[key]] = root
        return self._derived[key]

    @contextmanager
    def steps_as_rows(self, merged: Value, steps: int,
                      padded: Mapping[int, Mask]) -> Iterator[None]:
        """In this block, all steps of all rows are rows, as in a `TimeDistributed`.

        Args:
            merged: A tensor (rows * steps, ...).
            steps: Number of steps.
            padded: The padded axes of the tensor while it had shape (rows, steps, ...).
        """
        before = self._steps, self.real_steps
        self._steps = self._steps * steps
        if padded:
            self.declare(merged, {axis - 1: self._repeated(mask, steps)
                                  for axis, mask in padded.items() if axis > 1})
        if 1 in padded:
            rows = padded[1].value
            self.real_steps = OPS.reshape(rows, (rows.size,))
        try:
            yield
        finally:
            self._steps, self.real_steps = before

    def _repeated(self, mask: Mask, steps: int) -> Mask:
        """The mask for steps as rows."""
        rows, size = mask.batch * steps, mask.size
        value = OPS.broadcast_to(OPS.expand_dims(mask.value, 1), (mask.batch, steps, size))
        return replace(mask, value=OPS.reshape(value, (rows, size)), of_rows=mask)

    def of_steps(self, mask: Mask) -> Mask:
        """The mask for rows of steps, from one for steps as rows."""
        if mask.of_rows is not None:
            return mask.of_rows
        assert mask.made is not None
        source, step = mask.made
        return self._resized(self.of_steps(source), step, mask.size)

    def zeroed(self, v: Value, axis: int) -> Value:
        """The tensor with padding along an axis set to zero."""
        mask = self.along(v, axis)
        if mask is None:
            return v
        return self.declare(OPS.where(spread(mask, v.rank, axis), v, OPS.zeros_like(v)), self.of(v))

    def last_repeated(self, v: Value, axis: int) -> Value:
        """The tensor with the last real element along an axis repeated in the next position."""
        mask = self.along(v, axis)
        if mask is None:
            return v
        before = OPS.roll(v, 1, axis)
        ended = spread(OPS.logical_not(mask), v.rank, axis)
        return self.declare(OPS.where(ended, before, v), self.of(v))

    def real(self, v: Value) -> Value | None:
        """A float tensor that broadcasts to v: 1 for real elements, 0 for padding of the batch or
        an axis; None if all elements are real."""
        real: Value | None = None
        for axis, mask in self.of(v).items():
            part = spread(OPS.cast(mask.value, v.dtype), v.rank, axis)
            real = part if real is None else real * part
        if self.rows_vary:
            self.layers_that_hide_rows.add(current_layer())
            batch = v.shape[0] // self._steps
            of_batch = OPS.cast(self.real_rows(batch, v.dtype), v.dtype)
            rows = OPS.broadcast_to(OPS.expand_dims(of_batch, 1), (batch, self._steps))
            rows = OPS.reshape(rows, (v.shape[0], *(1,) * (v.rank - 1)))
            real = rows if real is None else real * rows
        if self.real_steps is not None:
            steps = OPS.reshape(OPS.cast(self.real_steps, v.dtype),
                                (v.shape[0], *(1,) * (v.rank - 1)))
            real = steps if real is None else real * steps
        return real

    def real_rows(self, batch: int, d: DType) -> Value:
        """An input of the function: 1 for each real row of the batch, 0 for padding rows. The first
        request determines its dtype."""
        if self._real_rows is None:
            self._real_rows = leaf("input", REAL, (batch,), d)
        return self._real_rows

    def hidden(self, inputs: Sequence[Any], outputs: Sequence[Any], masks: Sequence[Any]) -> None:
        """Records that a layer with a mask has hidden the padding of its inputs, so it may mix
        steps. Outputs with a mask are padded like the inputs.

        Args:
            inputs: The tensors that the layer was called on, with masks of axis 1.
            outputs: Its results.
            masks: For each of the first outputs, the mask or None.
        """
        padded = [self.of(x) for x in inputs if isinstance(x, Value)]
        if not any(padded) or any(set(axes) - {1} for axes in padded):
            return
        steps = next(axes[1] for axes in padded if axes)
        for v, mask in zip_longest(outputs, masks):
            try:
                self.of(v)  # includes values that a layer declared
            except Unsupported:
                self.declare(v, {} if mask is None else {1: steps})


def spread(mask: Value, rank: int, axis: int) -> Value:
    """A mask (batch, size) as a tensor that broadcasts along all axes except the batch and
    `axis`."""
    shape = [1] * rank
    shape[0], shape[axis] = mask.shape
    return OPS.reshape(mask, tuple(shape))
