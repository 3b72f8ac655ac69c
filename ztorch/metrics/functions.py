"""Metrics as functions, functions as metrics, and losses as metric classes, by Keras' names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ztorch import ops
from ztorch.dtypes import boolean
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, as_target, called, rows
from ztorch.losses.numbers import on_numbers
from ztorch.metrics.metric import Metric, Weigh


class MetricFunction:
    """A metric as a function of `(y_true, y_pred)`, as in Keras. It gives one number per element or
    position.

    >>> import numpy as np
    >>> from ztorch import metrics
    >>> metrics.binary_accuracy(np.array([[1, 0]]), np.array([[0.9, 0.8]])).tolist()
    [[1.0, 0.0]]
    """

    def __init__(self, metric: type[Metric], name: str):
        self.metric, self.__name__ = metric, name

    def __call__(self, y_true: Any, y_pred: Any, **arguments: Any) -> Any:
        metric = self.metric(**arguments)

        def numbers(y: Value, x: Value) -> Value:
            values = metric.values(y, x if x.dtype.is_float else ops.cast(x, "float32"))
            return ops.cast(values, "float32") if values.dtype is boolean else values

        return on_numbers(f"function {self.__name__!r}", metric, numbers, [y_true, y_pred])

    def __repr__(self) -> str:
        return f"<metric function {self.__name__}>"


class LossMetric(Metric):
    """A loss as a metric, such as mse beside a Huber loss.

    Args:
        loss: A loss, or its name.
        name: Name in the history. `None` uses the name of the loss. Default: `None`.

    Examples:
        >>> LossMetric("mse").name
        'mean_squared_error'
    """

    def __init__(self, loss: Any, name: str | None = None):
        self.loss = Loss.get(loss)
        super().__init__(name or self.loss.name)

    def per_row(self, y_true: Value, y_pred: Value,
                mean: Callable[[Value], Value] = rows) -> Value:
        expected = self.loss.target(y_pred.shape, y_pred.dtype)
        if expected.classes is None or y_true.dtype.is_int:
            y_true = as_target(y_true, expected)
        return self.loss.per_row(y_true, y_pred, mean=mean)


class LossAsMetric:
    """The metric class that measures a loss, such as `metrics.MeanSquaredError`.

    >>> from ztorch import metrics
    >>> metrics.MeanSquaredError(name="error").name
    'error'
    """

    def __init__(self, loss: type[Loss]):
        self.loss = loss
        self.__name__ = loss.__name__

    def __call__(self, *arguments: Any, name: str | None = None, dtype: Any = None,
                 **more: Any) -> LossMetric:
        if arguments and isinstance(arguments[0], str) and name is None:  # the name, as in Keras
            name, *arguments = arguments  # type: ignore[assignment]
        return LossMetric(self.loss(*arguments, **more), name)

    def __repr__(self) -> str:
        return f"<class of metrics {self.__name__}>"


class FunctionMetric(Metric, abstract=True):
    """A user's function of (y_true, y_pred) as a metric, under its own name."""

    def __init__(self, function: Callable[[Value, Value], Value]):
        super().__init__(getattr(function, "__name__", "metric"))
        self.function = function

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return called(self.function, f"metric {self.name!r}", y_true, y_pred)

    def of_batch(self, y_true: Value, y_pred: Value) -> Value | None:
        value = self.values(y_true, y_pred)
        return None if value.rank else OPS.cast(value, y_pred.dtype)

    def batch_sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        value = self.of_batch(y_true, y_pred)
        if value is None:
            return super().batch_sums(y_true, y_pred, weigh)
        return {"total": value, "count": OPS.ones_like(value)}


class MeanMetricWrapper(FunctionMetric, abstract=True):
    """A function of (y_true, y_pred), with one number per element or row, as a metric. An epoch
    reports the mean over all rows.

    Args:
        fn: The function.
        name: Name in the history. `None` uses the function's name. Default: `None`.
        dtype: Has no effect: the program's dtype is used. Default: `None`.
        **arguments: Further arguments of the function.

    Examples:
        >>> from ztorch import ops
        >>> MeanMetricWrapper(lambda y, p, power: ops.abs(y - p) ** power, "far", power=3.0).name
        'far'
    """

    def __init__(self, fn: Callable[..., Value], name: str | None = None, dtype: Any = None,
                 **arguments: Any):
        if not callable(fn):
            raise ConfigError(f"MeanMetricWrapper(fn={fn!r}) must be a function")
        super().__init__(functools.partial(fn, **arguments) if arguments else fn)
        self.name = name or str(getattr(fn, "__name__", "metric"))
