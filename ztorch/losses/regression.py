"""Losses of numbers: squared and absolute errors, counts."""

from __future__ import annotations

import math

from ztorch.config import number
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.losses.loss import EPSILON, Loss


class MeanSquaredError(Loss, names=("mean_squared_error", "mse", "MSE")):
    """The mean of `(y_true - y_pred) ** 2`.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mse")
        MeanSquaredError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.square(y_pred - y_true)


class MeanAbsoluteError(Loss, names=("mean_absolute_error", "mae", "MAE")):
    """The mean of `|y_true - y_pred|`.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mae")
        MeanAbsoluteError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.abs(y_pred - y_true)


class MeanAbsolutePercentageError(Loss, names=("mean_absolute_percentage_error", "mape", "MAPE")):
    """The mean of `100 * |y_true - y_pred| / |y_true|`, with `|y_true|` at least 1e-7.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mape")
        MeanAbsolutePercentageError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.abs((y_true - y_pred) / OPS.maximum(OPS.abs(y_true), EPSILON)) * 100.0


class MeanSquaredLogarithmicError(Loss, names=("mean_squared_logarithmic_error", "msle", "MSLE")):
    """The mean of `(log(1 + y_true) - log(1 + y_pred)) ** 2`, with both at least 1e-7.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("msle")
        MeanSquaredLogarithmicError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y, p = (OPS.log1p(OPS.maximum(x, EPSILON)) for x in (y_true, y_pred))
        return OPS.square(y - p)


class Poisson(Loss, names=("poisson",)):
    """The mean of `y_pred - y_true * log(y_pred)`, for count data.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("poisson")
        Poisson()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return y_pred - y_true * OPS.log(y_pred + EPSILON)


class Huber(Loss, names=("huber", "huber_loss")):
    """Squared error up to `delta`, linear beyond.

    Args:
        delta: Absolute error at which the loss becomes linear. A positive number. Default: `1.0`.

    Examples:
        >>> Huber(delta=2.0)
        Huber(delta=2.0)
    """

    def __init__(self, delta: float = 1.0):
        self.delta = number("Huber(delta=...)", delta, above=0)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        error = y_pred - y_true
        size = OPS.abs(error)
        return OPS.where(size <= self.delta, error * error * 0.5,
                         size * self.delta - 0.5 * self.delta ** 2)


class LogCosh(Loss, names=("log_cosh", "logcosh")):
    """The mean of `log(cosh(y_pred - y_true))`: squared for small errors, absolute for large ones.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("log_cosh")
        LogCosh()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        error = y_pred - y_true
        return error + OPS.softplus(error * -2.0) - math.log(2.0)


class CosineSimilarity(Loss, names=("cosine_similarity",)):
    """The negative cosine of the angle between targets and predictions: -1 if they are parallel.

    Args:
        axis: The axis of the vectors; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> CosineSimilarity()
        CosineSimilarity(axis=-1)
    """

    def __init__(self, axis: int = -1):
        self.axis = axis

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        unit = [x / OPS.sqrt(OPS.maximum(OPS.sum(x * x, axis=self.axis, keepdims=True), 1e-12))
                for x in (y_true, y_pred)]
        return -OPS.sum(unit[0] * unit[1], axis=self.axis)
