"""Layers that merge several tensors: a list of tensors, as in Keras, or the outputs of branches."""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, broadcast_shapes, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.nested import Container
from ztorch.layers.symbol import leaves


class Merge(Container, abstract=True):
    """Base class of the merge layers.

    Called on a list of tensors, the layer merges them. With branches, it is called on one tensor
    and merges the outputs of the branches.
    """

    layers_are = "branches"
    takes_many = True
    takes = "at least 2"  # number of tensors

    def __init__(self, *branches: Layer, **common: Any):
        super().__init__(*branches, **common)
        if branches:
            self.need_count(len(branches), self.name)

    def need_count(self, count: int, name: str) -> None:
        """Raises a ConfigError unless the layer can merge this many branches."""
        if self.takes == "2" and count != 2:
            raise ConfigError(f"{type(self).__name__} takes 2 branches, not {count}: layer "
                              f"{name!r}")

    def call(self, x: Any, context: Context) -> Value:
        kind = type(self).__name__
        if self.adopted:
            if not isinstance(x, Value):
                raise shape_error(f"{kind} with branches takes one tensor, not {len(x)}",
                                  fix=f"to merge tensors, use {kind}()([a, b])")
            values = [branch(x, context) for branch in self.adopted]
            y = self.merged(values, context, [branch.name for branch in self.adopted])
            mask = self.joint_mask(values, [context.masks.get(v) for v in values])
            if mask is not None:
                context.set_mask(y, mask)
            return y
        if isinstance(x, (Value, dict)) or len(x) < 2 or (self.takes == "2" and len(x) != 2):
            count = "one" if isinstance(x, Value) else str(len(x))
            raise shape_error(f"{kind} merges a list of {self.takes} tensors, not {count}",
                              fix=f"in a Model use {kind}()([a, b]); in a Sequential add "
                                  f"branches, such as {kind}(Dense(3), Dense(3))")
        return self.merged(list(x), context)

    def merged(self, values: list[Value], context: Context,
               branches: list[str] | None = None) -> Value:
        """The merged tensor. Errors name branches, and the layers that computed the shapes."""
        for k, v in enumerate(values):
            if v.dtype != values[0].dtype:
                raise mismatch(f"are {values[0].dtype} and {v.dtype}", values, k, context,
                               branches, "cast one, such as with Rescaling(1.0)")
        self.fit(values, context, branches)
        masks = [context.masks.get(v) for v in values]
        if all(mask is None for mask in masks):
            return self.merge(values)
        rank = max(v.rank for v in values)
        return self.merge_counted(widened(values), [mask if mask is None else OPS.reshape(mask, (
            mask.shape[0], *(1,) * (rank - v.rank), *mask.shape[1:], *(1,) * (v.rank - mask.rank)))
            for v, mask in zip(values, masks, strict=True)])

    def merge(self, values: list[Value]) -> Value:
        raise NotImplementedError

    def merge_counted(self, values: list[Value], masks: list[Value | None]) -> Value:
        """The merged tensor if some steps are masked. All tensors and masks have the same rank."""
        return self.merge(values)

    def compute_mask(self, x: Any, mask: Any = None) -> Value | None:
        """The mask for a list of tensors; `call` sets the mask for branches."""
        return None if self.adopted else self.joint_mask(leaves(x), leaves(mask))

    def joint_mask(self, values: list[Value], masks: list[Value | None]) -> Value | None:
        """The mask of the merged tensor: as in Keras, a step counts if it counts in any tensor."""
        present = [mask for mask in masks if mask is not None]
        return reduce(OPS.bitwise_or, present) if len(present) == len(masks) else None

    def fit(self, values: list[Value], context: Context, branches: list[str] | None) -> None:
        """Raises a ShapeError unless the tensors broadcast together. As in Keras, missing axes are
        inserted after the batch, so (8,) and (4, 4, 8) match by channel."""
        first, *others = widened(values)
        for k, v in enumerate(others, 1):
            if any(a != b and 1 not in (a, b) for a, b in zip(v.shape, first.shape, strict=True)):
                raise mismatch("do not fit together", values, k, context, branches,
                               "axes must be equal or 1")

    def alike(self, values: list[Value]) -> list[Value]:
        """The tensors, broadcast to their common shape."""
        wide = widened(values)
        shape = broadcast_shapes(*(v.shape for v in wide))
        return [OPS.broadcast_to(v, shape) for v in wide]


def widened(values: list[Value]) -> list[Value]:
    rank = max(v.rank for v in values)
    return [OPS.reshape(v, (v.shape[0], *(1,) * (rank - v.rank), *v.shape[1:])) for v in values]


def mismatch(problem: str, values: list[Value], k: int, context: Context,
             branches: list[str] | None, fix: str) -> Exception:
    """The error for tensors 0 and k: their shapes, and the layers that computed them."""
    first, other = values[0], values[k]
    both = f"branches {branches[0]!r} and {branches[k]!r}" if branches else f"tensors 0 and {k}"
    return shape_error(f"{both} {problem}:", first.shape[1:], other.shape[1:],
                       fix=f"they diverge at {context.origin(first, other.shape)}, and "
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
        (None, 3)
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
        (None, 3)
    """

    takes = "2"

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.sub, self.alike(values))


class Multiply(Merge):
    """The product of tensors, element by element.

    `Multiply(Identity(), gate)` lets a gate scale each element.

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
        (None, 5, 3)
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.mul, self.alike(values))

    def merge_counted(self, values: list[Value], masks: list[Value | None]) -> Value:
        """Masked steps are 1 in the product, and 0 if they are masked in all tensors."""
        y = self.merge([v if mask is None else OPS.where(mask, v, OPS.full_like(v, 1))
                        for v, mask in zip(values, masks, strict=True)])
        joint = self.joint_mask(values, masks)
        return y if joint is None else OPS.where(joint, y, OPS.full_like(y, 0))


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
        (None, 3)
    """

    def merge(self, values: list[Value]) -> Value:
        total = reduce(OPS.add, self.alike(values))
        total = total if total.dtype.is_float else OPS.cast(total, "float32")
        return total * (1.0 / len(values))


class Extreme(Merge, abstract=True):
    """Base class of the layers that compute the maximum or minimum of tensors."""

    better: ClassVar[str]  # the op for two tensors

    def merge(self, values: list[Value]) -> Value:
        return reduce(getattr(OPS, self.better), self.alike(values))

    def merge_counted(self, values: list[Value], masks: list[Value | None]) -> Value:
        """A step that counts in only one of two tensors is taken from that one."""
        (y, *others), counts, better = self.alike(values), masks[0], getattr(OPS, self.better)
        for x, mask in zip(others, masks[1:], strict=True):
            x = x if mask is None else OPS.where(mask, x, y)
            y = better(y if counts is None else OPS.where(counts, y, x), x)
            counts = None if mask is None or counts is None else OPS.bitwise_or(counts, mask)
        return y


class Maximum(Extreme):
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
        (None, 3)
    """

    better = "maximum"


class Minimum(Extreme):
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
        (None, 3)
    """

    better = "minimum"
