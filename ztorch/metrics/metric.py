"""The base classes of metrics: means over rows, and what is computed from sums over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ztorch.config import Named
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, called, rows

Weigh = Callable[[Value], Value]  # values times the weights of their rows; 0 where they are masked


class Metric(Named, family="metric", such_as="sparse_categorical_accuracy"):
    """Base class of metrics.

    A subclass implements `values`, one number for each element or position: an epoch reports the
    mean over all rows. One that is no mean is a `SumMetric`.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> from ztorch.metrics import BinaryAccuracy
        >>> BinaryAccuracy(name="right").name
        'right'
    """

    def __init__(self, name: str | None = None):
        self.name = name or (self.names[0] if self.names else type(self).__name__)

    def values(self, y_true: Value, y_pred: Value) -> Value:
        """The metric of each element, or of each position.

        Args:
            y_true: The targets of the loss.
            y_pred: The predictions.

        Returns:
            A tensor whose first axis is the batch.
        """
        raise NotImplementedError

    def __call__(self, y_true: Value, y_pred: Value,
                 mean: Callable[[Value], Value] = rows) -> Value:
        """The metric of each row, in the dtype of the predictions. `mean` gives the mean of the
        values of each row."""
        return mean(OPS.cast(self.values(y_true, y_pred), y_pred.dtype))


class SumMetric(Metric, abstract=True):
    """Base class of metrics that are no mean over rows, such as a ratio of sums.

    A subclass implements `sums` and `result`. An epoch adds up the sums of its batches, and
    reports the result of the totals.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
    """

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        """The sums of a batch by name.

        Args:
            y_true: The targets of the loss.
            y_pred: The predictions.
            weigh: Multiplies values by the weights of their rows, and makes those of masked
                positions 0. All that is summed up passes it once.

        Returns:
            Tensors whose shapes do not depend on the batch.
        """
        raise NotImplementedError

    def result(self, sums: Mapping[str, Value]) -> Value:
        """The metric, a scalar, from totals by name."""
        raise NotImplementedError

    def __call__(self, y_true: Value, y_pred: Value,
                 mean: Callable[[Value], Value] = rows) -> Value:
        raise TypeError(f"metric {self.name!r} is no mean over rows; it has sums and a result")


def alike(name: str, y_true: Value, y_pred: Value) -> Value:
    """y_true in the shape and dtype of y_pred, if both have as many elements."""
    if y_true.size != y_pred.size:
        raise shape_error(f"metric {name!r} compares element by element, not", y_true.shape,
                          y_pred.shape, fix="choose a metric that fits the loss")
    return OPS.reshape(OPS.cast(y_true, y_pred.dtype), y_pred.shape)


def labels_of(y_true: Value, y_pred: Value) -> Value:
    """Class numbers, from class numbers or from one probability for each class."""
    if y_true.shape == y_pred.shape:
        return OPS.argmax(y_true, axis=-1)
    if y_true.size * y_pred.shape[-1] != y_pred.size:
        raise shape_error("a metric of classes needs one label for each prediction; got",
                          y_true.shape, y_pred.shape)
    return OPS.cast(OPS.reshape(y_true, y_pred.shape[:-1]), "int32")


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

    def __call__(self, y_true: Value, y_pred: Value,
                 mean: Callable[[Value], Value] = rows) -> Value:
        expected = self.loss.target(y_pred.shape, y_pred.dtype)
        if y_true.dtype != expected.dtype and expected.classes is None:
            y_true = OPS.cast(y_true, expected.dtype)
        return self.loss(y_true, y_pred, mean=mean)


class FunctionMetric(Metric, abstract=True):
    """A user's function of (y_true, y_pred) as a metric, under its own name."""

    def __init__(self, function: Callable[[Value, Value], Value]):
        super().__init__(getattr(function, "__name__", "metric"))
        self.function = function

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return called(self.function, f"metric {self.name!r}", y_true, y_pred)
