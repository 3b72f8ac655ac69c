"""The base class of regularizers, and user-defined functions as regularizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch import ops
from ztorch.config import Named
from ztorch.errors import ConfigError
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.names.own_functions import own_function


class Regularizer(Named, family="regularizer", such_as="l2"):
    """Base class of regularizers, whose penalty of a tensor is added to the loss.

    A subclass implements `__call__` with `zt.ops`. A layer takes one for each kind of weight
    (`kernel_regularizer`, `bias_regularizer` ...), and `activity_regularizer` for its output.

    Examples:
        >>> import ztorch as zt
        >>> class Range(Regularizer):
        ...     def __call__(self, x):
        ...         return 0.01 * (zt.ops.max(x) - zt.ops.min(x))
        >>> layer = zt.layers.Dense(3, kernel_regularizer=Range())
    """

    def __call__(self, x: Value) -> Value:
        """The penalty.

        Args:
            x: A weight, or the output of a layer.

        Returns:
            A scalar tensor.
        """
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    def of_rows(self, x: Value) -> Value:
        """The penalty of an output as a number for each row, whose mean is added to the loss: the
        penalty divided by the number of rows, as in Keras."""
        return ops.broadcast_to(self(x) / float(x.shape[0]), x.shape[:1])


class _FunctionRegularizer(Regularizer, abstract=True):
    """A user-defined function as a regularizer."""

    def __init__(self, function: Callable[[Value], Value]):
        self.own_function = function  # configs may name it

    def __call__(self, x: Value) -> Value:
        penalty = traced(self.own_function, f"regularizer {self.label!r}", x)
        if getattr(penalty, "shape", None) != ():
            raise ConfigError(f"regularizer {self.label!r} returned {penalty!r}, not a scalar "
                              "tensor; reduce it with zt.ops.sum")
        return penalty

    @property
    def label(self) -> str:
        """The name of the function."""
        return getattr(self.own_function, "__name__", "function")

    def get_config(self) -> dict[str, Any]:
        raise ConfigError(f"regularizer {self.label!r} is a function, which cannot be written to a "
                          "config; make it a subclass of Regularizer")

    def __repr__(self) -> str:
        return f"<regularizer {self.label}>"


def get(spec: Any) -> Regularizer:
    """The regularizer for a name, an instance, a class, a config or a function.

    Args:
        spec: A name such as `"l2"`, a `Regularizer`, its class or config, or a function of a tensor
            that returns a scalar.

    Returns:
        The regularizer.

    Raises:
        UnknownName: No regularizer has this name.
        ConfigError: `spec` is none of these.

    Examples:
        >>> get("l2").l2
        0.01
    """
    own = own_function(spec) if isinstance(spec, str) else spec
    if callable(own) and not isinstance(own, (Regularizer, type)):
        return _FunctionRegularizer(own)
    return Regularizer.get(spec)
