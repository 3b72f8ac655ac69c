"""Several tensors become one: of a list, as in Keras, or of branches that work on one input."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, broadcast_shapes, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.nested import Container
from ztorch.layers.normalization import of_length_1


class Merge(Container, abstract=True):
    """Base of the layers that merge tensors.

    Called on a list of tensors, it merges them. With branches it is called on one tensor, and
    merges the outputs of the branches.
    """

    layers_are = "branches"
    takes_many = True
    takes = "at least 2"

    def __init__(self, *branches: Layer, **common: Any):
        super().__init__(*branches, **common)
        if branches:
            self.need_count(len(branches), self.name)

    def need_count(self, count: int, name: str) -> None:
        """An error unless it can merge that many."""
        if self.takes == "2" and count != 2:
            raise ConfigError(f"{type(self).__name__} takes 2 branches, not {count}: layer "
                              f"{name!r}")

    def call(self, x: Any, context: Context) -> Value:
        kind = type(self).__name__
        if self.inner:
            if not isinstance(x, Value):
                raise shape_error(f"{kind} with branches takes one tensor, not {len(x)}",
                                  fix=f"to merge them write {kind}()([a, b])")
            return self.merged([branch(x, context) for branch in self.inner], context,
                               [branch.name for branch in self.inner])
        if isinstance(x, (Value, dict)) or len(x) < 2 or (self.takes == "2" and len(x) != 2):
            count = "one" if isinstance(x, Value) else str(len(x))
            raise shape_error(f"{kind} merges a list of {self.takes} tensors, not {count}",
                              fix=f"in a Model write {kind}()([a, b]); in a Sequential give it "
                                  f"branches, such as {kind}(Dense(3), Dense(3))")
        return self.merged(list(x), context)

    def merged(self, values: list[Value], context: Context,
               branches: list[str] | None = None) -> Value:
        """What becomes of the tensors; errors name their branches and the layers before them."""
        for k, v in enumerate(values):
            if v.dtype != values[0].dtype:
                raise mismatch(f"are {values[0].dtype} and {v.dtype}", values, k, context,
                               branches, "cast one, such as with Rescaling(1.0)")
        self.fit(values, context, branches)
        return self.merge(values)

    def merge(self, values: list[Value]) -> Value:
        raise NotImplementedError

    def fit(self, values: list[Value], context: Context, branches: list[str] | None) -> None:
        """An error unless the tensors can be combined by element. As in Keras, axes that one lacks
        are put behind its batch: (8,) meets (4, 4, 8) channel by channel."""
        first, *others = widened(values)
        for k, v in enumerate(others, 1):
            if any(a != b and 1 not in (a, b) for a, b in zip(v.shape, first.shape, strict=True)):
                raise mismatch("do not fit together", values, k, context, branches,
                               "axes must be equal or 1")

    def alike(self, values: list[Value]) -> list[Value]:
        """All of them in the shape that they have together."""
        wide = widened(values)
        shape = broadcast_shapes(*(v.shape for v in wide))
        return [OPS.broadcast_to(v, shape) for v in wide]


def widened(values: list[Value]) -> list[Value]:
    rank = max(v.rank for v in values)
    return [OPS.reshape(v, (v.shape[0], *(1,) * (rank - v.rank), *v.shape[1:])) for v in values]


def mismatch(problem: str, values: list[Value], k: int, context: Context,
             branches: list[str] | None, fix: str) -> Exception:
    """The error for tensors 0 and k: their shapes, and the layers that made them so."""
    first, other = values[0], values[k]
    both = f"branches {branches[0]!r} and {branches[k]!r}" if branches else f"tensors 0 and {k}"
    return shape_error(f"{both} {problem}:", first.shape[1:], other.shape[1:],
                       fix=f"they part at {context.origin(first, other.shape)}, and "
                           f"{context.origin(other, first.shape)}: {fix}")


# -- by element ------------------------------------------------------------------------------------


class Add(Merge):
    """The sum of tensors, element by element.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Input
        >>> Sequential([Input((4,)), Add(Dense(3), Dense(3))]).count_params()
        30
        >>> x = Input((4,))
        >>> Add()([Dense(3)(x), Dense(3)(x)]).shape
        (3,)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.add, self.alike(values))


class Subtract(Merge):
    """The first tensor minus the second, element by element.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch.layers import Input
        >>> Subtract()([Input((3,)), Input((3,))]).shape
        (3,)
    """

    takes = "2"

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.sub, self.alike(values))


class Multiply(Merge):
    """The product of tensors, element by element.

    `Multiply(Identity(), gate)` lets a gate decide how much of each number passes.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch.layers import Input
        >>> Multiply()([Input((5, 3)), Input((1, 3))]).shape
        (5, 3)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.mul, self.alike(values))


class Average(Merge):
    """The mean of tensors, element by element.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch.layers import Input
        >>> Average()([Input((3,)), Input((3,))]).shape
        (3,)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.add, self.alike(values)) * (1.0 / len(values))


class Maximum(Merge):
    """The largest of tensors, element by element.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch.layers import Input
        >>> Maximum()([Input((3,)), Input((3,))]).shape
        (3,)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.maximum, self.alike(values))


class Minimum(Merge):
    """The smallest of tensors, element by element.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that broadcast together; with branches, one tensor.

    Output shape:
        The shape that the tensors broadcast to.

    Examples:
        >>> from ztorch.layers import Input
        >>> Minimum()([Input((3,)), Input((3,))]).shape
        (3,)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.minimum, self.alike(values))


# -- side by side, and products --------------------------------------------------------------------


class Concatenate(Merge):
    """Joins tensors along an axis.

    Args:
        *branches: Layers that are called on the same input. Without branches, the layer is called
            on a list of tensors.
        axis: Axis along which tensors are joined, counted with the batch as axis 0. Default: `-1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of at least two tensors that differ only along `axis`; with branches, one tensor.

    Output shape:
        The input shape, with the sizes along `axis` added up.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Identity, Input
        >>> Sequential([Input((4,)), Concatenate(Dense(3), Dense(2), Identity())]).output_shape
        (9,)
        >>> Concatenate(axis=1)([Input((5, 4)), Input((2, 4))]).shape
        (7, 4)
    """

    def __init__(self, *branches: Layer, axis: int = -1, **common: Any):
        if branches and isinstance(branches[0], int):
            raise ConfigError(f"Concatenate({branches[0]}) is not an axis but a branch; write "
                              f"Concatenate(axis={branches[0]})")
        super().__init__(*branches, **common)
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise ConfigError(f"Concatenate(axis={axis!r}) must be a whole number, such as -1")
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


class Dot(Merge):
    """Sums the products of two tensors along one axis of each.

    Args:
        axes: The axis of both tensors, or one for each, counted with the batch as axis 0.
        normalize: Whether to scale vectors along the axes to length 1 first, which gives the cosine
            of their angle. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        A list of two tensors with the same size along their axes.

    Output shape:
        The remaining axes of the first tensor, then those of the second; `(batch, 1)` if none
        remain.

    Examples:
        >>> from ztorch.layers import Input
        >>> Dot(axes=(2, 1))([Input((5, 4)), Input((4, 3))]).shape, Dot(1)([Input((7,))] * 2).shape
        ((5, 3), (1,))
    """

    takes = "2"

    def __init__(self, axes: Any, normalize: bool = False, **common: Any):
        super().__init__(**common)
        pair = axes if isinstance(axes, (list, tuple)) else (axes, axes)
        if len(pair) != 2 or any(isinstance(a, bool) or not isinstance(a, int) for a in pair):
            raise ConfigError(f"Dot(axes={axes!r}) must be an axis, or one of each tensor, such as "
                              "(2, 1)")
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
                           values, 1, context, branches, "both axes must be as long")

    def merge(self, values: list[Value]) -> Value:
        (a, a_rest), (b, b_rest) = (self._rows(v, axis)
                                    for v, axis in zip(values, self.axes, strict=True))
        y = OPS.matmul(a, OPS.transpose(b, (0, 2, 1)))
        return OPS.reshape(y, (y.shape[0], *((*a_rest, *b_rest) or (1,))))

    def _rows(self, v: Value, axis: int) -> tuple[Value, Shape]:
        """The tensor as (batch, rows, numbers along the axis), and the axes that rows stand for."""
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
