"""The functions of `keras.activations`, as ops. Users access them as `zt.activations`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch import ops
from ztorch.config import described
from ztorch.layers.activation import ACTIVATIONS, checked_activation


def get(identifier: Any) -> Callable[[Any], Any]:
    """The function of an activation.

    Args:
        identifier: A name such as "relu", a function, or `None`, which is "linear".

    Raises:
        UnknownName: No activation has this name.

    Examples:
        >>> import ztorch as zt
        >>> get("relu")(zt.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    known = checked_activation(identifier)
    function: Callable[[Any], Any] = (
        known if callable(known) else getattr(ops, known or "linear"))
    return function


def serialize(activation: Callable[..., Any]) -> str:
    """The name of an activation.

    Args:
        activation: The function.

    Raises:
        ConfigError: The function is not an activation, and it was never registered.

    Examples:
        >>> import ztorch as zt
        >>> serialize(zt.activations.relu)
        'relu'
    """
    known = checked_activation(activation)
    return described(known, "serialize") if callable(known) else known or "linear"


deserialize = get


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(ops, name)


def __dir__() -> list[str]:
    return ["deserialize", "get", "serialize", *ACTIVATIONS]
