"""Losses, which training minimizes. Each gives one number for each row: the mean over its
elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch import dtypes
from ztorch.config import Named, fraction, number
from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value

Shape = tuple[int, ...]
EPSILON = 1e-7  # as in Keras: probabilities are clipped to this distance from 0 and 1


@dataclass(frozen=True)
class TargetSpec:
    """Description of the targets that a loss compares with predictions."""

    shape: Shape  # with the batch
    dtype: DType
    classes: int | None = None  # number of classes, if targets are class numbers


def rows(x: Value) -> Value:
    """The mean over all axes but the batch."""
    return OPS.mean(x, axis=tuple(range(1, x.rank))) if x.rank > 1 else x


class Loss(Named, family="loss"):
    """Base class of losses.

    A subclass implements `values`, one number for each element or position, and may override
    `target`, the description of the targets that it takes. Calling a loss averages the values over
    all axes but the batch.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> y = leaf("input", "y", (32, 3), "float32")
        >>> get("mse")(y, y).shape
        (32,)
    """

    logits_of: str | None = None  # activation whose input the loss prefers to its output
    probabilities = False  # whether targets hold only numbers from 0 to 1

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        """The targets for predictions of this shape and dtype."""
        return TargetSpec(shape, d)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        """The loss of each element, or of each position.

        Args:
            y_true: The targets, as `target` describes them.
            y_pred: The predictions, or their logits.
            from_logits: Whether `y_pred` holds logits.

        Returns:
            A tensor whose first axis is the batch.
        """
        raise NotImplementedError

    def __call__(self, y_true: Value, y_pred: Value, logits: Value | None = None) -> Value:
        """The loss of each row.

        Args:
            y_true: The targets, as `target` describes them.
            y_pred: The predictions.
            logits: Input of the activation that gives `y_pred`, where it is known. A loss that
                prefers logits computes with them. Default: `None`.

        Returns:
            A tensor of shape `(batch,)`.

        Raises:
            ShapeError: Targets do not have the shape that `target` describes.
        """
        expected = self.target(y_pred.shape, y_pred.dtype)
        if y_true.shape != expected.shape:
            raise shape_error(f"loss {self.name!r} compares predictions of shape {y_pred.shape} "
                              f"with targets of shape {expected.shape}, not", y_true.shape)
        from_logits = getattr(self, "from_logits", False)
        if logits is not None and self.logits_of and not from_logits:
            return rows(self.values(y_true, logits, True))
        return rows(self.values(y_true, y_pred, from_logits))

    @property
    def name(self) -> str:
        return self.names[0] if self.names else type(self).__name__


class MeanSquaredError(Loss, names=("mean_squared_error", "mse", "MSE")):
    """The mean of `(y_true - y_pred) ** 2`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mse")
        MeanSquaredError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.square(y_pred - y_true)


class MeanAbsoluteError(Loss, names=("mean_absolute_error", "mae", "MAE")):
    """The mean of `|y_true - y_pred|`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mae")
        MeanAbsoluteError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.abs(y_pred - y_true)


class MeanAbsolutePercentageError(Loss, names=("mean_absolute_percentage_error", "mape", "MAPE")):
    """The mean of `100 * |y_true - y_pred| / |y_true|`, with `|y_true|` at least 1e-7.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("mape")
        MeanAbsolutePercentageError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return OPS.abs((y_true - y_pred) / OPS.maximum(OPS.abs(y_true), EPSILON)) * 100.0


class MeanSquaredLogarithmicError(Loss, names=("mean_squared_logarithmic_error", "msle", "MSLE")):
    """The mean of `(log(1 + y_true) - log(1 + y_pred)) ** 2`, with both at least 1e-7.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("msle")
        MeanSquaredLogarithmicError()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y, p = (OPS.log1p(OPS.maximum(x, EPSILON)) for x in (y_true, y_pred))
        return OPS.square(y - p)


class Poisson(Loss, names=("poisson",)):
    """The mean of `y_pred - y_true * log(y_pred)`, for counts.

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

    Examples:
        >>> from ztorch import losses
        >>> losses.get("log_cosh")
        LogCosh()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        error = y_pred - y_true
        return error + OPS.softplus(error * -2.0) - math.log(2.0)


class ProbabilityLoss(Loss, abstract=True):
    """Base of the losses on probabilities.

    Probabilities without known logits are clipped to 1e-7 from 0 and 1.
    """

    probabilities = True

    def __init__(self, from_logits: bool = False, label_smoothing: float = 0.0):
        self.from_logits = from_logits
        self.label_smoothing = fraction("label_smoothing", label_smoothing, below_one=False)


class BinaryCrossentropy(ProbabilityLoss, names=("binary_crossentropy", "bce", "BCE")):
    """The negative log-likelihood of independent yes-or-no outputs.

    Targets hold 0 or 1, or probabilities, in the shape of the predictions. Probabilities without
    known logits are clipped to 1e-7 from 0 and 1.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: Share by which targets are moved towards 0.5, from 0 to 1. Default: `0.0`.

    Examples:
        >>> BinaryCrossentropy(from_logits=True)
        BinaryCrossentropy(from_logits=True, label_smoothing=0.0)
    """

    logits_of = "sigmoid"

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        s = self.label_smoothing
        y = y_true * (1.0 - s) + 0.5 * s if s else y_true
        if from_logits:
            return OPS.softplus(y_pred) - y_pred * y
        p = OPS.clip(y_pred, EPSILON, 1.0 - EPSILON)
        return -(y * OPS.log(p) + (1.0 - y) * OPS.log(1.0 - p))


def log_probabilities(y_pred: Value, from_logits: bool) -> Value:
    """Logarithms of probabilities that sum to 1 along the last axis."""
    if from_logits:
        return OPS.log_softmax(y_pred, axis=-1)
    p = y_pred / OPS.sum(y_pred, axis=-1, keepdims=True)
    return OPS.log(OPS.clip(p, EPSILON, 1.0 - EPSILON))


def need_classes(loss: str, shape: Shape) -> None:
    if len(shape) < 2 or shape[-1] < 2:
        raise shape_error(f"loss {loss!r} needs a prediction for each of at least 2 classes, not",
                          shape[1:], fix="end the model with Dense(number of classes), or use "
                                         "binary_crossentropy for a single output")


class CategoricalCrossentropy(ProbabilityLoss, names=("categorical_crossentropy", "cce")):
    """The negative log-likelihood of the true class; targets hold a probability for each class.

    Probabilities without known logits are clipped to 1e-7 from 0 and 1.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: Share of the target that is spread evenly over all classes, from 0 to 1.
            Default: `0.0`.

    Examples:
        >>> CategoricalCrossentropy(label_smoothing=0.1)
        CategoricalCrossentropy(from_logits=False, label_smoothing=0.1)
    """

    logits_of = "softmax"

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, shape)
        return TargetSpec(shape, d)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        s = self.label_smoothing
        y = y_true * (1.0 - s) + s / y_true.shape[-1] if s else y_true
        return -OPS.sum(y * log_probabilities(y_pred, from_logits), axis=-1)


class SparseCategoricalCrossentropy(Loss, names=("sparse_categorical_crossentropy", "scce")):
    """The negative log-likelihood of the true class; targets hold class numbers as int32.

    Args:
        from_logits: Whether predictions are logits, before the softmax or sigmoid. With `False`, a
            model that ends in that activation is still computed from its logits. Default: `False`.

    Examples:
        >>> SparseCategoricalCrossentropy()
        SparseCategoricalCrossentropy(from_logits=False)
    """

    logits_of = "softmax"

    def __init__(self, from_logits: bool = False):
        self.from_logits = from_logits

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, shape)
        return TargetSpec(shape[:-1], dtypes.i32, shape[-1])

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return -at_label(log_probabilities(y_pred, from_logits), y_true)


def at_label(x: Value, labels: Value) -> Value:
    """The element of the last axis at each label; 0 for labels out of range."""
    position = OPS.iota(x.shape, -1, labels.dtype)
    hit = OPS.equal(OPS.expand_dims(labels, -1), position)
    return OPS.sum(OPS.where(hit, x, 0.0), axis=-1)


class KLDivergence(Loss, names=("kl_divergence", "kld", "KLD")):
    """The sum of `y_true * log(y_true / y_pred)` over the last axis, both clipped to 1e-7 or more.

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


def called(function: Callable[[Value, Value], Value], culprit: str, y_true: Value,
           y_pred: Value) -> Value:
    """The tensor that a user's function returns, or an error that names the function."""
    result = traced(function, culprit, y_true, y_pred)
    if not isinstance(result, Value):
        raise ConfigError(f"{culprit} returned {result!r}, not a tensor; make one of its two "
                          "arguments with operators and zt.ops")
    return result


class _FunctionLoss(Loss, abstract=True):
    """A user's function of (y_true, y_pred) as a loss, under its own name."""

    def __init__(self, function: Callable[[Value, Value], Value]):
        self.function = function

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        return called(self.function, f"loss {self.name!r}", y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {}

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "loss")


def get(spec: Any) -> Loss:
    """The loss for a name, an instance, a class, a config or a function.

    Args:
        spec: A name such as `"mse"`, a `Loss`, its class or config, or a function of `(y_true,
            y_pred)` that returns a tensor.

    Returns:
        The loss.

    Raises:
        UnknownName: No loss has this name.
        ConfigError: It is none of these.

    Examples:
        >>> get("mae").name
        'mean_absolute_error'
    """
    if callable(spec) and not isinstance(spec, (Loss, type)):
        return _FunctionLoss(spec)
    return Loss.get(spec)
