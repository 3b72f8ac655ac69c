"""The base classes of metrics: means over rows, and metrics computed from totals over all rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ztorch.config import Named
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.op import OPS, as_value, shape_error
from ztorch.graph.running_step import running_step
from ztorch.graph.value import Value
from ztorch.losses.loss import rows
from ztorch.losses.numbers import fitting_weights, on_numbers
from ztorch.metrics.variables import MetricVariable, inner_sums, reading, updating
from ztorch.names.keras_calls import without
from ztorch.ops.reduction import widened

Weigh = Callable[[Value], Value]  # values times the weights of their rows; 0 at masked positions


class Metric(Named, family="metric", such_as="sparse_categorical_accuracy"):
    """Base class of metrics.

    A subclass implements `values`, one number per element or position; an epoch reports the mean
    over all rows. A metric that is not a mean is a `SumMetric`, or is written as in Keras: with
    variables that `update_state` adds to, and a `result` that reads them.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> from ztorch.metrics import BinaryAccuracy
        >>> BinaryAccuracy(name="right").name
        'right'
        >>> import ztorch as zt
        >>> class Largest(zt.metrics.Metric):
        ...     def __init__(self, name="largest"):
        ...         super().__init__(name=name)
        ...         self.total = self.add_weight(name="total")
        ...         self.count = self.add_weight(name="count")
        ...     def update_state(self, y_true, y_pred, sample_weight=1.0):
        ...         self.total.assign_add(zt.ops.sum(zt.ops.max(y_pred, axis=-1) * sample_weight))
        ...         self.count.assign_add(zt.ops.sum(sample_weight))
        ...     def result(self):
        ...         return self.total / self.count
        >>> Largest().variables
        [<variable total of metric largest ()>, <variable count of metric largest ()>]
    """

    dtype = "float32"  # dtype of users' own metrics, as in Keras

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = without(cls.__init__, dtype=None)  # type: ignore[method-assign]
        for method, traced in (("update_state", updating), ("result", reading)):
            if method in vars(cls):
                setattr(cls, method, traced(vars(cls)[method]))

    def __init__(self, name: str | None = None):
        self.name = name or self.default_name
        self.variables: list[MetricVariable] = []
        self.totals: dict[str, Any] = {}  # sums of the numbers passed to `update_state`
        self.blank: dict[str, Any] = {}  # the same of no numbers, after `reset_state`

    @property
    def default_name(self) -> str:
        """The name of a metric without a given name."""
        return self.names[0] if self.names else type(self).__name__

    def parts(self) -> dict[str, Metric]:
        """This metric under "", and the metrics among its attributes, by prefixes of their sums."""
        inner = {f"{name}.": x for name, x in vars(self).items() if isinstance(x, Metric)}
        return {"": self, **{f"{name}{more}": part for name, x in inner.items()
                             for more, part in x.parts().items()}}

    def add_weight(self, name: str | None = None, shape: Any = (), initializer: Any = "zeros",
                   dtype: Any = None) -> MetricVariable:
        """Creates a variable that starts at zero, as in Keras.

        Args:
            name: Its name; `None` numbers the variables. Default: `None`.
            shape: Its shape. Default: `()`.
            initializer: `"zeros"`. Default: `"zeros"`.
            dtype: Has no effect: the program's dtype is used. Default: `None`.

        Returns:
            The variable. `assign_add` in `update_state` adds to it, and `result` reads it.

        Raises:
            Unsupported: The initializer is not zero.
        """
        if initializer != "zeros" and type(initializer).__name__ != "Zeros":
            raise Unsupported(f"metric {self.name!r}: variables start at zero, because programs "
                              f"sum the results of batches; not at {initializer!r}")
        label = name or f"variable_{len(self.variables)}"
        if label in [v.name for v in self.variables]:
            raise ConfigError(f"metric {self.name!r} has two variables named {label!r}")
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        self.variables.append(MetricVariable(self.name, label, size))
        return self.variables[-1]

    def add_variable(self, shape: Any = (), initializer: Any = "zeros", dtype: Any = None,
                     name: str | None = None) -> MetricVariable:
        """`add_weight` with Keras' other order of arguments."""
        return self.add_weight(name, shape, initializer, dtype)

    def update_state(self, y_true: Value, y_pred: Value, sample_weight: Any = None) -> None:
        """Adds a batch of arrays or tensors; in a `train_step` or `test_step`, the current batch.

        Args:
            y_true: The targets of the loss.
            y_pred: The predictions.
            sample_weight: The weight of each row; 0 for padding rows. Default: `None`.
        """
        operands = [y_true, y_pred, *([] if sample_weight is None else [sample_weight])]
        sums = inner_sums.get()
        if sums is not None and isinstance(y_pred, Value):  # a metric around it is being traced
            before = sums.get(self, {})
            sums[self] = {name: before[name] + x if name in before else x
                          for name, x in self._sums_of_numbers(*map(as_value, operands)).items()}
            return
        step = running_step.get()
        if step is not None:
            step.measure(self, y_true, y_pred, sample_weight)
            return
        if isinstance(y_pred, Value):  # of a function without scores, such as predict
            if all(isinstance(x, Value) for x in operands):
                self._sums_of_numbers(*operands)  # wrong shapes are errors there, too
            return
        added = on_numbers(f"metric {self.name!r}", self, self._sums_of_numbers, operands)
        for name, x in added.items():
            self.totals[name] = self.totals.get(name, 0.0) + np.asarray(x.numpy(), np.float64)

    def _sums_of_numbers(self, y_true: Value, y_pred: Value,
                         weight: Value | None = None) -> dict[str, Value]:
        """The sums of a batch of numbers, in a graph."""
        y_pred = widened(y_pred) if y_pred.dtype.is_float else OPS.cast(y_pred, "float32")
        if not y_true.dtype.is_float:
            y_true = OPS.cast(y_true, "int32")

        def weigh(values: Value) -> Value:
            return values if weight is None else values * fitting_weights(
                f"metric {self.name!r}", weight, values)

        return self.batch_sums(y_true, y_pred, weigh)

    def batch_sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        """The weighted sums of a batch, from whose totals the metric is computed. The arguments are
        those of `SumMetric.sums`."""
        values = self.per_row(y_true, y_pred, mean=lambda values: values)
        ones = OPS.ones_like(values)
        return {"total": OPS.sum(weigh(values)), "count": OPS.sum(weigh(ones))}

    def of_batch(self, y_true: Value, y_pred: Value) -> Value | None:
        """The metric of a batch as a whole, a mean of an epoch's batches; None: rows have it."""
        return None

    def of_sums(self, sums: Mapping[str, Value]) -> Value:
        """The metric as computed from totals."""
        count = OPS.where(OPS.equal(sums["count"], 0.0), 1.0, sums["count"])
        return sums["total"] / count

    def _measured(self) -> Any:
        """The value of the metric as a tensor: of the current batch in a `train_step` or
        `test_step`, otherwise of all numbers since the last `reset_state`."""
        sums = inner_sums.get()
        if sums is not None and sums.get(self):
            return self.of_sums(sums[self])
        step = running_step.get()
        if step is not None:
            return step.measured(self)
        totals = self.totals or self.blank
        if not totals:
            raise ConfigError(f"metric {self.name!r} has no result before update_state(y_true, "
                              "y_pred)")
        return on_numbers(f"metric {self.name!r}", self, lambda *xs: self.of_sums(
            dict(zip(totals, xs, strict=True))), [np.float32(x) for x in totals.values()])

    result: Callable[..., Any] = _measured  # from the totals, if the metric has totals

    def reset_state(self) -> None:
        """Resets the values measured outside of programs. The result is then that of no numbers, as
        in Keras. In programs each epoch starts at zero."""
        for part in self.parts().values():
            part.blank = {name: np.zeros_like(x) for name, x in part.totals.items()} or part.blank
            part.totals = {}
            for variable in part.variables:
                variable.assign(0.0)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Adds a batch, and returns the metric of all batches so far: `update_state` and `result`.

        Args:
            y_true: The targets.
            y_pred: The predictions.
            sample_weight: The weight of each row. Default: `None`.

        Returns:
            A tensor.
        """
        self.update_state(y_true, y_pred, sample_weight)
        return self.result()

    def values(self, y_true: Value, y_pred: Value) -> Value:
        """The metric of each element, or of each position.

        Args:
            y_true: The targets of the loss.
            y_pred: The predictions.

        Returns:
            A tensor whose first axis is the batch.
        """
        raise NotImplementedError

    def per_row(self, y_true: Value, y_pred: Value,
                mean: Callable[[Value], Value] = rows) -> Value:
        """The metric of each row, in the dtype of the predictions. `mean` computes the mean of the
        values of each row."""
        return mean(OPS.cast(self.values(y_true, y_pred), y_pred.dtype))


class SumMetric(Metric, abstract=True):
    """Base class of metrics that are not means over rows, such as a ratio of sums. A subclass
    implements `sums` and `result`: an epoch reports the result of the totals of its batches.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "result" in vars(cls):
            cls.result = _with_own_totals(cls.result)  # type: ignore[method-assign]

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        """The sums of a batch by name.

        Args:
            y_true: The targets of the loss.
            y_pred: The predictions.
            weigh: Multiplies values by the weights of their rows, and sets masked positions to 0.
                Apply it once to everything that is summed.

        Returns:
            Tensors whose shapes do not depend on the batch.
        """
        raise NotImplementedError

    def result(self, sums: Mapping[str, Value]) -> Value:
        """The metric, from totals by name: one number, or several."""
        raise NotImplementedError

    def per_row(self, y_true: Value, y_pred: Value,
                mean: Callable[[Value], Value] = rows) -> Value:
        raise TypeError(f"metric {self.name!r} is not a mean over rows; it has sums and a result")

    def batch_sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        return self.sums(y_true, y_pred, weigh)

    def of_sums(self, sums: Mapping[str, Value]) -> Value:
        return self.result(sums)


def _with_own_totals(result: Callable[..., Any]) -> Callable[..., Any]:
    """The `result` of a SumMetric, which by default uses the sums that the metric has measured."""

    @functools.wraps(result)
    def measured(self: Any, sums: Mapping[str, Value] | None = None) -> Any:
        return self._measured() if sums is None else result(self, sums)

    return measured


def alike(name: str, y_true: Value, y_pred: Value) -> Value:
    """y_true in the shape and dtype of y_pred, if the number of elements is equal."""
    if y_true.size != y_pred.size:
        raise shape_error(f"metric {name!r} compares element by element, not", y_true.shape,
                          y_pred.shape, fix="choose a metric that fits the loss")
    return OPS.reshape(OPS.cast(y_true, y_pred.dtype), y_pred.shape)


def labels_of(y_true: Value, y_pred: Value) -> Value:
    """Class numbers, from class numbers or from one probability per class."""
    if y_true.shape == y_pred.shape:
        return OPS.argmax(y_true, axis=-1)
    if y_true.size * y_pred.shape[-1] != y_pred.size:
        raise shape_error("a metric of classes needs one label for each prediction; got",
                          y_true.shape, y_pred.shape)
    return OPS.cast(OPS.reshape(y_true, y_pred.shape[:-1]), "int32")
