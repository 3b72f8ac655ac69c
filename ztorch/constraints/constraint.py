"""The base class of constraints, and user-defined functions as constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.config import Named
from ztorch.errors import ConfigError
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.names.own_functions import own_function


class Constraint(Named, family="constraint", such_as="max_norm"):
    """Base class of constraints, which project a weight after each training step.

    A subclass implements `__call__` with `zt.ops`. A layer takes one for each kind of weight:
    `kernel_constraint`, `bias_constraint` ...

    Examples:
        >>> import ztorch as zt
        >>> class Bounded(Constraint):
        ...     def __call__(self, w):
        ...         return zt.ops.clip(w, -1.0, 1.0)
        >>> layer = zt.layers.Dense(3, kernel_constraint=Bounded())
    """

    def __call__(self, w: Value) -> Value:
        """The constrained weight.

        Args:
            w: The weight after the step of the optimizer.

        Returns:
            A tensor of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__}.__call__")


class _FunctionConstraint(Constraint, abstract=True):
    """A user-defined function as a constraint."""

    def __init__(self, function: Callable[[Value], Value]):
        self.own_function = function  # configs may name it

    def __call__(self, w: Value) -> Value:
        new = traced(self.own_function, f"constraint {self.label!r}", w)
        if getattr(new, "shape", None) != w.shape:
            raise ConfigError(f"constraint {self.label!r} returned {new!r} for a weight of shape "
                              f"{w.shape}; return a tensor of that shape")
        return new

    @property
    def label(self) -> str:
        """The name of the function."""
        return getattr(self.own_function, "__name__", "function")

    def get_config(self) -> dict[str, Any]:
        raise ConfigError(f"constraint {self.label!r} is a function, which cannot be written to a "
                          "config; make it a subclass of Constraint")

    def __repr__(self) -> str:
        return f"<constraint {self.label}>"


def get(spec: Any) -> Constraint:
    """The constraint for a name, an instance, a class, a config or a function.

    Args:
        spec: A name such as `"non_neg"`, a `Constraint`, its class or config, or a function of a
            weight that returns the constrained weight.

    Returns:
        The constraint.

    Raises:
        UnknownName: No constraint has this name.
        ConfigError: `spec` is none of these.

    Examples:
        >>> get("max_norm").max_value
        2.0
    """
    own = own_function(spec) if isinstance(spec, str) else spec
    if callable(own) and not isinstance(own, (Constraint, type)):
        return _FunctionConstraint(own)
    return Constraint.get(spec)
