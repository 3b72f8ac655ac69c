"""Losses and metrics on users' numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ztorch import dispatch
from ztorch.graph.op import OPS, as_value, shape_error
from ztorch.graph.value import Value


def on_numbers(culprit: str, member: Any, function: Callable[..., Any],
               operands: Sequence[Any]) -> Any:
    """Applies a function of values to users' arguments: values of a traced step, or numbers."""
    if any(isinstance(x, Value) for x in operands):
        return function(*map(as_value, operands))
    registered = member.known.get(type(member).config_name) is type(member)
    key = (type(member), repr(member)) if registered else member
    return dispatch.on_numbers(culprit, key, function, operands)


def fitting_weights(culprit: str, weight: Value, values: Value) -> Value:
    """Weights of rows or positions, in the shape and dtype of the values that they multiply."""
    if weight.rank > values.rank and weight.shape[-1] == 1:
        weight = OPS.reshape(weight, weight.shape[:-1])
    if weight.shape != values.shape[:weight.rank]:
        raise shape_error(f"{culprit}: sample_weight does not fit the values:",
                          weight.shape, values.shape, fix="give one for each row")
    weight = OPS.reshape(weight, (*weight.shape, *(1,) * (values.rank - weight.rank)))
    return OPS.cast(OPS.broadcast_to(weight, values.shape), values.dtype)


class LossFunction:
    """A loss as a function of `(y_true, y_pred)`, as in Keras. It gives one number per row or
    position, the mean over the last axis.

    >>> import numpy as np
    >>> from ztorch import losses
    >>> losses.mean_squared_error(np.zeros((2, 2)), np.ones((2, 2))).tolist()
    [1.0, 1.0]
    """

    def __init__(self, loss: Callable[..., Any], name: str):
        self.loss, self.__name__ = loss, name

    def __call__(self, y_true: Any, y_pred: Any, **arguments: Any) -> Any:
        return self.loss(**arguments, reduction=None)(y_true, y_pred)

    def __repr__(self) -> str:
        return f"<loss function {self.__name__}>"
