"""The functions that compare predictions with targets, as graphs: evaluate and train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ztorch.dtypes import f16
from ztorch.errors import ConfigError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf, shape_error
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.layers.real_positions import Padding, spread
from ztorch.losses.loss import rows
from ztorch.metrics import Metric, SumMetric
from ztorch.metrics.metric import Weigh
from ztorch.model.loss_scale import scaled_updates
from ztorch.model.objectives import Objective
from ztorch.optimizers import Optimizer
from ztorch.runtime.spec import SUMS

Mean = Callable[[Value], Value]  # the mean of each row of values


@dataclass(frozen=True)
class ScoringGraphs:
    """Builds the graphs that compare predictions with targets. Each has inputs of its own."""

    model: Network
    batch_size: int
    sizes: Mapping[str, int]  # of open axes
    rows_vary: bool  # whether batches may be filled up with rows that must not count at all
    states: States
    objectives: dict[str, Objective]  # by output

    def results(self, scores: Mapping[str, Value]) -> Graph | None:
        """Totals of the sums of batches -> the metrics that are computed from them, by name; None
        where there are none. `scores` are the outputs of evaluate."""
        totals: dict[str, dict[str, Value]] = {}
        for name, x in scores.items():
            if name.startswith(SUMS):
                label, _, key = name.removeprefix(SUMS).rpartition("/")
                totals.setdefault(label, {})[key] = leaf("input", name, x.shape, x.dtype)
        metrics = {labelled(name, metric): metric for name, objective in self.objectives.items()
                   for metric in objective.metrics}
        outputs = {}
        for label, sums in totals.items():
            with layer_scope(label):
                metric = metrics[label]
                assert isinstance(metric, SumMetric)
                outputs[label] = metric.result(sums)
            if outputs[label].shape != ():
                raise shape_error(f"the result of metric {label!r} is one number, not a tensor of "
                                  "shape", outputs[label].shape)
        return Graph(outputs) if outputs else None

    def evaluate(self) -> Graph:
        """x, y, w -> loss and metrics."""
        context = self._context()
        return Graph(self._scores(context), context.memories)

    def train(self, optimizer: Optimizer) -> Graph:
        """x, y, w -> loss and metrics; updates the weights, the slots of the optimizer, and what
        layers count."""
        context = self._context(training=True)
        scores = self._scores(context)
        weights = [context.stored(w) for w in self.model.weights if w.trains]
        self._need_trainable(weights)
        written = {w: context.updates[w] for w in weights if w in context.updates}
        used = [written.get(w, w) for w in weights]
        step = self.states.leaf("optimizer/step", (), "int32", lambda: 0, kind="counter",
                                trainable=False)

        def updates(grads: Sequence[Value]) -> dict[Value, Value]:
            return optimizer.apply(weights, grads, step, written)

        scale = optimizer.loss_scale_factor
        if scale is not None:
            slopes = gradients(scores["loss"] * scale, used)
            new_values = updates([g / scale for g in slopes])
        elif self.states.narrow is f16:
            new_values = scaled_updates(scores["loss"], used, self.states, updates)
        else:
            new_values = updates(gradients(scores["loss"], used))
        new_values = self._constrained(new_values, context)
        return Graph(scores, {state.attrs["name"]: value
                              for state, value in {**context.updates, **new_values}.items()},
                     tuple(dict.fromkeys(context.recomputed)))

    def _context(self, training: bool = False) -> Context:
        return Context(training=training, states=self.states,
                       padding=Padding(self.sizes, self.rows_vary))

    def _scores(self, context: Context) -> dict[str, Value]:
        """Loss and metrics by name, each the weighted mean over the rows. With several outputs the
        loss of each is a score, too."""
        x = self.model.leaves(self.batch_size, self.states.dtype, self.sizes)
        y_true = {name: leaf("input", port("y", name), objective.target.shape,
                             objective.target.dtype)
                  for name, objective in self.objectives.items()}
        w = leaf("input", "w", (self.batch_size,), self.states.dtype)
        y_pred = self.model.called(x, context)
        for name, y in y_true.items():  # as long as predictions
            context.padding.declare(y, context.padding.of(y_pred[name]))
        with layer_scope("loss"):
            total = OPS.sum(w)
            share = w / OPS.where(total > 0.0, total, 1.0)  # a batch without weight scores 0
            means = {name: row_means(y, w, context) for name, y in y_pred.items()}
            rows = self._loss_rows(y_true, y_pred, means, context)
            scores = {name: OPS.sum(row * share) for name, row in rows.items()}
            scores["loss"] = reduce(OPS.add, self._penalties(context), scores["loss"])
        known = set(scores)
        for name, objective in self.objectives.items():
            for metric in objective.metrics:
                label = labelled(name, metric)
                if label in known:
                    raise ConfigError(f"two scores are named {label!r}; give a metric or an output "
                                      "another name")
                known.add(label)
                y, p = y_true[name], y_pred[name]
                with layer_scope(metric.name):
                    if isinstance(metric, SumMetric):
                        sums = metric.sums(y, p, weigher(p, w, context))
                        scores |= {f"{SUMS}{label}/{key}": x for key, x in sums.items()}
                        continue
                    row = metric(y, p, mean=means[name])
                with layer_scope("loss"):
                    scores[label] = OPS.sum(row * share)
        return scores

    def _loss_rows(self, y_true: dict[str, Value], y_pred: dict[str, Value],
                   means: dict[str, Mean], context: Context) -> dict[str, Value]:
        """The loss of each row: the sum under "loss", and with several outputs each as well."""
        row_losses = {}
        for name, objective in self.objectives.items():
            activation, logits = context.probabilities.get(y_pred[name], ("", None))
            fused = activation == objective.loss.logits_of  # loss and activation as one function
            row_losses[name] = objective.loss(y_true[name], y_pred[name],
                                              logits if fused else None, mean=means[name])
        weighted = [row_losses[name] if objective.weight == 1 else
                    row_losses[name] * objective.weight
                    for name, objective in self.objectives.items()]
        for loss in context.losses:
            context.padding.of(loss)  # raises where padding is mixed into it
        rows = {"loss": reduce(OPS.add, [*weighted, *context.losses])}
        if "" not in self.objectives:
            rows |= {f"{name}_loss": row for name, row in row_losses.items()}
        return rows

    def _penalties(self, context: Context) -> list[Value]:
        """What regularizers of weights and layers add to the loss, scalars."""
        d = self.states.dtype
        return [*context.penalties, *(OPS.cast(w.regularizer(OPS.cast(context.stored(w), d)), d)
                                      for w in self.model.weights
                                      if w.trains and w.regularizer is not None)]

    def _constrained(self, new_values: dict[Value, Value], context: Context) -> dict[Value, Value]:
        """New values of states, with weights as their constraints ask for."""
        for w in self.model.weights:
            if w.trains and w.constraint is not None:
                state = context.stored(w)
                with layer_scope(w.layer.path):
                    new_values[state] = w.constraint(new_values[state])
        return new_values

    def _need_trainable(self, weights: Sequence[Value]) -> None:
        if weights:
            return
        if not self.model.weights:
            raise ConfigError(f"model {self.model.name!r} has no weights to train; add a layer "
                              "that has some, such as Dense, or leave the optimizer out")
        raise ConfigError(f"model {self.model.name!r} has no trainable weights; leave the "
                          "optimizer out, or set layer.trainable = True")


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
