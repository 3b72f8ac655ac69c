"""The base class of losses, and users' functions as losses."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.config import Named
from ztorch.dtypes import DType
from ztorch.errors import ConfigError, ShapeError, unknown
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.losses.numbers import LossFunction, fitting_weights, on_numbers
from ztorch.ops.reduction import widened

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

Shape = tuple[int, ...]
EPSILON = 1e-7  # as in Keras: probabilities are clipped to this distance from 0 and 1
MEAN = "sum_over_batch_size"  # Keras' name of the default reduction
REDUCTIONS = (MEAN, "mean", "mean_with_sample_weight", "sum", "none", None)


@dataclass(frozen=True)
class TargetSpec:
    """The targets that a loss compares with predictions."""

    shape: Shape  # including the batch axis
    dtype: DType
    classes: int | None = None  # number of classes, if targets are class numbers


class UnfitTargets(ShapeError):
    """A user's loss does not accept the targets it got."""


def rows(x: Value) -> Value:
    """The mean over all axes except the batch."""
    return OPS.mean(x, axis=tuple(range(1, x.rank))) if x.rank > 1 else x


def _with_shared_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """`init` of a loss, with `name`, `reduction` and `dtype` added."""

    @functools.wraps(init)
    def shared(self: Any, *args: Any, **keywords: Any) -> None:
        own = inspect.signature(init).parameters
        if "reduction" in keywords and "reduction" not in own:
            reduction = keywords.pop("reduction")
            if reduction not in REDUCTIONS:
                raise unknown("reduction", str(reduction), [str(r) for r in REDUCTIONS])
            self.reduction = reduction
        if "dtype" not in own:
            keywords.pop("dtype", None)
        if "axis" not in own and keywords.get("axis") == -1:
            del keywords["axis"]
        name = keywords.pop("name", None) if "name" not in own else None
        init(self, *args, **keywords)
        if name is not None:
            self.own_name = name

    return shared


class Loss(Named, family="loss", such_as="mean_squared_error"):
    """Base class of losses.

    A subclass implements `values`, one number per element or position, and may override `target`,
    the description of its targets. Calling a loss averages the values over all axes except the
    batch. As in Keras, a subclass may implement `call(y_true, y_pred)` instead.

    Every loss also accepts Keras' `name`, `dtype`, which has no effect, and `reduction` for calls
    on numbers: `"sum_over_batch_size"`, the mean over all elements; `"sum"`;
    `"mean_with_sample_weight"`; or `None`, one number per row or position.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> import numpy as np
        >>> loss = get("mse")
        >>> float(loss(np.array([[0.0, 1.0]]), np.array([[1.0, 3.0]])))
        2.5
    """

    logits_of: str | None = None  # the loss prefers the input of this activation to its output
    compares_rows = False  # whether it compares rows; labels below zero exclude rows
    probabilities = False  # whether targets hold only numbers from 0 to 1
    reduction: str | None = MEAN  # how the losses of rows become one number

    @_with_shared_arguments
    def __init__(self, name: str | None = None):
        self.own_name = name

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _with_shared_arguments(cls.__init__)  # type: ignore[method-assign]

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        """The targets for predictions of this shape and dtype."""
        return TargetSpec(shape, d)

    @property
    def takes_any(self) -> bool:
        """Whether it gets labels as users pass them, because no class describes the targets."""
        return type(self).target is Loss.target and type(self).values is Loss.values

    def counted(self, y_true: Value) -> Value | None:
        """The rows or positions that count, as a mask from their targets; None: all count."""
        return None

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        """The loss of each element, or of each position.

        Args:
            y_true: The targets, as `target` describes them.
            y_pred: The predictions, or their logits.
            from_logits: Whether `y_pred` holds logits.

        Returns:
            A tensor whose first axis is the batch.
        """
        try:
            return called(self.call, f"loss {self.name!r}", y_true, y_pred)
        except (ShapeError, IndexError) as error:
            raise UnfitTargets(f"{error}; the targets have shape {y_true.shape} and dtype "
                               f"{y_true.dtype.long}, the predictions shape {y_pred.shape}"
                               ) from error

    def call(self, y_true: Value, y_pred: Value) -> Value:
        """The loss of each element, or of each position: `values` as in Keras."""
        raise NotImplementedError(f"{type(self).__name__} implements neither values nor call")

    def per_row(self, y_true: Value, y_pred: Value, logits: Value | None = None,
                mean: Callable[[Value], Value] = rows) -> Value:
        """The loss of each row of a batch, in a graph; float32 for 16-bit floats.

        Args:
            y_true: The targets, as `target` describes them.
            y_pred: The predictions.
            logits: Input of the activation that computes `y_pred`, if known. A loss that prefers
                logits uses them. Default: `None`.
            mean: Computes the mean of the values of each row. Default: `rows`.

        Returns:
            A tensor of shape `(batch,)`.

        Raises:
            ShapeError: Targets do not have the shape that `target` describes.
        """
        y_true, y_pred = widened(y_true), widened(y_pred)
        expected = self.target(y_pred.shape, y_pred.dtype)
        if y_true.shape != expected.shape and not self.takes_any:
            raise shape_error(f"loss {self.name!r} compares predictions of shape {y_pred.shape} "
                              f"with targets of shape {expected.shape}, not", y_true.shape)
        from_logits = getattr(self, "from_logits", False)
        if logits is not None and self.logits_of and not from_logits:
            y_pred, from_logits = widened(logits), True
        values = self.values(y_true, y_pred, from_logits)
        return mean(OPS.cast(values, y_pred.dtype))

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The loss of numbers, as in Keras: on arrays or tensors, or in a `train_step`.

        Args:
            y_true: The targets, as `target` describes them, or with the same number of elements.
            y_pred: The predictions.
            sample_weight: The weight of each row or position. Default: `None`.

        Returns:
            A tensor: one number, unless `reduction` says otherwise.

        Raises:
            ShapeError: Targets or weights do not fit the predictions.
        """
        operands = [y_true, y_pred, *([] if sample_weight is None else [sample_weight])]
        return on_numbers(f"loss {self.name!r}", self, self._reduced, operands)

    def _reduced(self, y_true: Value, y_pred: Value, weight: Value | None = None) -> Value:
        """The result of a call on numbers, in a graph."""
        y_pred = widened(y_pred) if y_pred.dtype.is_float else OPS.cast(y_pred, "float32")
        y_true = as_target(y_true, self.target(y_pred.shape, y_pred.dtype))
        values = self.values(y_true, y_pred, getattr(self, "from_logits", False))
        if values.rank == y_pred.rank > 1:  # Keras' functions compute the mean over the last axis
            values = OPS.mean(values, axis=-1)
        counted, count = self.counted(y_true), None
        if counted is not None:
            count = OPS.maximum(OPS.sum(OPS.cast(counted, values.dtype)), 1.0)
        if weight is not None:
            weight = fitting_weights(f"loss {self.name!r}", weight, values)
            weight = weight if counted is None else OPS.where(counted, weight, 0.0)
            values = values * weight
        if self.reduction in ("none", None):
            return values
        total = OPS.sum(values)
        if self.reduction == "sum":
            return total
        if weight is None or self.reduction in (MEAN, "mean"):
            return total / (max(values.size, 1) if count is None else count)
        weights = OPS.sum(weight)
        return OPS.where(OPS.equal(weights, 0.0), 0.0, total / weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("name", None)
        if getattr(self, "own_name", None) is not None:
            config["name"] = self.own_name
        return config if self.reduction == MEAN else {**config, "reduction": self.reduction}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        shared = {name: config[name] for name in ("name", "reduction") if name in config}
        loss = super().from_config({k: x for k, x in config.items() if k not in shared})
        loss.own_name = shared.get("name")
        loss.reduction = shared.get("reduction", MEAN)
        return loss

    @property
    def name(self) -> str:
        own_name = getattr(self, "own_name", None)
        return own_name or (self.names[0] if self.names else type(self).__name__)


def as_target(y_true: Value, target: TargetSpec) -> Value:
    """Targets in the shape and dtype that a loss expects, if the number of elements fits."""
    y_true = y_true if y_true.dtype == target.dtype else OPS.cast(y_true, target.dtype)
    fits = y_true.shape != target.shape and y_true.size == math.prod(target.shape)
    return OPS.reshape(y_true, target.shape) if fits else y_true


def called(function: Callable[[Value, Value], Value], culprit: str, y_true: Value,
           y_pred: Value) -> Value:
    """The tensor that a user's function returns, or an error that names the function."""
    result = traced(function, culprit, y_true, y_pred)
    if not isinstance(result, Value):
        raise ConfigError(f"{culprit} returned {result!r}, not a tensor; compute one from its two "
                          "arguments with operators and zt.ops")
    return result


class _FunctionLoss(Loss, abstract=True):
    """A user's function of (y_true, y_pred) as a loss, under its own name."""

    def __init__(self, function: Callable[[Value, Value], Value]):
        self.function = function

    def call(self, y_true: Value, y_pred: Value) -> Value:
        return self.function(y_true, y_pred)

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
    if isinstance(spec, LossFunction):
        return spec.loss()
    if callable(spec) and not isinstance(spec, (Loss, type)):
        return _FunctionLoss(spec)
    return Loss.get(spec)
