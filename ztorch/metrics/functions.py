"""Metrics as functions, and losses as classes of metrics, by Keras' names."""

from __future__ import annotations

from typing import Any

from ztorch import ops
from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss
from ztorch.losses.numbers import on_numbers
from ztorch.metrics.metric import LossMetric, Metric


class MetricFunction:
    """A metric as a function of `(y_true, y_pred)`, as in Keras: it gives one number for each
    element or position.

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
            values = metric.values(y, x)
            return ops.cast(values, "float32") if values.dtype is boolean else values

        return on_numbers(f"function {self.__name__!r}", metric, numbers, [y_true, y_pred])

    def __repr__(self) -> str:
        return f"<metric function {self.__name__}>"


class LossAsMetric:
    """The class of metrics that measure a loss, such as `metrics.MeanSquaredError`.

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
