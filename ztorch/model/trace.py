"""From a model to graphs: the functions of one program, and what a program knows about itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from ztorch import losses
from ztorch import metrics as metrics_
from ztorch.compile.functions import Functions
from ztorch.config import flag, number, positive, whole_seed
from ztorch.dtypes import DType, bf16, dtype, f16, f32, f64
from ztorch.errors import ConfigError, Unsupported, unknown
from ztorch.graph.autodiff import gradients
from ztorch.graph.narrow import products_of
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.layers.context import Context, States
from ztorch.layers.decoding import Decoding, need_stepwise
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.losses import Loss, Target
from ztorch.metrics import Metric
from ztorch.model.loss_scale import scaled
from ztorch.model.summary import layer_rows
from ztorch.optimizers import Optimizer
from ztorch.runtime.snapshot import IdRange, Metadata, NamedConfig, WeightRow


@dataclass(frozen=True)
class Goal:
    """What one output is trained for."""

    loss: Loss
    target: Target
    metrics: list[Metric]
    weight: float  # of its loss in the sum


def trace(model: Network, batch_size: int, optimizer: Any = None, loss: Any = None,
          metrics: Any = (), dtype_: Any = "float32", seed: int | None = None,
          loss_weights: Any = None, decode: bool = False) -> Functions:
    """The functions of a model for one batch size. All share the model's states."""
    batch_size = positive("batch_size", batch_size)
    d, narrow = float_dtypes(dtype_)
    if loss is None and (optimizer is not None or metrics):
        given = "an optimizer" if optimizer is not None else "metrics"
        raise ConfigError(f"compile got {given} but no loss; add one, such as loss='mse', or leave "
                          f"{given.split()[-1]} out for a program that only predicts")
    losses_ = _each("loss", loss, model, losses.get)
    if loss is not None and not losses_:
        raise ConfigError(f"loss={loss!r} gives no output a loss; name one, such as "
                          f"loss={{{model.output_names[0]!r}: 'mse'}}, or leave it out for a "
                          "program that only predicts")
    decode = flag("decode", decode)
    optimizer = None if optimizer is None else Optimizer.get(optimizer)
    model.build()
    model.need_memory(4 + 2 * d.bytes)  # here, as first values of the program, and loaded in it
    states = States(d, narrow, optimizer is not None,
                    model.seed if seed is None else whole_seed(seed), root=model.path)

    context = Context(states=states)
    with products_of(narrow):
        x = model.leaves(batch_size, d)
        outputs = model.called(x, context)
        functions = {"predict": Graph({port("y", name): y for name, y in outputs.items()})}
        _need_all(model, x, functions["predict"])
        goals = _goals(model, outputs, losses_, metrics, loss_weights)
        step = _Step(model, batch_size, states, goals)
        if goals:
            if optimizer is not None:
                functions["train"] = step.train(optimizer)
            functions["evaluate"] = Graph(step.scores(Context(states=states)))
        if decode:
            functions["decode"] = _decode(model, states)

    def of_targets(value: Callable[[Goal], Any], otherwise: Any = None) -> dict[str, Any]:
        return {name: value(goals[name]) if name in goals else otherwise for name in outputs}

    return Functions(functions, Metadata(
        name=model.name,
        model=_description(model),
        batch_size=batch_size,
        dtype=d.long if narrow is None else f"mixed_{narrow.long}",
        seed=states.seed,
        input_shape={name: v.shape[1:] for name, v in x.items()},
        input_dtype={name: v.dtype for name, v in x.items()},
        input_range={name: IdRange(**asdict(context.ranges[v])) if v in context.ranges else None
                     for name, v in x.items()},
        output_shape={name: y.shape[1:] for name, y in outputs.items()},
        output_dtype={name: y.dtype for name, y in outputs.items()},
        outputs_are=model.outputs_are,
        target_shape=of_targets(lambda goal: goal.target.shape[1:]),
        target_dtype=of_targets(lambda goal: goal.target.dtype),
        classes=of_targets(lambda goal: goal.target.classes),
        probabilities=of_targets(lambda goal: goal.loss.probabilities, False),
        loss=of_targets(lambda goal: NamedConfig(goal.loss.name, goal.loss.get_config())),
        loss_weights=of_targets(lambda goal: goal.weight),
        metrics=of_targets(lambda goal: tuple(m.name for m in goal.metrics), ()),
        optimizer=None if optimizer is None else NamedConfig(
            type(optimizer).__name__, optimizer.get_config()),
        weights=tuple(WeightRow(name, w.shape, states.kept_as(w), w.trains, w.layer.name)
                      for name, w in model.named_weights().items()),
        layers=layer_rows(model, states.kept_as),
    ))


def _description(model: Network) -> Any:
    """What `Model.from_json` makes the model of; None where a layer cannot be written down."""
    try:
        text = model.to_json(allow_nan=False)
    except (ConfigError, TypeError, ValueError):
        return None
    return json.loads(text)


def _need_all(model: Network, x: Mapping[str, Value], predict: Graph) -> None:
    """An error where a layer is called on an input and makes nothing of it."""
    used = set(predict.leaves("input"))
    for name, v in x.items():
        if v not in used:
            raise ConfigError(f"model {model.name!r}: no output depends on the numbers of "
                              f"{f'input {name!r}' if name else 'its input'}; leave it out, or use "
                              "it in the layers that it leads to")


# -- what outputs are trained for ------------------------------------------------------------------


def _each(what: str, given: Any, model: Network, get: Any, spread: bool = True) -> dict[str, Any]:
    """What was given for outputs, by their names: for a single output as it is, for several as a
    list or dict; with `spread`, one thing is for all of them."""
    names = model.output_names
    if given is None:
        return {}
    if names == [""]:
        if spread and isinstance(given, (list, tuple)):
            if len(given) != 1:
                raise ConfigError(f"{what} lists {len(given)} for the only output of model "
                                  f"{model.name!r}; give it one, such as {what}={given[0]!r}"
                                  if given else f"{what} is an empty list; leave it out")
            return {"": get(given[0])}
        return {"": get(given)}
    if isinstance(given, Mapping) and not ("class_name" in given and spread):
        for name in given:
            if name not in names:
                raise ConfigError(f"{what}={{{name!r}: ...}}: {unknown('output', name, names)}")
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ConfigError(f"{what} lists {len(given)} for {len(names)} outputs "
                              f"({', '.join(names)}); give one for each, None where there is none, "
                              "or a dict by their names")
        given = dict(zip(names, given, strict=True))
    elif spread:
        given = dict.fromkeys(names, given)
    else:
        raise ConfigError(f"{what}={given!r}: a model with several outputs takes a list in the "
                          f"order {', '.join(names)}, or a dict by these names")
    return {name: get(given[name]) for name in names if given.get(name) is not None}


def _goals(model: Network, outputs: Mapping[str, Value], losses_: Mapping[str, Loss], metrics: Any,
           weights: Any) -> dict[str, Goal]:
    several = "" not in outputs
    chosen = _each("metrics", metrics or None, model, list_of if several else lambda m: m, False)
    share = _each("loss_weights", weights, model,
                  lambda w: number("loss_weights", w))
    for name in (*chosen, *share):
        if name not in losses_ and losses_:
            raise ConfigError(f"output {name!r} has metrics or a loss weight but no loss; give it "
                              "one, such as loss={" + repr(name) + ": 'mse'}")
    goals = {}
    for name in outputs:
        if name in losses_:
            y, loss = outputs[name], losses_[name]
            with layer_scope(name):
                target = loss.target(y.shape, y.dtype)
            goals[name] = Goal(loss, target, metrics_.resolve(chosen.get(name, ()), target,
                                                              y.shape), share.get(name, 1.0))
    return goals


def list_of(x: Any) -> Any:
    """What was given for one output, as a list."""
    return x if isinstance(x, (list, tuple)) else [x]


@dataclass(frozen=True)
class _Step:
    """The functions that score; each gets input leaves of its own."""

    model: Network
    batch: int
    states: States
    goals: dict[str, Goal]

    def scores(self, context: Context) -> dict[str, Value]:
        """Loss and metrics, each the weighted mean over the rows. With several outputs, also the
        loss of each."""
        d = self.states.dtype
        x = self.model.leaves(self.batch, d)
        y_true = {name: leaf("input", port("y", name), goal.target.shape, goal.target.dtype)
                  for name, goal in self.goals.items()}
        w = leaf("input", "w", (self.batch,), d)
        y_pred = self.model.called(x, context)
        with layer_scope("loss"):
            total = OPS.sum(w)
            share = w / OPS.where(total > 0.0, total, 1.0)  # a batch without weight scores 0
            each = {}
            for name, goal in self.goals.items():
                activation, logits = context.probabilities.get(y_pred[name], ("", None))
                each[name] = goal.loss(y_true[name], y_pred[name],
                                       logits if activation == goal.loss.logits_of else None)
            parts = [each[name] if goal.weight == 1 else each[name] * goal.weight
                     for name, goal in self.goals.items()]
            rows = {"loss": reduce(OPS.add, [*parts, *context.losses])}
        if "" not in self.goals:
            rows |= {f"{name}_loss": row for name, row in each.items()}
        for name, goal in self.goals.items():
            for metric in goal.metrics:
                label = f"{name}_{metric.name}" if name else metric.name
                if label in rows:
                    raise ConfigError(f"two scores are named {label!r}; give a metric or an output "
                                      "another name")
                with layer_scope(metric.name):
                    rows[label] = metric(y_true[name], y_pred[name])
        with layer_scope("loss"):
            return {name: OPS.sum(row * share) for name, row in rows.items()}

    def train(self, optimizer: Optimizer) -> Graph:
        context = Context(training=True, states=self.states)
        scores = self.scores(context)
        params = [context.stored(w) for w in self.model.weights if w.trains]
        if not params and not self.model.weights:
            raise ConfigError(f"model {self.model.name!r} has no weights to train; add a layer "
                              "that has some, such as Dense, or leave the optimizer out")
        if not params:
            raise ConfigError(f"model {self.model.name!r} has no trainable weights; leave the "
                              "optimizer out, or set layer.trainable = True")
        step = self.states.leaf("optimizer/step", (), "int32", lambda: 0, kind="counter",
                                trainable=False)
        def updates(grads: Sequence[Value]) -> dict[Value, Value]:
            return optimizer.apply(params, grads, step)

        if self.states.narrow is f16:
            new = scaled(scores["loss"], params, self.states, updates)
        else:
            new = updates(gradients(scores["loss"], params))
        return Graph(scores, {state.attrs["name"]: value
                              for state, value in {**context.updates, **new}.items()})


def _decode(model: Network, states: States) -> Graph:
    """One position of a row: its logits, by what caches know of the positions before it."""
    need_stepwise(model)

    def refused(but: str) -> Unsupported:
        return Unsupported("decode=True takes a model with one input of whole numbers, (length,), "
                           f"which gives logits, (length, classes); model {model.name!r} {but}")

    if list(model.inputs) != [""] or model.output_names != [""]:
        raise refused("has several inputs or outputs")
    x = leaf("input", "x", (1, 1), model.input_dtype or states.dtype)
    if len(model.input_shape) != 1 or not x.dtype.is_int:
        raise refused(f"takes {model.input_shape} of {x.dtype}")
    position = leaf("input", "position", (1,), "int32")
    context = Context(states=states, decoding=Decoding(position, model.input_shape[0]))
    y = model.called({"": x}, context)[""]
    if y.shape[:-1] != (1, 1):
        raise refused(f"gives {model.output_shape}")
    activation, logits = context.probabilities.get(y, ("", y))
    y = logits if activation == "softmax" else y
    return Graph({"logits": OPS.reshape(y, (1, y.shape[2]))},
                 {state.attrs["name"]: new for state, new in context.updates.items()})


MIXED = {f"mixed_{d.long}": d for d in (f16, bf16)}


def float_dtypes(name: Any) -> tuple[DType, DType | None]:
    """The dtype a model computes in, and that of operands of its products where it is narrower."""
    if isinstance(name, str) and name in MIXED:
        return f32, MIXED[name]
    if isinstance(name, str) and name.startswith("mixed"):
        raise unknown("dtype", name, (f32.long, f64.long, *MIXED))
    found = dtype(name)
    if found not in (f32, f64):
        mixed = next((m for m, d in MIXED.items() if d is found), "")
        raise ConfigError(f"dtype={found.long!r}: models compute in 'float32', 'float64'" + (
            f" or {mixed!r}, which rounds weights and operands of matrix products to {found.long}, "
            "and is float32 elsewhere" if mixed else ""))
    return found, None
