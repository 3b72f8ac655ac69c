"""A step that a method of the model computes: `train_step` or `test_step`.

The method runs once, on graph tensors. Its results, and the weights that it changes, become the
native function that `fit` or `evaluate` calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, leaf, shape_error
from ztorch.graph.rewrite import substituted
from ztorch.graph.running_step import running_step
from ztorch.graph.value import Graph, Value, topological
from ztorch.layers.context import Context
from ztorch.layers.open_models import begin_padding
from ztorch.layers.symbol import leaves
from ztorch.layers.weight import Weight
from ztorch.metrics import Metric
from ztorch.metrics.updated import as_program_metric
from ztorch.model.function_graphs import BatchInputs, ScoringGraphs, constrained
from ztorch.model.loss_scale import LossScale
from ztorch.model.row_scores import RowScores, labeled
from ztorch.model.step_metrics import CompiledMetric, KeptSums, Scores, logged, score_name
from ztorch.optimizers import Optimizer


@dataclass
class TracedStep:
    """A step that is being traced."""

    graphs: ScoringGraphs
    context: Context
    batch: BatchInputs
    optimizer: Optimizer | None  # the optimizer of compile
    loss_scale: LossScale
    loss: Value | None = None  # the last result of compute_loss
    losses: Scores = field(default_factory=dict)  # loss of each output
    changed: dict[Value, Optimizer] = field(default_factory=dict)  # states, and what changed them
    optimizer_states: dict[str, Value] = field(default_factory=dict)  # by name
    results: dict[Metric, Scores] = field(default_factory=dict)  # sums of metrics
    read: dict[Value, KeptSums] = field(default_factory=dict)  # results of metrics in this step

    # -- arguments of the method -------------------------------------------------------------------

    def data(self) -> Any:
        """x, or (x, y) if there are targets, or (x, y, weights) if there are weights, too, each
        tensors, or lists and dicts of tensors as declared; or (x,), as `step_data` says."""
        model, batch = self.graphs.model, self.batch
        x = _as_called(model, batch.x)
        y: Any = batch.y.get("", dict(batch.y))
        if isinstance(y, dict) and model.outputs_are == "list" and list(y) == model.output_names:
            y = list(y.values())
        elif isinstance(y, dict) and list(y) == list(map(str, range(len(y)))):
            y = tuple(y.values())  # `fit` got a tuple
        form = self.graphs.step_data
        weights = (batch.weights.of(""),) if form.weights else ()
        return (x, y, *weights) if batch.y and form.targets else (x,) if form.in_tuple else x

    # -- loss and metrics --------------------------------------------------------------------------

    def compute_loss(self, y: Any, y_pred: Any, sample_weight: Any) -> Value:
        """The loss of compile, plus the losses that layers and regularizers add."""
        scores = self.row_scores(sample_weight).losses(*self.by_output(y, y_pred)) if (
            self.graphs.objectives) else self.row_scores(sample_weight).losses({}, {})
        if "loss" not in scores:
            raise ConfigError(f"model {self.graphs.model.name!r} was compiled without a loss, and "
                              "no layer adds one; compile(loss='mse'), or compute it in the step")
        self.loss = scores.pop("loss")
        self.losses = scores
        return self.loss

    def added_losses(self) -> list[Value]:
        """The terms that layers and regularizers add to the loss."""
        return self.row_scores(None).added()

    def metrics(self) -> list[Any]:
        """The loss, the metrics of compile, and those updated so far, as Keras lists them."""
        return [CompiledMetric(self, "loss", "", None), *(
            CompiledMetric(self, *label) for label in labeled(self.graphs.objectives)),
            *self._updated()]

    def compute_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> dict[str, Any]:
        """The loss, the metrics of compile, and those that the step has updated so far."""
        scores: dict[str, Any] = {} if self.loss is None else {"loss": self.loss, **self.losses}
        if self.graphs.objectives:
            targets, predictions = self.by_output(y, y_pred)
            scores |= self.row_scores(sample_weight).metrics(targets, predictions, scores)
        known = {score_name(label) for label in scores} - {"loss"}  # a metric may replace it
        for metric in self._updated():
            if metric.name in known:
                raise ConfigError(f"two scores are named {metric.name!r}; give one of these "
                                  "metrics another name")
            known.add(metric.name)
            scores[metric.name] = metric.result()
        return scores

    def _updated(self) -> list[Any]:
        """The metrics of the model that the step has updated so far."""
        compiled = {metric for _, _, metric in labeled(self.graphs.objectives)}
        return [metric for metric in self.results if metric not in compiled]

    def measure(self, metric: Metric, y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        """Computes a metric of the batch."""
        scores = self.row_scores(sample_weight)
        if sample_weight is None:  # weights of fit apply if the step passes them on
            scores = replace(scores, weights=scores.weights._replace(own=scores.weights.rows))
        self.add(metric, **scores.metric_sums(metric, y_true, y_pred))

    def measured(self, metric: Metric) -> Value:
        """The metric of the batch. If a step returns it, the epoch reports the metric of all
        batches."""
        if metric not in self.results:
            raise ConfigError(f"metric {metric.name!r} has no result before update_state, which a "
                              "step must call for its batch")
        totals = KeptSums(as_program_metric(metric), self.results[metric])
        result = totals.metric.of_sums(totals.sums)
        self.read[result] = totals
        return result

    def add(self, metric: Metric, **sums: Value) -> None:
        """Adds to the sums that a metric accumulates for the batch."""
        before = self.results.get(metric, {})
        self.results[metric] = {key: before[key] + x if key in before else x
                                for key, x in sums.items()}

    def row_scores(self, sample_weight: Any) -> RowScores:
        """What computes the scores of the batch, with these weights of rows or steps."""
        weights = self.batch.weights
        if sample_weight is not None:
            own = OPS.cast(sample_weight, self.context.dtype)
            of_steps = own.rank > 1 and own.size > weights.rows.size
            weights = weights._replace(own=weights.rows, outputs={"": own}) if of_steps else (
                weights._replace(own=weights.rows * OPS.reshape(own, weights.rows.shape)))
        return RowScores(self.graphs.model, self.graphs.objectives, self.context, weights)

    def by_output(self, y: Any, y_pred: Any) -> tuple[Scores, Scores]:
        """Targets and predictions by output."""
        model, names = self.graphs.model, list(self.graphs.objectives)
        targets = y if isinstance(y, Mapping) else dict(zip(names, leaves(y), strict=False))
        if missing := [name for name in names if not isinstance(targets.get(name), Value)]:
            raise ConfigError(f"compute_loss and compute_metrics need the targets of all outputs "
                              f"with a loss; y lacks {missing[0] or 'that of the output'!r}")
        return dict(targets), model.named_outputs(y_pred)

    # -- gradients and weights ---------------------------------------------------------------------

    def gradients(self, loss: Value, of: Any) -> Any:
        """The gradients of a loss with respect to weights or tensors: a list for a list."""
        if not isinstance(loss, Value) or loss.size != 1:
            raise shape_error("gradients need a loss with one number, not", getattr(
                loss, "shape", type(loss).__name__), fix="take the mean of the loss: zt.ops.mean")
        several = isinstance(of, (list, tuple))
        slopes = self.loss_scale.gradients(loss, [
            self.context.current(x) if isinstance(x, Weight) else x
            for x in (of if several else [of])])
        return slopes if several else slopes[0]

    def apply(self, optimizer: Optimizer, slopes: Sequence[Any],
              weights: Sequence[Weight] | None) -> None:
        """Applies an optimizer to weights."""
        model, context = self.graphs.model, self.context
        listed = [w for w in model.weights if w.trains] if weights is None else list(weights)
        if len(listed) != len(slopes):
            raise ConfigError(f"apply got {len(slopes)} gradients for {len(listed)} weights; pass "
                              "one per weight")
        if not listed:
            raise ConfigError(f"model {model.name!r} has no trainable weights; set "
                              "layer.trainable = True")
        states = [context.stored(w) for w in listed]
        for w, state in zip(listed, states, strict=True):
            if self.changed.setdefault(state, optimizer) is not optimizer:
                raise ConfigError(f"weight {w.path!r} is updated by two optimizers in one step; "
                                  "give each optimizer different weights")
        optimizer.states_under = self._states_under(optimizer)
        counter = context.states.leaf(f"{optimizer.states_under}/step", (), "int32", lambda: 0,
                                      kind="counter", trainable=False)
        new_values = self.loss_scale.if_finite(
            self._of_now(optimizer, counter, states, slopes), slopes, context.updates)
        context.updates.update({state: OPS.stop_gradient(value) for state, value in constrained(
            new_values, listed, context).items()})  # later losses are not functions of this one

    def _of_now(self, optimizer: Optimizer, counter: Value, states: Sequence[Value],
                slopes: Sequence[Value]) -> dict[Value, Value]:
        """The new values of an optimizer's states, computed from their current values in this step:
        layers write weights, and an optimizer may be applied several times."""
        places = [leaf("input", f"gradient {k}", g.shape, g.dtype) for k, g in enumerate(slopes)]
        new_values = optimizer.new_values(states, places, counter)
        now = dict(zip(places, slopes, strict=True))
        used = [v for v in topological([*new_values, *new_values.values()])
                if v.attrs.get("role") == "state"]
        same = {v: self.optimizer_states.setdefault(v.attrs["name"], v) for v in used}
        now |= {v: self.context.updates.get(first, first) for v, first in same.items()}
        return dict(zip((same[v] for v in new_values),
                        substituted(list(new_values.values()), now), strict=True))

    def _states_under(self, optimizer: Optimizer) -> str:
        """The prefix of an optimizer's states; optimizers other than compile's use their name."""
        if optimizer is self.optimizer:
            return "optimizer"
        for name, x in vars(self.graphs.model).items():
            if x is optimizer:
                return f"optimizer/{name}"
        raise ConfigError("an optimizer other than that of compile must be an attribute of the "
                          "model, such as self.generator_optimizer")


# -- tracing ---------------------------------------------------------------------------------------


def predicted(model: Any, x: Mapping[str, Value], context: Context) -> dict[str, Value]:
    """The outputs of `predict_step` by name, for inputs by name."""
    context.stepped = model
    begin_padding(model, x, context.padding)
    with context.calling(None):
        outputs = model.predict_step(_as_called(model, x))
    if len(leaves(outputs)) != len(model.output_names) or isinstance(outputs, dict) != (
            model.outputs_are == "dict"):
        raise ConfigError(f"{type(model).__name__}.predict_step returned {outputs!r}; return the "
                          "same number of tensors as call, in the same form")
    return model.named_outputs(outputs)


def _as_called(model: Any, x: Mapping[str, Value]) -> Any:
    """Inputs in the form that `call` expects."""
    if model.own_call is not None:
        return model.own_call.arguments(x)
    is_list = getattr(getattr(model, "wiring", None), "inputs_are", "") == "list"
    return x[""] if "" in x else list(x.values()) if is_list else dict(x)


def traced_step(graphs: ScoringGraphs, method: str, optimizer: Optimizer | None) -> Graph:
    """The graph of a method of the model: train_step updates weights, test_step does not.

    As in Keras, layers behave as in prediction unless the step calls them with training=True.
    """
    model: Any = graphs.model
    context = graphs.context()
    context.stepped = model
    batch = graphs.batch(context)
    step = TracedStep(graphs, context, batch, optimizer, LossScale(context.states, optimizer if (
        method == "train_step") else None))
    begin_padding(model, batch.x, context.padding)
    with _running(step):
        scores = logged(getattr(model, method)(step.data()), f"{type(model).__name__}.{method}",
                        graphs.step_metrics, step.read)
    if method == "test_step":
        return Graph(scores, context.memories)
    if not step.changed:
        raise ConfigError(f"{type(model).__name__}.train_step updates no weights; end it with "
                          "self.optimizer.apply(self.gradients(loss, weights), weights)")
    context.updates.update(step.loss_scale.updates())
    graph = Graph(scores, {state.attrs["name"]: value for state, value in context.updates.items()},
                  tuple(dict.fromkeys(context.recomputed)))
    if not graph.leaves("input"):
        raise ConfigError(f"the loss of model {model.name!r} depends only on weights, not on data; "
                          "compile with a loss, such as loss='mse'")
    return graph


@contextmanager
def _running(step: TracedStep) -> Iterator[None]:
    token = running_step.set(step)
    try:
        with step.context.calling(None):
            yield
    finally:
        running_step.reset(token)
