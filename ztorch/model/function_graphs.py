"""The functions that compare predictions with targets, as graphs: evaluate and train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ztorch.errors import ConfigError
from ztorch.graph.op import leaf, shape_error
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.layers.real_positions import Padding
from ztorch.layers.weight import Weight
from ztorch.losses import TargetSpec
from ztorch.metrics import Metric
from ztorch.model.loss_scale import LossScale
from ztorch.model.mixed_rows import mixing_op
from ztorch.model.objectives import Objective
from ztorch.model.row_scores import RowScores, RowWeights, labeled
from ztorch.model.size_effects import larger_graph
from ztorch.model.step_functions import PLAIN, StepData
from ztorch.optimizers import Optimizer
from ztorch.runtime.spec import SUMS


@dataclass(frozen=True)
class BatchInputs:
    """The inputs of a function that compares predictions with targets."""

    x: dict[str, Value]  # by input
    y: dict[str, Value]  # by output
    weights: RowWeights
    own_weights: Value  # the input with the weights that users give to rows

    def taken_by(self, graph: Graph) -> Graph:
        """A graph that takes rows, targets and weights, even if no score depends on some."""
        read = {*graph.leaves("input")}
        roles = (self.x.values(), self.y.values(), (self.own_weights,))
        return replace(graph, declared=tuple(
            v for role in roles if read.isdisjoint(role) for v in role))


class _Compared(NamedTuple):
    """Predictions of a batch beside its targets."""

    scores: dict[str, Value]  # losses and metrics by name; of several outputs each loss
    batch: BatchInputs
    rows: Graph  # values of rows: predictions, losses and metrics before they are summed


@dataclass(frozen=True)
class ScoringGraphs:
    """Builds the graphs that compare predictions with targets. Each graph has its own inputs."""

    model: Network
    batch_size: int
    sizes: Mapping[str, int]  # of open axes
    states: States
    objectives: dict[str, Objective]  # by output
    targets: Mapping[str, TargetSpec] = field(default_factory=dict)  # of outputs without a loss
    # The number of step axes of an output's weights, for outputs with separate weights.
    weighted: Mapping[str, int] = field(default_factory=dict)
    step_data: StepData = PLAIN
    # Metrics of the model's class that its step returns, by their names there.
    step_metrics: dict[str, Metric] = field(default_factory=dict)
    # Losses and metrics that give one number for a batch, so that all its rows count, and layers
    # that combine rows.
    of_batches: set[str] = field(default_factory=set)

    def results(self, scores: Mapping[str, Value]) -> Graph | None:
        """Totals of the sums of batches -> the metrics computed from them, by name; None if there
        are none. `scores` are the outputs of evaluate."""
        totals: dict[str, dict[str, Value]] = {}
        for name, x in scores.items():
            if name.startswith(SUMS):
                label, _, key = name.removeprefix(SUMS).rpartition("/")
                totals.setdefault(label, {})[key] = leaf("input", name, x.shape, x.dtype)
        metrics = {**self.step_metrics, **{label: metric
                                   for label, _, metric in labeled(self.objectives)}}
        outputs = {}
        for label, sums in totals.items():
            with layer_scope(label):
                outputs[label] = metrics[label].of_sums(sums)
        return Graph(outputs) if outputs else None

    def evaluate(self) -> Graph:
        """x, y, w -> loss and metrics."""
        context = self.context()
        compared = self._scored(context)
        return compared.batch.taken_by(Graph(compared.scores, context.memories))

    def train(self, optimizer: Optimizer) -> Graph:
        """x, y, w -> loss and metrics. Updates the weights, the optimizer's slots, and the counters
        of layers."""
        context = self.context(training=True)
        compared = self._scored(context)
        scores = compared.scores
        weights = [context.stored(w) for w in self.model.weights if w.trains]
        self._need_trainable(weights)
        written = {w: context.updates[w] for w in weights if w in context.updates}
        used = [written.get(w, w) for w in weights]
        step = self.states.leaf("optimizer/step", (), "int32", lambda: 0, kind="counter",
                                trainable=False)

        scale = LossScale(self.states, optimizer)
        slopes = scale.gradients(scores["loss"], used)
        new_values = scale.if_finite(optimizer.new_values(weights, slopes, step, written), slopes,
                                written) | scale.updates()
        new_values = constrained(new_values, self.model.weights, context)
        updates = {state.attrs["name"]: value
                   for state, value in {**context.updates, **new_values}.items()}
        return compared.batch.taken_by(
            Graph(scores, updates, tuple(dict.fromkeys(context.recomputed))))

    def context(self, training: bool = False) -> Context:
        return Context(training=training, states=self.states,
                       padding=Padding(self.sizes, rows_vary=True))

    def _scored(self, context: Context) -> _Compared:
        """Predictions beside targets, with a note of layers and losses that combine rows."""
        parts = (*self.step_metrics.values(),
                 *((o.loss, o.metrics) for o in self.objectives.values()))
        larger = larger_graph(self.model, self.batch_size,
                              lambda rows: self._rows_of(rows, context), parts)
        compared = self._compared(context)
        inputs = *compared.batch.x.values(), *compared.batch.y.values()
        hiding = context.padding.layers_that_hide_rows
        mixed = mixing_op(compared.rows, inputs, self.batch_size, hiding, larger)
        self.of_batches.update(() if mixed is None else {mixed.layer or self.model.name})
        return compared

    def _rows_of(self, batch_size: int, context: Context) -> Graph:
        """The values of rows, in a batch of another size."""
        other = replace(self, batch_size=batch_size, of_batches=set(),
                        states=replace(self.states, data=False, leaves={}))
        return other._compared(other.context(bool(context.training))).rows

    def _compared(self, context: Context) -> _Compared:
        batch = self.batch(context)
        y_pred = self.model.called(batch.x, context)
        of_rows = RowScores(self.model, self.objectives, context, batch.weights,
                            self.of_batches)
        scores = of_rows.losses(batch.y, y_pred)
        scores |= of_rows.metrics(batch.y, y_pred, scores)
        added = (*context.losses, *context.penalties, *of_rows.compared)
        rows = Graph({**y_pred, **{str(k): v for k, v in enumerate(added)}})
        return _Compared(scores, batch, rows)

    def batch(self, context: Context) -> BatchInputs:
        """Inputs of a function: rows, their targets and their weights."""
        x = self.model.leaves(self.batch_size, self.states.dtype, self.sizes)
        specs = {**self.targets, **{name: o.target for name, o in self.objectives.items()}}
        y = {name: leaf("input", port("y", name), (self.batch_size, *spec.shape[1:]), spec.dtype)
             for name, spec in specs.items()}
        d = self.states.dtype
        own = leaf("input", "w", (self.batch_size,), d)
        rows = context.padding.real_rows(self.batch_size, d)
        of_outputs = {name: self._weights_of(name, specs[name].shape, axes)
                      for name, axes in self.weighted.items() if name in specs}
        return BatchInputs(x, y, RowWeights(own * rows, rows, of_outputs), own)

    def _weights_of(self, output: str, target: tuple[int, ...], axes: int) -> Value:
        """The input with the weights of rows or steps of one output."""
        if axes >= len(target):
            raise shape_error(f"weights of {'output ' + repr(output) if output else 'the output'} "
                              f"have {axes} axes besides the batch, but its targets have shape",
                              target[1:], fix="pass one weight per row, or per step")
        shape = (self.batch_size, *target[1:1 + axes])
        return leaf("input", port("weights", output), shape, self.states.dtype)

    def _need_trainable(self, weights: Sequence[Value]) -> None:
        if weights:
            return
        if not self.model.weights:
            raise ConfigError(f"model {self.model.name!r} has no weights to train; add a layer "
                              "with weights, such as Dense, or omit the optimizer")
        raise ConfigError(f"model {self.model.name!r} has no trainable weights; omit the "
                          "optimizer, or set layer.trainable = True")


def constrained(new_values: dict[Value, Value], weights: Iterable[Weight],
                context: Context) -> dict[Value, Value]:
    """New values of states, with constraints applied to weights."""
    for w in weights:
        if w.trains and w.constraint is not None:
            state = context.stored(w)
            with layer_scope(w.layer.path):
                new_values[state] = w.constraint(new_values[state])
    return new_values
