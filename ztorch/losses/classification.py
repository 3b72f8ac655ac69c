"""Losses of classes: cross-entropies, divergence and hinges."""

from __future__ import annotations

from ztorch import dtypes
from ztorch.config import fraction, number, whole
from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import EPSILON, Loss, Shape, TargetSpec
from ztorch.ops.crossentropies import at_label


class ProbabilityLoss(Loss, abstract=True):
    """Base class of losses on probabilities.

    Probabilities without known logits are clipped to 1e-7 from 0 and 1.
    """

    probabilities = True

    def __init__(self, from_logits: bool = False, label_smoothing: float = 0.0):
        self.from_logits = from_logits
        self.label_smoothing = fraction("label_smoothing", label_smoothing, below_one=False)


class BinaryCrossentropy(ProbabilityLoss, names=("binary_crossentropy", "bce", "BCE")):
    """The negative log-likelihood of independent binary outputs.

    Targets hold 0 or 1, or probabilities, in the shape of the predictions. Probabilities without
    known logits are clipped to 1e-7 from 0 and 1.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: How far targets are moved towards 0.5, from 0 to 1. Default: `0.0`.

    Examples:
        >>> BinaryCrossentropy(from_logits=True)
        BinaryCrossentropy(from_logits=True, label_smoothing=0.0)
    """

    logits_of = "sigmoid"

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        s = self.label_smoothing
        y = y_true * (1.0 - s) + 0.5 * s if s else y_true
        return OPS.binary_crossentropy(y, y_pred, from_logits)


class CategoricalCrossentropy(ProbabilityLoss, names=("categorical_crossentropy", "cce")):
    """The negative log-likelihood of the true class; targets hold one probability per class.

    Probabilities without known logits are clipped to 1e-7 from 0 and 1.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: Fraction of the target that is spread evenly over all classes, from 0 to 1.
            Default: `0.0`.
        axis: The axis of the classes; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> CategoricalCrossentropy(label_smoothing=0.1)
        CategoricalCrossentropy(from_logits=False, label_smoothing=0.1, axis=-1)
    """

    logits_of: str | None = "softmax"

    def __init__(self, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1):
        super().__init__(from_logits, label_smoothing)
        self.axis = whole("CategoricalCrossentropy(axis=...)", axis, -(1 << 31))
        if axis != -1:
            self.logits_of = None  # known logits are those of a softmax over the last axis

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, classes_last(self, shape))
        return TargetSpec(shape, d)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y_true, y_pred = (OPS.moveaxis(v, self.axis, -1) for v in (y_true, y_pred))
        y = smoothed_classes(y_true, self.label_smoothing)
        return OPS.categorical_crossentropy(y, y_pred, from_logits)


class SparseCategoricalCrossentropy(Loss, names=("sparse_categorical_crossentropy", "scce")):
    """The negative log-likelihood of the true class; targets hold int32 class numbers.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.
        ignore_class: Rows or positions with this label are ignored, such as -1 or 255. `None`
            ignores none. Default: `None`.
        axis: The axis of the classes; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> SparseCategoricalCrossentropy(ignore_class=255).ignore_class
        255
    """

    logits_of: str | None = "softmax"

    def __init__(self, from_logits: bool = False, ignore_class: int | None = None,
                 axis: int = -1):
        self.from_logits = from_logits
        self.axis = whole("SparseCategoricalCrossentropy(axis=...)", axis, -(1 << 31))
        if axis != -1:
            self.logits_of = None  # known logits are those of a softmax over the last axis
        self.ignore_class = None if ignore_class is None else whole(
            "SparseCategoricalCrossentropy(ignore_class=...)", ignore_class, -(1 << 31))

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        shape = classes_last(self, shape)
        need_classes(self.name, shape)
        beyond = self.ignore_class is not None and not 0 <= self.ignore_class < shape[-1]
        return TargetSpec(shape[:-1], dtypes.i32, None if beyond else shape[-1])

    def counted(self, y_true: Value) -> Value | None:
        return None if self.ignore_class is None else OPS.not_equal(y_true, self.ignore_class)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y_pred = OPS.moveaxis(y_pred, self.axis, -1)
        values = OPS.sparse_categorical_crossentropy(y_true, y_pred, from_logits)
        counted = self.counted(y_true)
        return values if counted is None else OPS.where(counted, values, 0.0)


class CategoricalGeneralizedCrossEntropy(Loss, names=("categorical_generalized_cross_entropy",)):
    """`(1 - p ** q) / q` for the probability p of the true class: for noisy labels. Targets hold
    int32 class numbers.

    Args:
        q: From 0, near the cross-entropy, to 1, near the mean absolute error. Default: `0.5`.

    Examples:
        >>> CategoricalGeneralizedCrossEntropy(q=0.7).q
        0.7
    """

    def __init__(self, q: float = 0.5):
        self.q = number("CategoricalGeneralizedCrossEntropy(q=...)", q, above=0)
        if q >= 1:
            raise ConfigError(f"CategoricalGeneralizedCrossEntropy(q={q!r}) must be below 1")

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, shape)
        return TargetSpec(shape[:-1], dtypes.i32, shape[-1])

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return (1.0 - OPS.power(at_label(y_pred, y_true), self.q)) * (1.0 / self.q)


class KLDivergence(Loss, names=("kl_divergence", "kld", "KLD")):
    """The sum of `y_true * log(y_true / y_pred)` over the last axis, both clipped to 1e-7 or more.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("kld")
        KLDivergence()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y, p = OPS.clip(y_true, EPSILON, 1.0), OPS.clip(y_pred, EPSILON, 1.0)
        return OPS.sum(y * OPS.log(y / p), axis=-1)


class Hinge(Loss, names=("hinge",)):
    """The mean of `max(1 - y_true * y_pred, 0)`, for targets of -1 or 1. Zero counts as -1.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("hinge")
        Hinge()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        sign = OPS.where(y_true > 0.0, OPS.ones_like(y_true), -OPS.ones_like(y_true))
        return OPS.relu(1.0 - sign * y_pred)


class SquaredHinge(Hinge, names=("squared_hinge",)):
    """The mean of `max(1 - y_true * y_pred, 0) ** 2`, for targets of -1 or 1. Zero counts as -1.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("squared_hinge")
        SquaredHinge()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.square(super().values(y_true, y_pred, from_logits))


class CategoricalHinge(Loss, names=("categorical_hinge",)):
    """A hinge loss over classes; targets are one-hot.

    The formula is `max(1 + best wrong prediction - prediction of the true class, 0)`.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("categorical_hinge")
        CategoricalHinge()
    """

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, shape)
        return TargetSpec(shape, d)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        right = OPS.sum(y_true * y_pred, axis=-1)
        return OPS.relu(OPS.max((1.0 - y_true) * y_pred, axis=-1) - right + 1.0)


def classes_last(loss: CategoricalCrossentropy | SparseCategoricalCrossentropy,
                 shape: Shape) -> Shape:
    """The shape of predictions with their axis of classes moved to the end."""
    rank = len(shape)
    if not -rank < loss.axis < rank or not loss.axis:
        raise ConfigError(f"loss {loss.name!r}: axis={loss.axis} is not an axis of classes of "
                          f"predictions of shape {shape}; axis 0 is the batch")
    axis = loss.axis % rank
    return (*shape[:axis], *shape[axis + 1:], shape[axis])


def smoothed_classes(y_true: Value, fraction: float) -> Value:
    """Probabilities of classes, of which a fraction is spread evenly over all classes."""
    return y_true * (1.0 - fraction) + fraction / y_true.shape[-1] if fraction else y_true


def need_classes(loss: str, shape: Shape) -> None:
    if len(shape) < 2 or shape[-1] < 2:
        raise shape_error(f"loss {loss!r} needs predictions for at least 2 classes, not",
                          shape[1:], fix="end the model with Dense(number of classes), or use "
                                         "binary_crossentropy for a single output")
