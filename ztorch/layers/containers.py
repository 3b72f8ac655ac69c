"""Layers made of layers: branches that meet again, steps of a sequence, functions of your own.

Several layers in a row are a `Sequential`, which is a layer too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from ztorch.config import described
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, broadcast_shapes, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer

if TYPE_CHECKING:
    from typing_extensions import Self


class Identity(Layer):
    """Its input: the branch that does nothing."""

    def call(self, x: Value, context: Context) -> Value:
        return x


class _Container(Layer):
    """Takes layers one by one, and describes them as a list."""

    layers_are = "layers"  # what the description calls them

    def __init__(self, *layers: Layer, **common: Any):
        super().__init__(**common)
        if not layers:
            raise ConfigError(f"{type(self).__name__} needs {self.layers_are}, such as Dense(10)")
        for layer in layers:
            self.adopt(layer)

    def adopt(self, given: Any) -> Layer:
        layer = super().adopt(given)
        if isinstance(layer, Input):
            raise ConfigError(f"layer {self.name!r} takes no Input: the model around it has one")
        return layer

    @property
    def layers(self) -> list[Layer]:
        """The layers inside."""
        return list(self.inner)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(),
                self.layers_are: [described(layer, layer.name) for layer in self.layers]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        rest = dict(config)
        layers = rest.pop(cls.layers_are, None)
        try:
            if not isinstance(layers, list):
                raise TypeError(f"it has no list of {cls.layers_are}")
            inspect.signature(cls).bind(*layers, **rest)
        except TypeError as error:
            raise ConfigError(f"this config does not describe a {cls.__name__}: {error}") from None
        return cls(*layers, **rest)


class Residual(_Container):
    """What its layers make of the input, plus the input; or plus what `shortcut` makes of it.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Dense, Input
    >>> block = Residual(Dense(8, activation="relu"), Dense(4))
    >>> wider = Residual(Dense(6), shortcut=Dense(6, use_bias=False, name="project"))
    >>> [w.path for w in Sequential([Input((4,)), block, wider]).weights][-3:]
    ['residual_1/dense/kernel', 'residual_1/dense/bias', 'residual_1/project/kernel']
    """

    def __init__(self, *layers: Layer, shortcut: Layer | None = None, **common: Any):
        super().__init__(*layers, **common)
        self.shortcut = None if shortcut is None else self.adopt(shortcut)

    @property
    def layers(self) -> list[Layer]:
        """The layers of the branch that is not the shortcut."""
        return [layer for layer in self.inner if layer is not self.shortcut]

    def call(self, x: Value, context: Context) -> Value:
        short = x if self.shortcut is None else self.shortcut(x, context)
        y, shapes = x, [x.shape]
        for layer in self.layers:
            y = layer(y, context)
            shapes.append(y.shape)
        if y.shape != short.shape:
            raise self._apart(shapes, short.shape)
        return y + short

    def _apart(self, shapes: list[Shape], short: Shape) -> Exception:
        """The error that names the last layer that changed what differs in the end."""
        last = shapes[-1]

        def differing(a: Shape, b: Shape) -> set[int]:
            """Axes that differ; -1 stands for their number."""
            return {-1} if len(a) != len(b) else {k for k in range(len(a)) if a[k] != b[k]}

        wrong = differing(last, short)
        steps = list(zip(self.layers, shapes, shapes[1:], strict=False))
        culprit, before, after = next(
            (step for step in reversed(steps) if differing(*step[1:]) & {-1, *wrong}), steps[-1])
        other = ("make it keep the shape, or add shortcut=, a layer that gives the shape of the "
                 "other branch" if self.shortcut is None else
                 f"make it fit the shortcut, layer {self.shortcut.name!r}")
        return shape_error("branches cannot be added: layers and shortcut give", last[1:],
                           short[1:], fix=f"they part at layer {culprit.name!r}, which makes "
                           f"{after[1:]} of {before[1:]}: {other}")


# -- branches --------------------------------------------------------------------------------------


class _Merge(_Container):
    """Every branch works on the same input; what they give becomes one."""

    layers_are = "branches"

    def call(self, x: Value, context: Context) -> Value:
        return self.merge([branch(x, context) for branch in self.inner])

    def merge(self, values: list[Value]) -> Value:
        raise NotImplementedError

    def same_rank(self, values: list[Value]) -> list[Value]:
        """Values that can be combined by element. As in Keras, axes that one lacks are put behind
        its batch: (8,) meets (4, 4, 8) channel by channel."""
        rank = max(v.rank for v in values)
        wide = [OPS.reshape(v, (v.shape[0], *(1,) * (rank - v.rank), *v.shape[1:])) for v in values]
        for k, v in enumerate(wide):
            for a, b in zip(v.shape, wide[0].shape, strict=True):
                if a != b and 1 not in (a, b):
                    raise shape_error(f"branches {self.inner[0].name!r} and {self.inner[k].name!r} "
                                      "do not fit together:", values[0].shape[1:],
                                      values[k].shape[1:], fix="axes must be equal or 1")
        shape = broadcast_shapes(*(v.shape for v in wide))
        return [OPS.broadcast_to(v, shape) for v in wide]


class Concatenate(_Merge):
    """Branches one after another along an axis, which counts the batch as axis 0.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Dense, Input
    >>> Sequential([Input((4,)), Concatenate(Dense(3), Dense(2), Identity())]).output_shape
    (9,)
    """

    def __init__(self, *branches: Layer, axis: int = -1, **common: Any):
        super().__init__(*branches, **common)
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise ConfigError(f"Concatenate(axis={axis!r}) must be a whole number, such as -1")
        self.axis = axis

    def merge(self, values: list[Value]) -> Value:
        first, rank = values[0], values[0].rank
        if not -rank < self.axis < rank or self.axis == 0:
            raise shape_error(f"axis {self.axis} is out of range for branches that give",
                              first.shape[1:], fix=f"use 1 to {rank - 1}, or -1 to {1 - rank}")
        at = self.axis % rank
        for v, branch in zip(values, self.inner, strict=True):
            if v.rank != rank or v.shape[:at] + v.shape[at + 1:] != first.shape[:at] + first.shape[
                    at + 1:]:
                raise shape_error(
                    f"branches {self.inner[0].name!r} and {branch.name!r} cannot be joined along "
                    f"axis {self.axis}:", first.shape[1:], v.shape[1:],
                    fix="all other axes must agree")
        return OPS.concat(*values, axis=at)


class Add(_Merge):
    """The sum of the branches.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Dense, Input
    >>> Sequential([Input((4,)), Add(Dense(3), Dense(3))]).count_params()
    30
    """

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.add, self.same_rank(values))


class Subtract(_Merge):
    """The first branch minus the second."""

    def __init__(self, *branches: Layer, **common: Any):
        super().__init__(*branches, **common)
        if len(branches) != 2:
            raise ConfigError(f"Subtract takes 2 branches, not {len(branches)}")

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.sub, self.same_rank(values))


class Multiply(_Merge):
    """The product of the branches, by element: `Multiply(Identity(), gate)` lets a gate decide
    how much of each number passes."""

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.mul, self.same_rank(values))


class Average(_Merge):
    """The mean of the branches, by element."""

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.add, self.same_rank(values)) * (1.0 / len(values))


class Maximum(_Merge):
    """The largest of the branches, by element."""

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.maximum, self.same_rank(values))


class Minimum(_Merge):
    """The smallest of the branches, by element."""

    def merge(self, values: list[Value]) -> Value:
        return reduce(OPS.minimum, self.same_rank(values))


# -- around one layer, or none ---------------------------------------------------------------------


class TimeDistributed(Layer):
    """One layer for every step of a sequence: axis 1 is time. All steps run as one larger batch,
    so that BatchNormalization inside sees all of them.

    >>> from ztorch import Sequential
    >>> from ztorch.layers import Dense, Flatten, Input
    >>> Sequential([Input((5, 4, 2)), TimeDistributed(Flatten())]).output_shape
    (5, 8)
    """

    def __init__(self, layer: Layer, **common: Any):
        super().__init__(**common)
        self.layer = self.adopt(layer)

    def call(self, x: Value, context: Context) -> Value:
        if x.rank < 3:
            raise shape_error("TimeDistributed needs inputs of at least 2 axes (time, features) "
                              "besides the batch, not", x.shape[1:])
        steps = x.shape[:2]
        merged = OPS.reshape(x, (steps[0] * steps[1], *x.shape[2:]))
        y = self.layer(merged, context)

        def parted(v: Value) -> Value:
            return OPS.reshape(v, (*steps, *v.shape[1:]))

        result = parted(y)
        if y in context.probabilities:  # the loss still finds the logits
            activation, logits = context.probabilities[y]
            context.remember_logits(result, activation, parted(logits))
        return result


class Lambda(Layer):
    """A function of yours, made of `zt.ops`. It has no weights and cannot be saved in a config.

    >>> from ztorch import Sequential, ops
    >>> from ztorch.layers import Input
    >>> Sequential([Input((4, 6)), Lambda(lambda x: ops.mean(x, axis=1))]).output_shape
    (6,)
    """

    def __init__(self, function: Callable[[Value], Value], **common: Any):
        super().__init__(**common)
        if not callable(function) or isinstance(function, (Layer, type)):
            raise ConfigError(f"Lambda takes a function of a tensor, not {function!r}")
        self.function = function

    def call(self, x: Value, context: Context) -> Value:
        y = self.function(x)
        if not isinstance(y, Value):
            raise shape_error(f"its function returned {type(y).__name__} {y!r}",
                              fix="return a tensor made with zt.ops")
        if y.shape[:1] != x.shape[:1]:
            raise shape_error("its function changed the batch axis:", x.shape, y.shape,
                              fix="axis 0 must stay; reduce and move only the axes from 1 on")
        return y

    def get_config(self) -> dict[str, Any]:
        raise ConfigError(f"layer {self.name!r} is a Lambda, and a function cannot be written to a "
                          "config; make it a subclass of Layer, which is saved by its name")

    def __repr__(self) -> str:
        return f"<Lambda {self.name!r}>"
