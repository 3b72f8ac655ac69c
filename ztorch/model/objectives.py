"""The objective of each output: loss, metrics and weight, from the arguments of `compile`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ztorch import losses
from ztorch import metrics as metrics_
from ztorch.config import number
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, Unsupported, unknown
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.network import Network
from ztorch.losses import Loss, TargetSpec
from ztorch.metrics import Metric, MetricLists, WeightedMetric

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum")


class Objective(NamedTuple):
    """The objective of one output."""

    loss: Loss | None  # None: a method of the model computes it
    target: TargetSpec  # shape and dtype of y
    metrics: list[Metric]
    weight: float  # of this loss in the sum of losses


def losses_of(model: Network, loss: Any, optimizer: Any, metrics: Any) -> dict[str, Loss]:
    """The loss of each output that has one, by name.

    Args:
        model: The model.
        loss: The argument of `compile`: a loss for all outputs, a list or a dict.
        optimizer: The argument of `compile`, which needs a loss.
        metrics: The argument of `compile`, which need a loss.
    """
    if loss is None and (optimizer is not None or metrics):
        argument = "an optimizer" if optimizer is not None else "metrics"
        raise ConfigError(f"compile got {argument} but no loss; add one, such as loss='mse', or "
                          f"omit {argument.split()[-1]} for a program that only predicts")
    by_output = _by_output("loss", loss, model, losses.get)
    if loss is not None and not by_output:
        raise ConfigError(f"loss={loss!r} contains no loss; add one, such as "
                          f"loss={{{model.output_names[0]!r}: 'mse'}}, or omit it for a "
                          "program that only predicts")
    return by_output


def objectives_of(model: Network, outputs: Mapping[str, Value], loss_of: Mapping[str, Loss],
                  metrics: Any, loss_weights: Any, targets: Mapping[str, TargetSpec]
                  ) -> dict[str, Objective]:
    """The objective of each output with a loss, or with `targets` for metrics, by name."""
    several = "" not in outputs
    listed = metrics if isinstance(metrics, MetricLists) else MetricLists(metrics, None)
    metrics_of, weighted_of = (
        _by_output(argument, specs or None, model, _as_list if several else lambda m: m,
                   spread=False)
        for argument, specs in (("metrics", listed.plain), ("weighted_metrics", listed.weighted)))
    weight_of = _by_output("loss_weights", loss_weights, model,
                           lambda weight: number("loss_weights", weight))
    for name in (*metrics_of, *weighted_of, *weight_of):
        if name not in loss_of and loss_of:
            raise ConfigError(f"output {name!r} has metrics or a loss weight but no loss; set "
                              "one, such as loss={" + repr(name) + ": 'mse'}")
    objectives = {}
    for name, y in outputs.items():
        loss, measured = loss_of.get(name), {*metrics_of, *weighted_of}
        if loss is None and (name not in targets or name not in measured):
            continue
        target = (_measured(targets[name], y) if loss is None else
                  targets[name] if model.has_steps_alone and name in targets else
                  _described(loss, name, y, targets.get(name)))
        compared = _measured(target, y) if target.classes is None else target
        metrics_list = metrics_.resolve(metrics_of.get(name, ()), compared, y.shape)
        metrics_list += [
            m if isinstance(m, WeightedMetric) else WeightedMetric(m)
            for m in metrics_.resolve(weighted_of.get(name, ()), compared, y.shape)]
        objectives[name] = Objective(loss, target, metrics_list, weight_of.get(name, 1.0))
    return objectives


def _described(loss: Loss, output: str, y: Value, fed: TargetSpec | None) -> TargetSpec:
    """The targets of an output that a loss compares with predictions. `fed` are those of the data,
    which a loss that accepts any gets, unless they have as many elements as predictions."""
    narrow = y.dtype.is_float and y.dtype.bits < 32  # compared in float32
    with layer_scope(output):
        target = loss.target(y.shape, f32 if narrow else y.dtype)
    if loss.reduction not in REDUCTIONS:
        raise Unsupported(f"loss {loss.name!r} has reduction={loss.reduction!r}; compile needs "
                          "one number per batch; call such a loss yourself, in a train_step or "
                          "on numbers")
    if fed is not None and loss.takes_any and (
            math.prod(fed.shape[1:]) != math.prod(y.shape[1:])):
        # Numbers for a function need not be classes, such as -1 for none.
        return fed if target.classes is None else replace(target, shape=fed.shape)
    return target


def _measured(target: TargetSpec, y: Value) -> TargetSpec:
    """Targets that only metrics compare with predictions."""
    are_classes = not target.dtype.is_float and len(target.shape) == y.rank - 1
    return replace(target, classes=y.shape[-1]) if are_classes else target


def _by_output(argument: str, value: Any, model: Network, parse: Callable[[Any], Any],
               spread: bool = True) -> dict[str, Any]:
    """An argument of `compile` that may differ by output, as a dict by output.

    Args:
        argument: Its name, for errors.
        value: The argument of `compile`: one item for a single output, otherwise a list in the
            order of outputs or a dict by their names. None items are left out.
        model: The model.
        parse: Converts an item to the object that it names.
        spread: Whether one item may apply to all outputs.
    """
    names = model.output_names
    if value is None:
        return {}
    if names == [""]:
        if spread and isinstance(value, (list, tuple)):
            if not value:
                raise ConfigError(f"{argument} is an empty list; omit it")
            if len(value) != 1:
                raise ConfigError(f"{argument} has length {len(value)}, but model {model.name!r} "
                                  f"has one output; pass one, such as {argument}={value[0]!r}")
            value = value[0]
        return {"": parse(value)}
    is_config = spread and isinstance(value, Mapping) and "class_name" in value
    if isinstance(value, Mapping) and not is_config:
        for name in value:
            if name not in names:
                raise ConfigError(f"{argument}={{{name!r}: ...}}: {unknown('output', name, names)}")
    elif isinstance(value, (list, tuple)):
        if len(value) != len(names):
            raise ConfigError(f"{argument} has length {len(value)}, but there are {len(names)} "
                              f"outputs ({', '.join(names)}); pass one item per output, which may "
                              "be None, or a dict by their names")
        value = dict(zip(names, value, strict=True))
    elif spread:
        value = dict.fromkeys(names, value)
    else:
        raise ConfigError(f"{argument}={value!r}: a model with several outputs takes a list in the "
                          f"order {', '.join(names)}, or a dict with these names")
    return {name: parse(value[name]) for name in names if value.get(name) is not None}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]
