"""A kernel as a layer. Some of its arguments may be weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, KernelError, unknown
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import leaves
from ztorch.names.own_functions import in_memory

if TYPE_CHECKING:
    from ztorch.kernels import KernelFunction


class Kernel(Layer):
    """A kernel, `@zt.kernel`, as a layer.

    It cannot be saved in a config, which cannot hold a function.

    Args:
        function: The kernel. Its arguments are the inputs of the layer, in order, except weights,
            options, and numbers that have a default. It must preserve the batch axis.
        weights: The initializer of each argument that is a weight, if the kernel's signature gives
            its shape by names of input sizes; otherwise a pair (shape, initializer). `None` means
            no weights. Default: `None`.
        options: Arguments that are compiled in, by name. `None` means no options. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the kernel accepts.

    Output shape:
        That of the kernel's result.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel("f32[b, n], f32[n], f32[n] -> f32[b, n]")
        ... def scale_shift(x, g, c):
        ...     out = np.empty_like(x)
        ...     for i, j in zt.grid(*x.shape):
        ...         out[i, j] = x[i, j] * g[j] + c[j]
        ...     return out
        >>> layer = Kernel(scale_shift, weights={"g": "ones", "c": "zeros"})
        >>> model = zt.Sequential([zt.layers.Input((4,)), layer])
        >>> [(w.path, w.shape) for w in model.weights]
        [('kernel/g', (4,)), ('kernel/c', (4,))]
    """

    takes_many = True

    def __init__(self, function: KernelFunction, weights: Mapping[str, Any] | None = None,
                 options: Mapping[str, Any] | None = None, **common: Any):
        from ztorch.kernels import KernelFunction  # imported late: other layers do not need it

        super().__init__(**common)
        if not isinstance(function, KernelFunction):
            raise ConfigError(f"Kernel takes a function with @zt.kernel, not {function!r}")
        self.function = function
        self.specs, self.options = dict(weights or {}), dict(options or {})
        for name in (*self.specs, *self.options):
            if name not in function.parameters:
                raise unknown(f"argument of {function!r}", name, function.parameters)
        self.inputs_taken = [n for n, p in inspect.signature(function.function).parameters.items()
                             if not (n in self.specs or n in self.options
                                     or isinstance(p.default, (bool, int, float, str)))]

    def build(self, input_shape: Any) -> None:
        shapes = input_shape if isinstance(input_shape, list) else [input_shape]
        sizes = self._sizes(shapes)
        for name, spec in self.specs.items():
            shape, initializer = spec if isinstance(spec, tuple) else (
                self._shape(name, sizes), spec)
            self.add_weight(name, tuple(shape), initializer)

    def _sizes(self, shapes: list[Shape]) -> dict[str, int]:
        """The sizes of the names in the signature, without the batch."""
        sizes: dict[str, int] = {}
        for name, shape in zip(self.inputs_taken, shapes, strict=False):
            for dim, n in zip((self._dims(name) or ())[1:], shape, strict=False):
                if isinstance(dim, str):
                    sizes.setdefault(dim, n)
        return sizes

    def _dims(self, name: str) -> tuple[int | str, ...] | None:
        """The sizes of an argument, as in the signature; None if it says nothing."""
        signature, at = self.function.signature, self.function.parameters.index(name)
        if signature is None or at >= len(signature.arguments):
            return None
        return signature.arguments[at].dims

    def _shape(self, name: str, sizes: Mapping[str, int]) -> Shape:
        dims = self._dims(name)
        shape = tuple(sizes.get(d, 0) if isinstance(d, str) else d for d in dims or ())
        if dims is None or 0 in shape:
            raise ConfigError(f"layer {self.name!r}: the shape of weight {name!r} is unknown; "
                              f"use weights={{{name!r}: (shape, initializer)}}, or add a signature "
                              "to the kernel that names the sizes of its inputs")
        return shape

    def call(self, x: Any, context: Context) -> Value:
        inputs = leaves(x)
        if len(inputs) != len(self.inputs_taken):
            raise shape_error(f"{self.function!r} takes {len(self.inputs_taken)} inputs "
                              f"({', '.join(self.inputs_taken)}), not {len(inputs)}")
        arguments = dict(zip(self.inputs_taken, inputs, strict=True))
        arguments |= {w.name: context.read(w) for w in self.own_weights}
        try:
            y = self.function(**arguments, **self.options)
        except KernelError as error:
            raise KernelError(f"layer {self.path!r}: {error}") from None
        if not isinstance(y, Value):
            raise shape_error(f"{self.function!r} returns {len(y)} tensors",
                              fix="a layer returns one result")
        if y.shape[:1] != inputs[0].shape[:1]:
            raise shape_error(f"{self.function!r} changed the batch axis:", inputs[0].shape,
                              y.shape, fix="axis 0 must stay; loop over it")
        return y

    def get_config(self) -> dict[str, Any]:
        if in_memory():
            return {"name": self.name, "function": self.function, "weights": self.specs,
                    "options": self.options, "trainable": self.trainable}
        raise ConfigError(f"layer {self.name!r} is a Kernel, and a config cannot store a function; "
                          "make it a subclass of Layer that calls the kernel")
