"""Metrics, which are reported beside the loss. Each gives one number for each row; an epoch
reports the mean over its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ztorch.config import Named, positive
from ztorch.errors import ConfigError, UnknownName, Unsupported, unknown
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.classification import at_label
from ztorch.losses.loss import Loss, TargetSpec, called, rows


class Metric(Named, family="metric", such_as="sparse_categorical_accuracy"):
    """Base class of metrics.

    A subclass implements `values`, one number for each element or position. An epoch reports the
    mean over all rows.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
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


class SparseCategoricalAccuracy(Metric, names=("sparse_categorical_accuracy",)):
    """The share of rows whose most likely class is the true one; targets hold class numbers.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> SparseCategoricalAccuracy()
        SparseCategoricalAccuracy(name='sparse_categorical_accuracy')
    """

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return OPS.equal(labels_of(y_true, y_pred), OPS.argmax(y_pred, axis=-1))


class CategoricalAccuracy(SparseCategoricalAccuracy, names=("categorical_accuracy",)):
    """The share of rows whose most likely class is the true one; targets are one-hot.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> CategoricalAccuracy()
        CategoricalAccuracy(name='categorical_accuracy')
    """


class BinaryAccuracy(Metric, names=("binary_accuracy",)):
    """The share of predictions on the right side of a threshold.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        threshold: Predictions above it count as 1, others as 0. Default: `0.5`.

    Examples:
        >>> BinaryAccuracy(threshold=0.7).threshold
        0.7
    """

    def __init__(self, name: str | None = None, threshold: float = 0.5):
        super().__init__(name)
        self.threshold = threshold

    def values(self, y_true: Value, y_pred: Value) -> Value:
        y = alike(self.name, y_true, y_pred)
        return OPS.equal(y, OPS.cast(y_pred > self.threshold, y.dtype))


class TopKCategoricalAccuracy(Metric, names=("top_k_categorical_accuracy",)):
    """The share of rows whose true class is among the k most likely; targets are one-hot.

    Classes that are as likely as the true one do not count against it.

    Args:
        k: Number of classes. A positive integer. Default: `5`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> TopKCategoricalAccuracy(k=3).k
        3
    """

    def __init__(self, k: int = 5, name: str | None = None):
        super().__init__(name)
        self.k = positive(f"{type(self).__name__}(k=...)", k)

    def values(self, y_true: Value, y_pred: Value) -> Value:
        true_score = at_label(y_pred, labels_of(y_true, y_pred))
        better = OPS.cast(y_pred > OPS.expand_dims(true_score, -1), "int32")
        return OPS.sum(better, axis=-1) < self.k


class SparseTopKCategoricalAccuracy(TopKCategoricalAccuracy,
                                    names=("sparse_top_k_categorical_accuracy",)):
    """The share of rows whose true class is among the k most likely; targets hold class numbers.

    Args:
        k: Number of classes. A positive integer. Default: `5`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> SparseTopKCategoricalAccuracy(k=3).k
        3
    """


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


class _FunctionMetric(Metric, abstract=True):
    """A user's function of (y_true, y_pred) as a metric, under its own name."""

    def __init__(self, function: Callable[[Value, Value], Value]):
        super().__init__(getattr(function, "__name__", "metric"))
        self.function = function

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return called(self.function, f"metric {self.name!r}", y_true, y_pred)


ACCURACY = ("accuracy", "acc")
# Words in names of metrics, in other frameworks, that need all rows at once.
_NEED_ALL_ROWS = {"auc", "precision", "recall", "f1", "f1score", "fbeta", "r2", "root", "rmse",
                  "iou", "positives", "negatives", "sensitivity", "specificity"}


def get(spec: Any, target: TargetSpec, prediction: tuple[int, ...]) -> Metric:
    """The metric for a name, an instance, a loss or a function.

    As in Keras, `"accuracy"` becomes the binary, sparse or categorical one by the shapes.

    Args:
        spec: A name such as `"accuracy"`, a `Metric`, a `Loss`, or a function of `(y_true,
            y_pred)`.
        target: Description of the targets, from `Loss.target`.
        prediction: Shape of the predictions, with the batch.

    Returns:
        The metric.

    Raises:
        UnknownName: No metric and no loss has this name.
        Unsupported: A metric of this name needs all rows at once.

    Examples:
        >>> from ztorch.dtypes import i32
        >>> get("accuracy", TargetSpec((32,), i32, 10), (32, 10))
        SparseCategoricalAccuracy(name='accuracy')
    """
    if isinstance(spec, str) and spec.lower() in ACCURACY:
        if prediction[-1:] == (1,):
            return BinaryAccuracy(spec)
        sparse = len(target.shape) < len(prediction) or target.shape[-1] == 1
        return SparseCategoricalAccuracy(spec) if sparse else CategoricalAccuracy(spec)
    if isinstance(spec, str):
        if spec in Metric.known or spec.lower() in {k.lower() for k in Metric.known}:
            return _named(Metric.named(spec), spec)
        if spec in Loss.known:
            return LossMetric(spec, spec)
        if _NEED_ALL_ROWS.intersection(spec.lower().split("_")):
            raise Unsupported(f"metric {spec!r} is not a mean over rows, as all metrics here are; "
                              "work it out from what predict gives for all rows")
        known = {"accuracy", *(m.names[0] for m in Metric.known.values() if m.names)}
        error = unknown("metric", spec, known, [*ACCURACY, *Metric.known, *Loss.known])
        raise UnknownName(f"{error}, and all losses")
    if isinstance(spec, Loss):
        return LossMetric(spec)
    if callable(spec) and not isinstance(spec, (Metric, type)):
        return _FunctionMetric(spec)
    return Metric.get(spec)


def _named(cls: type[Metric], name: str) -> Metric:
    metric = cls()
    metric.name = name
    return metric


def resolve(specs: Iterable[Any], target: TargetSpec, prediction: tuple[int, ...]) -> list[Metric]:
    """All metrics of a model, with names that differ from each other and from "loss"."""
    if isinstance(specs, str) or not isinstance(specs, Iterable):
        specs = [specs]
    metrics = [get(s, target, prediction) for s in specs]
    names = ["loss", *(m.name for m in metrics)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two metrics are named {name!r}; give one another name, such as "
                              f"BinaryAccuracy(name='other')")
    return metrics
