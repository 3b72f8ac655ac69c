"""The base class of losses, and functions of users as losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.config import Named
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


class Loss(Named, family="loss", such_as="mean_squared_error"):
    """Base class of losses.

    A subclass implements `values`, one number for each element or position, and may override
    `target`, the description of the targets that it takes. Calling a loss averages the values over
    all axes but the batch. As in Keras, a subclass may implement `call(y_true, y_pred)` instead.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> y = leaf("input", "y", (32, 3), "float32")
        >>> get("mse")(y, y).shape
        (32,)
    """

    logits_of: str | None = None  # activation whose input the loss prefers to its output
    probabilities = False  # whether targets hold only numbers from 0 to 1

    def __init__(self, name: str | None = None):
        self.own_name = name

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
        return called(self.call, f"loss {self.name!r}", y_true, y_pred)

    def call(self, y_true: Value, y_pred: Value) -> Value:
        """The loss of each element, or of each position: `values` as in Keras."""
        raise NotImplementedError(f"{type(self).__name__} implements neither values nor call")

    def __call__(self, y_true: Value, y_pred: Value, logits: Value | None = None,
                 mean: Callable[[Value], Value] = rows) -> Value:
        """The loss of each row.

        Args:
            y_true: The targets, as `target` describes them.
            y_pred: The predictions.
            logits: Input of the activation that gives `y_pred`, where it is known. A loss that
                prefers logits computes with them. Default: `None`.
            mean: Gives the mean of the values of each row. Default: `rows`.

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
            return mean(self.values(y_true, logits, True))
        return mean(self.values(y_true, y_pred, from_logits))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if getattr(self, "own_name", None) is None:
            config.pop("name", None)
        return config

    @property
    def name(self) -> str:
        own_name = getattr(self, "own_name", None)
        return own_name or (self.names[0] if self.names else type(self).__name__)


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
