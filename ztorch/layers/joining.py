"""Merge layers that join tensors along an axis or multiply them; the table of merge layers."""

from __future__ import annotations

import math
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.merge import Add, Average, Maximum, Merge, Minimum, Multiply, Subtract, mismatch
from ztorch.layers.unit_scale import of_length_1


class Concatenate(Merge):
    """Joins tensors along an axis.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        axis: Axis along which tensors are joined, where axis 0 is the batch. Default: `-1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that differ only along `axis`; with branches, one tensor.

    Output shape:
        The input shape, with the sum of the sizes along `axis`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Identity, Input
        >>> Sequential([Input((4,)), Concatenate(Dense(3), Dense(2), Identity())]).output_shape
        (None, 9)
        >>> Concatenate(axis=1)([Input((5, 4)), Input((2, 4))]).shape
        (None, 7, 4)
    """

    def __init__(self, *branches: Layer, axis: int = -1, **common: Any):
        if branches and isinstance(branches[0], int):
            raise ConfigError(f"Concatenate({branches[0]}) means a branch, not an axis; write "
                              f"Concatenate(axis={branches[0]})")
        super().__init__(*branches, **common)
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise ConfigError(f"Concatenate(axis={axis!r}) must be an integer, such as -1")
        self.axis = axis

    def fit(self, values: list[Value], context: Context, branches: list[str] | None) -> None:
        first, rank = values[0], values[0].rank
        if not -rank < self.axis < rank or self.axis == 0:
            raise shape_error(f"axis {self.axis} is out of range for "
                              f"{'branches that give' if branches else 'tensors of shape'}",
                              first.shape[1:], fix=f"use 1 to {rank - 1}, or -1 to {1 - rank}")
        at = self.axis % rank
        for k, v in enumerate(values):
            if v.rank != rank or v.shape[:at] + v.shape[at + 1:] != first.shape[:at] + first.shape[
                    at + 1:]:
                raise mismatch(f"cannot be joined along axis {self.axis}", values, k, context,
                               branches, "all other axes must agree")

    def merge(self, values: list[Value]) -> Value:
        return OPS.concat(*values, axis=self.axis % values[0].rank)

    def joint_mask(self, values: list[Value], masks: list[Value | None]) -> Value | None:
        """As in Keras: along the steps, masks are joined as well; along other axes a step counts if
        it counts in any tensor."""
        if self.axis % values[0].rank != 1 or not any(m is not None for m in masks):
            return super().joint_mask(values, masks)
        full_masks = [OPS.full(v.shape[:2], True, "bool") if m is None else m
                      for v, m in zip(values, masks, strict=True)]
        return OPS.concat(*full_masks, axis=1)


class Dot(Merge):
    """Sums the products of two tensors along one axis of each.

    Args:
        axes: The axis of both tensors, or one for each, where axis 0 is the batch.
        normalize: Whether to normalize vectors along the axes first, which gives the cosine
            similarity. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of two tensors with the same size along their axes.

    Output shape:
        The remaining axes of the first tensor, then those of the second; `(batch, 1)` if none
        remain.

    Examples:
        >>> from ztorch.layers import Input
        >>> Dot(axes=(2, 1))([Input((5, 4)), Input((4, 3))]).shape, Dot(1)([Input((7,))] * 2).shape
        ((None, 5, 3), (None, 1))
    """

    takes = "2"
    supports_masking = False  # it sums over steps or mixes them

    def __init__(self, axes: Any, normalize: bool = False, **common: Any):
        super().__init__(**common)
        pair = axes if isinstance(axes, (list, tuple)) else (axes, axes)
        if len(pair) != 2 or any(isinstance(a, bool) or not isinstance(a, int) for a in pair):
            raise ConfigError(f"Dot(axes={axes!r}) must be an axis, or one for each tensor, "
                              "such as (2, 1)")
        self.axes = tuple(pair)
        self.normalize = normalize

    def fit(self, values: list[Value], context: Context, branches: list[str] | None) -> None:
        for v, axis in zip(values, self.axes, strict=True):
            if not -v.rank < axis < v.rank or axis == 0:
                raise shape_error(f"axis {axis} is out of range for a tensor of shape", v.shape[1:],
                                  fix=f"use 1 to {v.rank - 1}, or -1 to {1 - v.rank}")
        lengths = [v.shape[axis] for v, axis in zip(values, self.axes, strict=True)]
        if lengths[0] != lengths[1]:
            raise mismatch(f"have {lengths[0]} and {lengths[1]} numbers along axes {self.axes}",
                           values, 1, context, branches, "both axes must have the same size")

    def merge(self, values: list[Value]) -> Value:
        (a, a_rest), (b, b_rest) = (self._rows(v, axis)
                                    for v, axis in zip(values, self.axes, strict=True))
        y = OPS.matmul(a, OPS.transpose(b, (0, 2, 1)))
        return OPS.reshape(y, (y.shape[0], *((*a_rest, *b_rest) or (1,))))

    def _rows(self, v: Value, axis: int) -> tuple[Value, Shape]:
        """The tensor as (batch, rows, numbers along the axis), and the sizes that make the rows."""
        axis %= v.rank
        if self.normalize:
            v = of_length_1(v, (axis,), 1e-7)
        others = [n for n in range(1, v.rank) if n != axis]
        rest = tuple(v.shape[n] for n in others)
        return OPS.reshape(OPS.transpose(v, (0, *others, axis)),
                           (v.shape[0], math.prod(rest), v.shape[axis])), rest


MERGES: dict[str, type[Merge]] = {
    "concat": Concatenate, "add": Add, "subtract": Subtract, "multiply": Multiply,
    "average": Average, "maximum": Maximum, "minimum": Minimum}
