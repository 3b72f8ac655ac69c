"""Accuracies, the fraction of correct predictions; and cosine similarity."""

from __future__ import annotations

from ztorch.config import flag, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.metric import Metric, alike, labels_of
from ztorch.ops.crossentropies import at_label


class Accuracy(Metric):
    """The fraction of predictions that equal their target, element by element.

    In `compile`, the name `"accuracy"` means the accuracy that fits the loss.

    Args:
        name: Name in the history. `None` means "accuracy". Default: `None`.

    Examples:
        >>> Accuracy().name
        'accuracy'
    """

    def __init__(self, name: str | None = None):
        super().__init__(name or "accuracy")

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return OPS.equal(alike(self.name, y_true, y_pred), y_pred)


class SparseCategoricalAccuracy(Metric, names=("sparse_categorical_accuracy",)):
    """The fraction of rows whose most likely class is the true one; targets hold class numbers.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> SparseCategoricalAccuracy()
        SparseCategoricalAccuracy(name='sparse_categorical_accuracy')
    """

    def values(self, y_true: Value, y_pred: Value) -> Value:
        return OPS.equal(labels_of(y_true, y_pred), OPS.argmax(y_pred, axis=-1))


class CategoricalAccuracy(SparseCategoricalAccuracy, names=("categorical_accuracy",)):
    """The fraction of rows whose most likely class is the true one; targets are one-hot.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> CategoricalAccuracy()
        CategoricalAccuracy(name='categorical_accuracy')
    """


class BinaryAccuracy(Metric, names=("binary_accuracy",)):
    """The fraction of predictions on the right side of a threshold.

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
    """The fraction of rows whose true class is among the k most likely; targets are one-hot.

    Ties with the true class do not count against it; NaN does.

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
        worse = y_pred <= OPS.expand_dims(true_score, -1)  # false for NaN
        return OPS.sum(OPS.cast(OPS.logical_not(worse), "int32"), axis=-1) < self.k


class SparseTopKCategoricalAccuracy(TopKCategoricalAccuracy,
                                    names=("sparse_top_k_categorical_accuracy",)):
    """The fraction of rows whose true class is among the k most likely; targets hold class numbers.

    Args:
        k: Number of classes. A positive integer. Default: `5`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        from_sorted_ids: Whether predictions `(..., classes)` are class numbers instead of scores,
            the most likely first. Default: `False`.

    Examples:
        >>> SparseTopKCategoricalAccuracy(k=3).k
        3
    """

    def __init__(self, k: int = 5, name: str | None = None, from_sorted_ids: bool = False):
        super().__init__(k, name)
        self.from_sorted_ids = flag(f"{type(self).__name__}(from_sorted_ids=...)", from_sorted_ids)

    def values(self, y_true: Value, y_pred: Value) -> Value:
        if not self.from_sorted_ids:
            return super().values(y_true, y_pred)
        if self.k > y_pred.shape[-1]:
            raise ConfigError(f"metric {self.name!r}: k={self.k} is too large for predictions of "
                              f"shape {y_pred.shape[1:]}")
        labels = OPS.reshape(OPS.cast(y_true, y_pred.dtype), (*y_pred.shape[:-1], 1))
        return OPS.any(OPS.equal(labels, y_pred[..., :self.k]), axis=-1)


class CosineSimilarity(Metric, names=("cosine_similarity",)):
    """The cosine of the angle between targets and predictions, from -1 to 1.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        axis: The axis of the vectors; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> CosineSimilarity().axis
        -1
    """

    def __init__(self, name: str | None = None, axis: int = -1):
        super().__init__(name)
        self.axis = axis

    def values(self, y_true: Value, y_pred: Value) -> Value:
        y = alike(self.name, y_true, y_pred)
        return OPS.sum(unit(y, self.axis) * unit(y_pred, self.axis), axis=self.axis)


def unit(x: Value, axis: int) -> Value:
    """Vectors scaled to length 1; zero vectors stay zero."""
    return x / OPS.sqrt(OPS.maximum(OPS.sum(x * x, axis=axis, keepdims=True), 1e-12))
