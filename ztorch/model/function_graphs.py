"""The functions that compare predictions with targets, as graphs: evaluate and train."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from ztorch.dtypes import f16
from ztorch.errors import ConfigError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.model.loss_scale import scaled_updates
from ztorch.model.objectives import Objective
from ztorch.optimizers import Optimizer


@dataclass(frozen=True)
class ScoringGraphs:
    """Builds the graphs that compare predictions with targets. Each has inputs of its own."""

    model: Network
    batch_size: int
    states: States
    objectives: dict[str, Objective]  # by output

    def evaluate(self) -> Graph:
        """x, y, w -> loss and metrics."""
        context = Context(states=self.states)
        return Graph(self._scores(context), context.memories)

    def train(self, optimizer: Optimizer) -> Graph:
        """x, y, w -> loss and metrics; updates the weights, the slots of the optimizer, and what
        layers count."""
        context = Context(training=True, states=self.states)
        scores = self._scores(context)
        weights = [context.stored(w) for w in self.model.weights if w.trains]
        self._need_trainable(weights)
        step = self.states.leaf("optimizer/step", (), "int32", lambda: 0, kind="counter",
                                trainable=False)

        def updates(grads: Sequence[Value]) -> dict[Value, Value]:
            return optimizer.apply(weights, grads, step)

        if self.states.narrow is f16:
            new_values = scaled_updates(scores["loss"], weights, self.states, updates)
        else:
            new_values = updates(gradients(scores["loss"], weights))
        return Graph(scores, {state.attrs["name"]: value
                              for state, value in {**context.updates, **new_values}.items()})

    def _scores(self, context: Context) -> dict[str, Value]:
        """Loss and metrics by name, each the weighted mean over the rows. With several outputs the
        loss of each is a score, too."""
        x = self.model.leaves(self.batch_size, self.states.dtype)
        y_true = {name: leaf("input", port("y", name), objective.target.shape,
                             objective.target.dtype)
                  for name, objective in self.objectives.items()}
        w = leaf("input", "w", (self.batch_size,), self.states.dtype)
        y_pred = self.model.called(x, context)
        with layer_scope("loss"):
            total = OPS.sum(w)
            share = w / OPS.where(total > 0.0, total, 1.0)  # a batch without weight scores 0
            weights = {name: _step_weights(context.mask_of(y), w) for name, y in y_pred.items()}
            rows = self._loss_rows(y_true, y_pred, weights, context)
        for name, objective in self.objectives.items():
            for metric in objective.metrics:
                label = f"{name}_{metric.name}" if name else metric.name
                if label in rows:
                    raise ConfigError(f"two scores are named {label!r}; give a metric or an output "
                                      "another name")
                with layer_scope(metric.name):
                    rows[label] = metric(y_true[name], y_pred[name], weights[name])
        with layer_scope("loss"):
            return {name: OPS.sum(row * share) for name, row in rows.items()}

    def _loss_rows(self, y_true: dict[str, Value], y_pred: dict[str, Value],
                   step_weights: dict[str, Value | None], context: Context) -> dict[str, Value]:
        """The loss of each row: the sum under "loss", and with several outputs each as well."""
        row_losses = {}
        for name, objective in self.objectives.items():
            activation, logits = context.probabilities.get(y_pred[name], ("", None))
            fused = activation == objective.loss.logits_of  # loss and activation as one function
            row_losses[name] = objective.loss(y_true[name], y_pred[name],
                                              logits if fused else None, step_weights[name])
        weighted = [row_losses[name] if objective.weight == 1 else
                    row_losses[name] * objective.weight
                    for name, objective in self.objectives.items()]
        rows = {"loss": reduce(OPS.add, [*weighted, *context.losses])}
        if "" not in self.objectives:
            rows |= {f"{name}_loss": row for name, row in row_losses.items()}
        return rows

    def _need_trainable(self, weights: Sequence[Value]) -> None:
        if weights:
            return
        if not self.model.weights:
            raise ConfigError(f"model {self.model.name!r} has no weights to train; add a layer "
                              "that has some, such as Dense, or leave the optimizer out")
        raise ConfigError(f"model {self.model.name!r} has no trainable weights; leave the "
                          "optimizer out, or set layer.trainable = True")


def _step_weights(mask: Value | None, row_weights: Value) -> Value | None:
    """What each step of a masked output counts, so that scores are means over unmasked steps."""
    if mask is None:
        return None
    counts = OPS.cast(mask, row_weights.dtype)
    steps = OPS.sum(counts, axis=tuple(range(1, mask.rank)))
    total = OPS.sum(steps * row_weights)
    factor = OPS.sum(row_weights) / OPS.where(total > 0.0, total, 1.0)
    return counts * (factor * float(math.prod(mask.shape[1:])))
