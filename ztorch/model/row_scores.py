"""Loss and metrics of a batch. As in Keras, row weights apply to the loss and to weighted metrics,
and the loss is divided by the number of rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.context import Context
from ztorch.layers.network import Network
from ztorch.layers.real_positions import Padding, spread
from ztorch.losses.loss import Loss, rows
from ztorch.metrics import Metric, SumMetric
from ztorch.metrics.functions import LossMetric
from ztorch.metrics.metric import Weigh
from ztorch.metrics.weighted import WeightedMetric
from ztorch.model.objectives import Objective
from ztorch.ops.reduction import widened
from ztorch.runtime.spec import SUMS

Mean = Callable[[Value], Value]  # the mean of each row of values


class RowWeights(NamedTuple):
    """The weights of the rows of a batch."""

    own: Value  # the weights that users give them; 0 for rows that fill up a batch
    rows: Value  # 1 for each row of the data, 0 for rows that fill up a batch
    outputs: Mapping[str, Value] = MappingProxyType({})  # those of its rows or steps, by output

    def of(self, output: str) -> Value:
        """The weights of the rows of an output, or of steps of its rows."""
        if output not in self.outputs:
            return self.own
        weights = self.outputs[output]
        return weights * OPS.reshape(self.own, (-1, *(1,) * (weights.rank - 1)))


@dataclass(frozen=True)
class RowScores:
    """Scores of predictions in the function that a context traces."""

    model: Network
    objectives: Mapping[str, Objective]  # by output
    context: Context
    weights: RowWeights
    of_batches: set[str] = field(default_factory=set)  # losses and metrics of a batch as a whole
    compared: list[Value] = field(default_factory=list)  # what losses and metrics give for rows

    def losses(self, y_true: Mapping[str, Value], y_pred: Mapping[str, Value]) -> dict[str, Value]:
        """The loss, with those that layers and regularizers add, under "loss". Of several losses
        each is a score, too."""
        for name, y in y_true.items():  # as long as predictions
            self.context.padding.declare(y, self.context.padding.of(y_pred[name]))
        with layer_scope("loss"):
            losses = {name: self._loss(objective.loss, name, y_true[name], y_pred[name])
                      for name, objective in self.objectives.items() if objective.loss}
            weighted = [loss if self.objectives[name].weight == 1 else
                        loss * self.objectives[name].weight for name, loss in losses.items()]
            terms = [*weighted, *self.added()]
            parts = {f"{name}_loss": x for name, x in losses.items()} if len(losses) > 1 else {}
            return {"loss": reduce(OPS.add, terms), **parts} if terms else parts

    def metrics(self, y_true: Mapping[str, Value], y_pred: Mapping[str, Value],
                others: Mapping[str, Value]) -> dict[str, Value]:
        """The metrics by name; those that are not means as the sums of this batch. `others` has the
        names of other scores."""
        scores: dict[str, Value] = {}
        known = set(others)
        for label, name, metric in labeled(self.objectives):
            if label in known:
                raise ConfigError(f"two scores are named {label!r}; give a metric or an output "
                                  "another name")
            known.add(label)
            scores |= self.metric(metric, label, y_true[name], y_pred[name], name)
        return scores

    def metric(self, metric: Metric, label: str, y_true: Value, y_pred: Value,
               output: str = "") -> dict[str, Value]:
        """A metric under its label; the sums of this batch where it is not a mean of rows."""
        real = self.weights.rows
        with layer_scope(metric.name):
            mask, y_pred = self.context.masks.get(y_pred), widened(y_pred)
            of_batch = metric.of_batch(y_true, y_pred) is not None
            if of_batch:
                self.of_batches.add(label)
            if of_batch or isinstance(metric, SumMetric) or mask is not None:
                counts = self.weights.of(output) if isinstance(metric, WeightedMetric) else real
                weigh = weigher(mask, counts, self.context)
                sums = metric.batch_sums(y_true, y_pred, self._recorded(weigh, of_batch))
                return {f"{SUMS}{label}/{key}": x for key, x in sums.items()}
            if isinstance(metric, LossMetric):
                y_true = _known_rows(metric.loss, y_true, real)
            row = metric.per_row(y_true, y_pred, mean=self._recorded(
                row_means(mask, real, self.context), _compares_rows(metric)))
        with layer_scope("loss"):
            return {label: OPS.sum(row * share(real, real))}

    def metric_sums(self, metric: Metric, y_true: Value, y_pred: Value) -> dict[str, Value]:
        """The sums of this batch that a metric is computed from, in which weights of rows count."""
        with layer_scope(metric.name):
            return metric.batch_sums(y_true, widened(y_pred), weigher(
                self.context.masks.get(y_pred), self.weights.own, self.context))

    def _loss(self, loss: Loss, output: str, y_true: Value, y_pred: Value) -> Value:
        """The loss of an output."""
        own, rows = self.weights.of(output), self.weights.rows
        of_steps = own.rank > 1
        divisor = own if loss.reduction == "mean_with_sample_weight" else rows
        if of_steps and divisor is own:
            raise Unsupported(f"loss {loss.name!r} with reduction='mean_with_sample_weight' takes "
                              "one weight per row, not one per step")
        y_true = _known_rows(loss, y_true, rows)
        total, mask = loss.reduction == "sum", self.context.masks.get(y_pred)
        counted = loss.counted(y_true)
        if counted is not None:
            mask = counted if mask is None else OPS.bitwise_and(counted, OPS.broadcast_to(
                OPS.reshape(mask, (*mask.shape, *(1,) * (counted.rank - mask.rank))),
                counted.shape))
        activation, logits = self.context.probabilities.get(y_pred, ("", None))
        fused = activation == loss.logits_of  # loss and activation as one function
        if activation and getattr(loss, "from_logits", False):
            warnings.warn(f"loss {loss.name!r} has from_logits=True, but the model ends with a "
                          f"{activation}, whose results are probabilities; omit one of the two",
                          stacklevel=2)
        mean = (weigher(mask, own, self.context) if total else
                row_means(mask, divisor, self.context, own if of_steps else None))
        row = loss.per_row(y_true, y_pred, logits if fused else None,
                           mean=self._recorded(mean, loss.compares_rows))
        if not row.rank:
            self.of_batches.add(loss.name)
        return OPS.sum(row if total else row * share(rows if of_steps else own, divisor))

    def _recorded(self, mean: Mean, whole: bool) -> Mean:
        """A mean that also records the values; not those of a batch as a `whole`."""

        def recorded(values: Value) -> Value:
            self.compared.append(values)
            return mean(values)

        return mean if whole else recorded

    def added(self) -> list[Value]:
        """The terms that regularizers of weights and layers add to the loss, scalars."""
        context, d, real = self.context, self.context.dtype, self.weights.rows
        for row in context.losses:
            context.padding.of(row)  # raises where padding is mixed into it
        return [*(OPS.sum(row * share(real, real)) for row in context.losses),
                *context.penalties, *(OPS.cast(w.regularizer(OPS.cast(context.current(w), d)), d)
                                      for w in self.model.weights
                                      if w.trains and w.regularizer is not None)]


def _compares_rows(metric: Metric) -> bool:
    return isinstance(metric, LossMetric) and metric.loss.compares_rows


def _known_rows(loss: Loss, y_true: Value, rows: Value) -> Value:
    """Targets, below zero for rows that fill up a batch where the loss compares rows."""
    if not loss.compares_rows:
        return y_true
    real = OPS.reshape(rows > 0.0, (-1, *(1,) * (y_true.rank - 1)))
    return OPS.where(real, y_true, -1)


def share(weights: Value, divisor: Value) -> Value:
    """The weight of each row in a mean; 0 where the divisors of all rows are 0."""
    total = OPS.sum(divisor)
    return weights / OPS.where(total > 0.0, total, 1.0)


def labeled(objectives: Mapping[str, Objective]) -> list[tuple[str, str, Metric]]:
    """All metrics: the name of each among the scores, its output, and it. As in Keras, a weighted
    one gives way to one that has the same name."""
    labels, known = [], set()
    for weighted in (False, True):
        for output, objective in objectives.items():
            before = f"{output}_" if output else ""
            for metric in objective.metrics:
                if isinstance(metric, WeightedMetric) is weighted:
                    label = before + metric.name
                    if weighted and label in known:
                        label = f"{before}weighted_{metric.name}"
                    known.add(label)
                    labels.append((label, output, metric))
    return labels


def weigher(mask: Value | None, row_weights: Value, context: Context) -> Weigh:
    """The factor of values by the weights of their rows; padded and masked values become 0. Floats
    of 16 bits are float32 then: they could not count above 2,048."""

    def weigh(values: Value) -> Value:
        values = widened(values)
        counts = counting(values, mask, context.padding)
        weights = spread_weights(row_weights, values)
        counted = values if counts is None else OPS.where(
            OPS.broadcast_to(counts, values.shape), values, 0.0)
        return context.padding.declare(counted * weights, {})

    return weigh


def spread_weights(weights: Value, values: Value) -> Value:
    """Weights of rows, or of steps of rows, in the rank of values."""
    if weights.rank > values.rank:
        raise shape_error(f"weights of steps have {weights.rank - 1} axes besides the batch, and "
                          f"what is weighed has {values.rank - 1}:", weights.shape, values.shape,
                          fix="give one weight per row")
    more = (1,) * (values.rank - weights.rank)
    return OPS.cast(OPS.reshape(weights, (*weights.shape, *more)), values.dtype)


def counting(values: Value, mask: Value | None, padding: Padding) -> Value | None:
    """Which of the values of rows count, as a bool tensor of their rank; None if all do."""
    counts, padded = mask, padding.of(values)  # raises where padding is mixed into them
    if mask is not None:
        more = (1,) * (values.rank - mask.rank)
        has_steps = values.shape[:mask.rank] == mask.shape  # else one number for each row
        counts = OPS.reshape(mask, (*mask.shape, *more)) if has_steps else None
    for axis, real in padded.items():
        part = spread(real.value, values.rank, axis)
        counts = part if counts is None else OPS.bitwise_and(counts, part)
    return counts


def row_means(mask: Value | None, row_weights: Value, context: Context,
              step_weights: Value | None = None) -> Mean:
    """A function that gives the mean of each row of values that compare predictions with targets.

    Padded and masked elements do not count. Rows count equally, whatever their padding; as in
    Keras, steps count equally if predictions have a mask. Weights of steps multiply values, and do
    not change the divisor of sums.
    """
    padding = context.padding

    def mean(values: Value) -> Value:
        if step_weights is not None:
            values = padding.declare(values * spread_weights(step_weights, values),
                                     padding.of(values))
        counts = counting(values, mask, padding)
        if counts is None:
            return rows(values)
        axes = tuple(range(1, values.rank))
        counts = OPS.broadcast_to(counts, values.shape)
        total = OPS.sum(OPS.where(counts, values, 0.0), axes)
        count = OPS.sum(OPS.cast(counts, values.dtype), axes)
        if mask is not None:
            weights = OPS.cast(row_weights, values.dtype)
            weight = OPS.sum(weights)
            count = OPS.sum(count * weights) / OPS.where(weight > 0.0, weight, 1.0)
        return padding.declare(total / OPS.where(count > 0.0, count, 1.0), {})

    return mean
