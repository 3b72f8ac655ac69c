"""Loss and metrics of a batch, as the weighted means over its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.context import Context
from ztorch.layers.network import Network
from ztorch.layers.real_positions import Padding, spread
from ztorch.losses.loss import rows
from ztorch.metrics import Metric, SumMetric
from ztorch.metrics.metric import Weigh
from ztorch.model.objectives import Objective
from ztorch.runtime.spec import SUMS

Mean = Callable[[Value], Value]  # the mean of each row of values


@dataclass(frozen=True)
class RowScores:
    """Scores of predictions in the function that a context traces."""

    model: Network
    objectives: Mapping[str, Objective]  # by output
    context: Context
    row_weights: Value  # one for each row

    def losses(self, y_true: Mapping[str, Value], y_pred: Mapping[str, Value]) -> dict[str, Value]:
        """The loss, with what layers and regularizers add to it, under "loss". With several outputs
        the loss of each is a score, too."""
        for name, y in y_true.items():  # as long as predictions
            self.context.padding.declare(y, self.context.padding.of(y_pred[name]))
        with layer_scope("loss"):
            share = self._share()
            means = {name: self._mean(y_pred[name]) for name in self.objectives}
            rows = self._loss_rows(y_true, y_pred, means)
            scores = {name: OPS.sum(row * share) for name, row in rows.items()}
            terms = [*([scores["loss"]] if "loss" in scores else []), *self._penalties()]
            return {**({"loss": reduce(OPS.add, terms)} if terms else {}),
                    **{name: x for name, x in scores.items() if name != "loss"}}

    def metrics(self, y_true: Mapping[str, Value], y_pred: Mapping[str, Value],
                taken: Mapping[str, Value]) -> dict[str, Value]:
        """The metrics by name; those that are no means as the sums of this batch. `taken` has the
        names of other scores."""
        scores: dict[str, Value] = {}
        known = set(taken)
        for name, objective in self.objectives.items():
            for metric in objective.metrics:
                label = labelled(name, metric)
                if label in known:
                    raise ConfigError(f"two scores are named {label!r}; give a metric or an output "
                                      "another name")
                known.add(label)
                scores |= self.metric(metric, label, y_true[name], y_pred[name])
        return scores

    def metric(self, metric: Metric, label: str, y_true: Value, y_pred: Value) -> dict[str, Value]:
        """A metric under its label; the sums of this batch where it is no mean."""
        with layer_scope(metric.name):
            if isinstance(metric, SumMetric):
                sums = metric.sums(y_true, y_pred, weigher(y_pred, self.row_weights, self.context))
                return {f"{SUMS}{label}/{key}": x for key, x in sums.items()}
            row = metric.per_row(y_true, y_pred, mean=self._mean(y_pred))
        with layer_scope("loss"):
            return {label: OPS.sum(row * self._share())}

    def _share(self) -> Value:
        """What each row counts in a mean."""
        total = OPS.sum(self.row_weights)
        return self.row_weights / OPS.where(total > 0.0, total, 1.0)  # without weight scores are 0

    def _mean(self, y_pred: Value) -> Mean:
        return row_means(y_pred, self.row_weights, self.context)

    def _loss_rows(self, y_true: Mapping[str, Value], y_pred: Mapping[str, Value],
                   means: Mapping[str, Mean]) -> dict[str, Value]:
        """The loss of each row: the sum under "loss", and with several outputs each as well."""
        row_losses, context = {}, self.context
        for name, objective in self.objectives.items():
            activation, logits = context.probabilities.get(y_pred[name], ("", None))
            fused = activation == objective.loss.logits_of  # loss and activation as one function
            row_losses[name] = objective.loss.per_row(
                y_true[name], y_pred[name], logits if fused else None, mean=means[name])
        weighted = [row_losses[name] if objective.weight == 1 else
                    row_losses[name] * objective.weight
                    for name, objective in self.objectives.items()]
        for loss in context.losses:
            context.padding.of(loss)  # raises where padding is mixed into it
        rows = {"loss": reduce(OPS.add, terms)} if (terms := [*weighted, *context.losses]) else {}
        if "" not in self.objectives:
            rows |= {f"{name}_loss": row for name, row in row_losses.items()}
        return rows

    def _penalties(self) -> list[Value]:
        """What regularizers of weights and layers add to the loss, scalars."""
        context, d = self.context, self.context.dtype
        return [*context.penalties, *(OPS.cast(w.regularizer(OPS.cast(context.current(w), d)), d)
                                      for w in self.model.weights
                                      if w.trains and w.regularizer is not None)]


def labelled(output: str, metric: Metric) -> str:
    """The name of a metric among the scores."""
    return f"{output}_{metric.name}" if output else metric.name


def weigher(y_pred: Value, row_weights: Value, context: Context) -> Weigh:
    """What multiplies values by the weights of their rows; what is padded or masked becomes 0."""

    def weigh(values: Value) -> Value:
        counts = counting(values, context.masks.get(y_pred), context.padding)
        weights = OPS.cast(OPS.reshape(row_weights, (-1, *(1,) * (values.rank - 1))), values.dtype)
        kept = values if counts is None else OPS.where(
            OPS.broadcast_to(counts, values.shape), values, 0.0)
        return context.padding.declare(kept * weights, {})

    return weigh


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


def row_means(y_pred: Value, row_weights: Value, context: Context) -> Mean:
    """What gives the mean of each row of values that compare predictions with targets.

    What is padded or masked does not count. Rows count alike, whatever their padding; as in Keras,
    steps count alike where predictions have a mask.
    """
    mask, padding = context.masks.get(y_pred), context.padding

    def mean(values: Value) -> Value:
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
