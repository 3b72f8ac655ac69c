"""The functions of a model for one bucket of sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from ztorch.graph.value import Graph, Value
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.layers.open_models import Axes, open_outputs
from ztorch.layers.real_positions import Padding
from ztorch.losses import TargetSpec
from ztorch.model.mixed_rows import mixing_op
from ztorch.model.objectives import Objective
from ztorch.model.size_effects import larger_graph
from ztorch.model.step_functions import StepData
from ztorch.optimizers import Optimizer
from ztorch.real_sizes import OpenAxis
from ztorch.runtime.buckets import Buckets, Sizes, open_axes_text
from ztorch.runtime.spec import RESULTS

_PREDICTIONS = frozenset({"predict"})
_SCORING = frozenset({"evaluate", "train"})


class BucketGraphs(NamedTuple):
    """The functions of a model for one bucket of sizes, and their sources."""

    x: dict[str, Value]  # inputs of predict by name
    outputs: dict[str, Value]  # its outputs
    context: Context  # in which it was traced
    objectives: dict[str, Objective]  # by output
    functions: dict[str, Graph]  # by name
    whole_batches: frozenset[str]  # functions in which all rows of a batch count
    whole_axes: Mapping[str, Axes]  # open axes of "x" and "y" along which rows are never padded

    @property
    def open_axes(self) -> dict[str, str]:
        """The variable axes, by port, as stored in metadata."""
        if self.whole_axes:
            return {port(role, name): open_axes_text(axes)
                    for role, side in self.whole_axes.items() for name, axes in side.items()
                    if axes}
        named = {port(role, name): self.context.padding.of(v)
                 for role, side in (("x", self.x), ("y", self.outputs)) for name, v in side.items()}
        return {name: open_axes_text({k - 1: OpenAxis(mask.axis, mask.steps)
                                      for k, mask in padded.items()})
                for name, padded in named.items() if padded}


class _Predict(NamedTuple):
    x: dict[str, Value]  # inputs by name
    outputs: dict[str, Value]  # by name
    context: Context
    graph: Graph


class BucketTracer(NamedTuple):
    """Traces a model for one bucket of sizes after another."""

    model: Network
    buckets: Buckets
    single: Mapping[str, int]  # open axes of size 1, which is no bucket
    states: States  # of all functions
    optimizer: Optimizer | None
    objectives_for: Callable[[Mapping[str, Value], Mapping[str, TargetSpec]],
                             dict[str, Objective]]  # by output, of outputs and targets
    own: Collection[str]  # functions that methods of the model's class define
    targets: Mapping[str, TargetSpec]  # of a custom step, by output
    weighted: Mapping[str, int]  # axes of steps that weights have, by output
    step_data: StepData  # the form of the data of custom steps

    def graphs(self, bucket: Sizes) -> BucketGraphs:
        """The functions for one bucket."""
        model, states, own = self.model, self.states, self.own
        batch_size, *rest = bucket
        _, *names = self.buckets.axes
        sizes = {**self.single, **dict(zip(names, rest, strict=True))}
        larger = larger_graph(model, batch_size, lambda rows: self._predict(
            rows, sizes, replace(states, data=False, leaves={})).graph)
        x, outputs, context, predict = self._predict(batch_size, sizes, states)
        functions = {"predict": predict}
        whole: dict[str, Axes] = {} if not model.mixes_open_axes else {
            "x": {name: {k: OpenAxis(axis) for k, axis in axes.items()}
                  for name, axes in model.open_axes.items()}, "y": open_outputs(model)}
        long = {name: {k + 1 for k in whole["y"][name]} if whole else {*context.padding.of(y)}
                for name, y in outputs.items()}
        targets = {name: _as_long(spec, outputs[name], long[name]) if name in outputs else spec
                   for name, spec in self.targets.items()}
        objectives = self.objectives_for(outputs, targets)
        if self.optimizer is not None or objectives or not _PREDICTIONS.issuperset(own):
            scoring, of_batches = self._scoring(batch_size, sizes, objectives, targets)
            functions |= scoring
        else:
            of_batches = set()
        by_batch = frozenset(own) - {"predict"}  # functions that need the size of a batch
        if of_batches:
            by_batch |= _SCORING & set(functions)
        if mixing_op(predict, x.values(), batch_size, larger=larger) is not None:
            by_batch |= set(functions) - {RESULTS}
        return BucketGraphs(x, outputs, context, objectives, functions, by_batch, whole)

    def _scoring(self, batch_size: int, sizes: Mapping[str, int], objectives: dict[str, Objective],
                 targets: Mapping[str, TargetSpec]) -> tuple[dict[str, Graph], set[str]]:
        """The functions that compare predictions with targets, by name, and the losses, metrics
        and layers of them for which all rows of a batch count."""
        from ztorch.model.function_graphs import ScoringGraphs  # predictions need none of these
        from ztorch.model.step import traced_step

        graphs = ScoringGraphs(self.model, batch_size, sizes, self.states, objectives, targets,
                               self.weighted, self.step_data)
        functions = {}
        if "train" in self.own:
            functions["train"] = traced_step(graphs, "train_step", self.optimizer)
        elif self.optimizer is not None:
            functions["train"] = graphs.train(self.optimizer)
        if "evaluate" in self.own:
            functions["evaluate"] = traced_step(graphs, "test_step", self.optimizer)
        elif objectives and self.step_data.targets and not self.model.has_steps_alone:
            functions["evaluate"] = graphs.evaluate()
        results = graphs.results({name: x for graph in functions.values()
                                  for name, x in graph.outputs.items()})
        if results is not None:
            functions[RESULTS] = results
        return functions, graphs.of_batches

    def _predict(self, batch_size: int, sizes: Mapping[str, int], states: States) -> _Predict:
        context = Context(states=states, padding=Padding(sizes))
        x = self.model.leaves(batch_size, states.dtype, sizes)
        if "predict" in self.own:
            from ztorch.model.step import predicted

            outputs = predicted(self.model, x, context)
        else:
            outputs = self.model.called(x, context)
        return _Predict(x, outputs, context, Graph(
            {port("y", name): y for name, y in outputs.items()}, context.memories,
            declared=tuple(x.values())))


def _as_long(target: TargetSpec, y: Value, axes: Collection[int]) -> TargetSpec:
    """Targets with the length of predictions along open axes."""
    return replace(target, shape=tuple(y.shape[k] if k in axes else n
                                       for k, n in enumerate(target.shape)))
