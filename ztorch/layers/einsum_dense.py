"""EinsumDense: a dense layer over any axes, written as an equation."""

from __future__ import annotations

import math
import re
from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.attention import AsMatrix
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer

_EQUATION = re.compile(r"(\.\.\.)?([a-zA-Z]+)(\.\.\.)?,([a-zA-Z]+)->(\.\.\.)?([a-zA-Z]+)(\.\.\.)?")


class EinsumDense(Layer):
    """A dense layer over any axes: an einsum of the input and a kernel.

    `EinsumDense("abc,cd->abd", (None, 4), bias_axes="d")` is `Dense(4)` for sequences.

    Args:
        equation: Axes of the input, the kernel and the output, one letter each, such as
            `"ab,bc->ac"`. The first letter is the batch; `"..."` stands for any axes.
        output_shape: Shape of one output, without the batch and the axes of `"..."`. `None` as a
            size means that of the input.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        bias_axes: Letters of the output axes that have a bias, such as `"c"`. `None` means no bias.
            Default: `None`.
        kernel_initializer: Initializer of the kernel: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        As in the equation.

    Output shape:
        As in the equation.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> heads = EinsumDense("...x,xhd->...hd", (2, 3), bias_axes="hd")
        >>> model = Sequential([Input((7, 6)), heads])
        >>> model.output_shape, [w.shape for w in model.weights]
        ((None, 7, 2, 3), [(6, 2, 3), (2, 3)])
    """

    needs_floats = True

    def __init__(self, equation: str, output_shape: Any, activation: ActivationLike = None,
                 bias_axes: str | None = None, kernel_initializer: Any = "glorot_uniform",
                 bias_initializer: Any = "zeros", **common: Any):
        super().__init__(**common)
        match = _EQUATION.fullmatch(equation) if isinstance(equation, str) else None
        if match is None or match[1] != match[5] or match[3] != match[7] or (match[1] and match[3]):
            raise ConfigError(f"EinsumDense(equation={equation!r}) must be like 'ab,bc->ac', "
                              "'...b,bc->...c' or 'ab...,bc->ac...'")
        self.inputs, self.kernel_axes, self.outputs = match[2], match[4], match[6]
        for letter in self.kernel_axes + self.outputs:
            if letter not in (self.outputs + self.inputs if letter in self.kernel_axes else
                              self.inputs + self.kernel_axes):
                raise ConfigError(f"EinsumDense(equation={equation!r}): axis {letter!r} is neither "
                                  "in the input nor in the kernel and output")
        if bias_axes is not None and (not isinstance(bias_axes, str) or not bias_axes
                                      or {*bias_axes} - {*self.outputs}):
            raise ConfigError(f"EinsumDense(bias_axes={bias_axes!r}) must be letters of the output "
                              f"{self.outputs!r}")
        sizes = output_shape if isinstance(output_shape, (list, tuple)) else (output_shape,)
        self.equation, self.bias_axes = equation, bias_axes
        self.output_shape = tuple(None if n is None else positive(
            "EinsumDense(output_shape=...)", n) for n in sizes)
        self.activation = checked_activation(activation)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer

    def build(self, input_shape: Shape) -> None:
        sizes = self._sizes(input_shape)
        shape = tuple(sizes[letter] for letter in self.kernel_axes)
        rows = math.prod(sizes[k] for k in self.kernel_axes if k not in self.outputs)
        self.kernel = self.add_weight("kernel", shape, AsMatrix(self.kernel_initializer, rows))
        if self.bias_axes is not None:
            first = min(map(self.outputs.index, self.bias_axes))
            behind = len(input_shape) + 1 - len(self.inputs) if self.equation.endswith(".") else 0
            self.bias = self.add_weight(
                "bias", (*(sizes[k] if k in self.bias_axes else 1 for k in self.outputs[first:]),
                         *(1,) * behind), self.bias_initializer)

    def _sizes(self, input_shape: Shape) -> dict[str, int]:
        """The sizes of axes by letter, except the batch."""
        shape: tuple[int | None, ...] = (None, *input_shape)
        more = len(shape) - len(self.inputs)
        elided = "..." in self.equation
        if more < 0 or (more and not elided):
            raise shape_error(f"inputs do not fit the equation {self.equation!r}:", input_shape,
                              fix="give the input a letter for each axis, the batch first")
        left = self.equation.startswith("...")
        axes = shape[more:] if left else shape[:len(self.inputs)]
        sizes = {k: n for k, n in zip(self.inputs, axes, strict=True) if n is not None}
        outputs = self.outputs if left and more else self.outputs[1:]
        if len(outputs) != len(self.output_shape):
            raise shape_error(f"output_shape does not fit the equation {self.equation!r}:",
                              self.output_shape, fix=f"give sizes of the axes {outputs!r}")
        for letter, size in zip(outputs, self.output_shape, strict=True):
            if size is not None and sizes.setdefault(letter, size) != size:
                raise shape_error(f"axis {letter!r} of the equation {self.equation!r} has two "
                                  "sizes:", input_shape, self.output_shape,
                                  fix="use None for axes of the input")
        missing = next((k for k in self.kernel_axes if k not in sizes), None)
        if missing is not None:
            raise shape_error(f"the size of axis {missing!r} of the kernel is unknown:",
                              self.output_shape, fix="set it in output_shape")
        return sizes

    def call(self, x: Value, context: Context) -> Value:
        if x.rank != len(self.inputs) and "..." not in self.equation:
            raise shape_error(f"inputs do not fit the equation {self.equation!r}:", x.shape[1:],
                              fix="give the input a letter for each axis, the batch first")
        y = OPS.einsum(self.equation, x, context.read(self.kernel))
        if self.bias_axes is not None:
            y = y + context.read(self.bias)
        return activate(self.activation, y, context)
