"""Layers that contain layers: residual connections, parallel branches, time steps, functions.

For a chain of layers use `Sequential`, which is a layer too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, unknown
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.joining import MERGES
from ztorch.layers.layer import Layer
from ztorch.layers.merge import Merge
from ztorch.layers.nested import Container
from ztorch.layers.spatial import declared
from ztorch.layers.symbol import leaves
from ztorch.names.own_functions import in_memory

if TYPE_CHECKING:
    from typing_extensions import Self


class Identity(Layer):
    """Returns its input unchanged.

    Args:
        name: Name of the layer. `None` derives it from the class. Default: `None`.
        trainable: Whether an optimizer may change the weights. Default: `True`.
        input_shape: Shape of one example, for the first layer of a `Sequential` without an `Input`.
            Default: `None`.
        **more: As for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch.layers import Input
        >>> Identity()(Input((4,))).shape
        (None, 4)
    """

    supports_masking = True

    def call(self, x: Value, context: Context) -> Value:
        return x


class Residual(Container):
    """Adds the input to the output of a chain of layers.

    Args:
        *layers: Layers that are called one after another.
        shortcut: Layer applied to the input before it is added, for chains that change the shape.
            `None` adds the input itself. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the layers accept.

    Output shape:
        The output shape of the last layer.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Input
        >>> block = Residual(Dense(8, activation="relu"), Dense(4))
        >>> wider = Residual(Dense(6), shortcut=Dense(6, use_bias=False, name="project"))
        >>> [w.path for w in Sequential([Input((4,)), block, wider]).weights][-3:]
        ['residual_1/dense/kernel', 'residual_1/dense/bias', 'residual_1/project/kernel']
    """

    supports_masking = True

    def __init__(self, *layers: Layer, shortcut: Layer | None = None, **common: Any):
        super().__init__(*layers, **common)
        self.shortcut = None if shortcut is None else self.adopt(shortcut)

    @property
    def layers(self) -> list[Layer]:
        """The chain of layers, without the shortcut."""
        return [layer for layer in self.adopted if layer is not self.shortcut]

    def call(self, x: Value, context: Context) -> Value:
        short = x if self.shortcut is None else self.shortcut(x, context)
        y = x
        for layer in self.layers:
            y = layer(y, context)
        if y.shape != short.shape:
            fix = ("keep the shape, or add shortcut=, a layer that produces the shape of the "
                   "other branch" if self.shortcut is None else
                   f"match the shortcut, layer {self.shortcut.name!r}")
            raise shape_error("branches cannot be added: layers and shortcut give", y.shape[1:],
                              short.shape[1:], fix="they diverge at "
                              f"{context.origin(y, short.shape)}: {fix}")
        return y + short


class Parallel(Container):
    """Calls several branches on one input and merges their outputs.

    Args:
        branches: A list of layers.
        merge: `"concat"`, `"add"`, `"subtract"`, `"multiply"`, `"average"`, `"maximum"`,
            `"minimum"`, or a merge layer without branches. Default: `"concat"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the branches accept.

    Output shape:
        The merged shape of the branches' outputs.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Concatenate, Dense, Input
        >>> Sequential([Input((4,)), Parallel([Dense(3), Dense(2), Identity()])]).output_shape
        (None, 9)
        >>> Sequential([Input((5, 4)), Parallel([Dense(4), Identity()],
        ...                                     merge=Concatenate(axis=1))]).output_shape
        (None, 10, 4)
    """

    supports_masking = True
    layers_are = "branches"

    def __init__(self, branches: Iterable[Layer], merge: Any = "concat", **common: Any):
        if isinstance(branches, Layer) or not isinstance(branches, Iterable):
            raise ConfigError(f"Parallel takes a list of branches, not {branches!r}; write "
                              "Parallel([Dense(3), Dense(2)])")
        super().__init__(*branches, **common)
        self.merge = merge if isinstance(merge, str) else Layer.get(merge)
        if isinstance(merge, str) and merge not in MERGES:
            raise unknown("merge", merge, MERGES)
        merging = MERGES[merge]() if isinstance(merge, str) else self.merge
        if not isinstance(merging, Merge) or merging.adopted:
            raise ConfigError(f"Parallel(merge={merge!r}) must be one of {', '.join(MERGES)}, or a "
                              "merge layer without branches, such as Concatenate(axis=1)")
        self.merging = merging
        merging.need_count(len(self.adopted), self.name)

    @property
    def branches(self) -> list[Layer]:
        """The branches."""
        return self.layers

    def call(self, x: Value, context: Context) -> Value:
        branches = [branch(x, context) for branch in self.adopted]
        return self.merging.merged(branches, context, [b.name for b in self.adopted])

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return super(Container, cls).from_config(config)


# -- around one layer, or none ---------------------------------------------------------------------


class TimeDistributed(Layer):
    """Calls one layer on every step of a sequence.

    All steps run as one larger batch, so a BatchNormalization inside sees all of them. A mask
    `(batch, steps)` is passed on to the next layer. Of a mask with more axes, the layer gets the
    part for its step.

    Args:
        layer: The layer for one step.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, ...)`, with at least one axis after the steps.

    Output shape:
        `(batch, steps, ...)`: the output shape of the layer for each step.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Flatten, Input
        >>> Sequential([Input((5, 4, 2)), TimeDistributed(Flatten())]).output_shape
        (None, 5, 8)
    """

    def __init__(self, layer: Layer, **common: Any):
        super().__init__(**common)
        self.layer = self.adopt(layer)

    def call(self, x: Value, context: Context, *, mask: Value | None = None) -> Value:
        if x.rank < 3:
            raise shape_error("TimeDistributed needs inputs of at least 2 axes (time, features) "
                              "besides the batch, not", x.shape[1:],
                              fix="add a Reshape((steps, features)) before it")
        steps, padding = x.shape[:2], context.padding
        padded = padding.of(x)
        merged = OPS.reshape(x, (steps[0] * steps[1], *x.shape[2:]))
        if mask is not None and mask.rank > 2:
            context.set_mask(merged, OPS.reshape(mask, (steps[0] * steps[1], *mask.shape[2:])))
        with padding.steps_as_rows(merged, steps[1], padded):
            y = self.layer(merged, context)
            inner = padding.of(y)

        def parted(v: Value) -> Value:
            return OPS.reshape(v, (*steps, *v.shape[1:]))

        result = parted(y)
        if y in context.probabilities:  # keep the logits for the loss
            activation, logits = context.probabilities[y]
            context.remember_logits(result, activation, parted(logits))
        return declared(result, {k: padded[1] for k in padded if k == 1} | {
            k + 1: padding.of_steps(mask) for k, mask in inner.items()}, context
            ) if padded else result

    def compute_mask(self, x: Value, mask: Value | None = None) -> Value | None:
        """A step counts if any part of it does."""
        if mask is None or mask.rank == 2:
            return mask
        return OPS.any(mask, axis=tuple(range(2, mask.rank)))


class Lambda(Layer):
    """A function of `zt.ops` as a layer.

    It has no weights and cannot be saved in a config.

    Args:
        function: A function of one tensor, or of a list of tensors, that returns a tensor. It must
            preserve the batch axis.
        output_shape: Has no effect: shapes are traced. Default: `None`.
        arguments: Keyword arguments of the function, a dict. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        That of the function's result.

    Examples:
        >>> from ztorch import Sequential, ops
        >>> from ztorch.layers import Input
        >>> Sequential([Input((4, 6)), Lambda(lambda x: ops.mean(x, axis=1))]).output_shape
        (None, 6)
    """

    takes_many = True

    def __init__(self, function: Callable[..., Value], output_shape: Any = None,
                 arguments: dict[str, Any] | None = None, **common: Any):
        super().__init__(**common)
        if not callable(function) or isinstance(function, (Layer, type)):
            raise ConfigError(f"Lambda takes a function of a tensor, not {function!r}")
        if not isinstance(arguments, (dict, NoneType)):
            raise ConfigError(f"Lambda(arguments={arguments!r}) must be a dict of keywords")
        self.function, self.arguments = function, arguments

    def call(self, x: Any, context: Context) -> Value:
        function = functools.partial(self.function, **self.arguments or {})
        y = traced(function, f"layer {self.path!r}", x)
        first = leaves(x)[0]
        if not isinstance(y, Value):
            raise shape_error(f"its function returned {type(y).__name__} {y!r}",
                              fix="return a tensor made with zt.ops")
        if y.shape[:1] != first.shape[:1]:
            raise shape_error("its function changed the batch axis:", first.shape, y.shape,
                              fix="axis 0 must stay; reduce and move only later axes")
        return y

    def get_config(self) -> dict[str, Any]:
        if in_memory():
            return {"name": self.name, "function": self.function, "arguments": self.arguments,
                    **self.policy_config()}
        raise ConfigError(f"layer {self.name!r} is a Lambda, and a config cannot store a function; "
                          "make it a subclass of Layer, which is saved by its name")

    def __repr__(self) -> str:
        return f"<Lambda {self.name!r}>"
