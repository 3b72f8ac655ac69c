"""From a model to graphs: the functions of one program, and what a program knows about itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ztorch import losses
from ztorch import metrics as metrics_
from ztorch.config import positive, whole_seed
from ztorch.dtypes import DType, dtype
from ztorch.errors import ConfigError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.layers.context import Context, States
from ztorch.losses import Loss, Target
from ztorch.metrics import Metric
from ztorch.optimizers import Optimizer
from ztorch.summary import layer_rows

if TYPE_CHECKING:
    from ztorch.sequential import Sequential


@dataclass(frozen=True)
class Functions:
    """The graphs of a program, and its metadata (ready for JSON).

    predict   x -> y
    train     x, y, w -> loss and metrics; updates weights, slots and counters
    evaluate  x, y, w -> loss and metrics; changes nothing
    w weighs rows; a row of weight 0 counts for nothing, which fills up the last batch.
    """

    functions: dict[str, Graph]
    metadata: dict[str, Any]


def trace(model: Sequential, batch_size: int, optimizer: Any = None, loss: Any = None,
          metrics: Iterable[Any] = (), dtype_: Any = "float32",
          seed: int | None = None) -> Functions:
    """The functions of a model for one batch size. All share the model's states."""
    batch_size = positive("batch_size", batch_size)
    d = float_dtype(dtype_)
    if loss is None and (optimizer is not None or metrics):
        given = "an optimizer" if optimizer is not None else "metrics"
        raise ConfigError(f"compile got {given} but no loss; add one, such as loss='mse', or leave "
                          f"{given.split()[-1]} out for a program that only predicts")
    loss = None if loss is None else losses.get(loss)
    optimizer = None if optimizer is None else Optimizer.get(optimizer)
    model.build()
    model.need_memory(4 + 2 * d.bytes)  # here, as first values of the program, and loaded in it
    states = States(d, model.seed if seed is None else whole_seed(seed), root=model.path)
    shapes = _Shapes(model, batch_size, d)

    context = Context(states=states)
    x = shapes.x()
    y = model.call(x, context)
    functions = {"predict": Graph({"y": y})}
    target, chosen = None, []
    if loss is not None:
        target = loss.target(y.shape, y.dtype)
        chosen = metrics_.resolve(metrics or (), target, y.shape)
        if optimizer is not None:
            functions["train"] = _train(shapes, states, target, loss, chosen, optimizer)
        functions["evaluate"] = Graph(_scores(shapes, Context(states=states), target, loss, chosen))
    return Functions(functions, {
        "name": model.name,
        "batch_size": batch_size,
        "dtype": d.long,
        "seed": states.seed,
        "input_shape": list(shapes.shape[1:]),
        "input_dtype": shapes.dtype.long,
        "input_range": asdict(context.ranges[x]) if x in context.ranges else None,
        "output_shape": list(y.shape[1:]),
        "output_dtype": y.dtype.long,
        "target_shape": None if target is None else list(target.shape[1:]),
        "target_dtype": None if target is None else target.dtype.long,
        "classes": None if target is None else target.classes,
        "probabilities": loss is not None and loss.probabilities,
        "loss": None if loss is None else {"name": loss.name, "config": loss.get_config()},
        "metrics": [m.name for m in chosen],
        "optimizer": None if optimizer is None else {
            "name": type(optimizer).__name__, "config": optimizer.get_config()},
        "weights": [{"name": name, "shape": list(w.shape), "dtype": d.long,
                     "trainable": w.trains, "layer": w.layer.name}
                    for name, w in model.named_weights().items()],
        "layers": layer_rows(model, d),
    })


@dataclass(frozen=True)
class _Shapes:
    """The input leaves; each function gets its own."""

    model: Sequential
    batch: int
    model_dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *self.model.input_shape)

    @property
    def dtype(self) -> DType:
        return dtype(self.model.input_dtype or self.model_dtype)

    def x(self) -> Value:
        return leaf("input", "x", self.shape, self.dtype)

    def y(self, target: Target) -> Value:
        return leaf("input", "y", target.shape, target.dtype)

    def w(self) -> Value:
        return leaf("input", "w", (self.batch,), self.model_dtype)


def _scores(shapes: _Shapes, context: Context, target: Target, loss: Loss,
            metrics: list[Metric]) -> dict[str, Value]:
    """Loss and metrics, each the weighted mean over the rows."""
    x, y_true, w = shapes.x(), shapes.y(target), shapes.w()
    y_pred = shapes.model.call(x, context)
    with layer_scope("loss"):
        total = OPS.sum(w)
        share = w / OPS.where(total > 0.0, total, 1.0)  # a batch without weight scores 0
        activation, logits = context.probabilities.get(y_pred, ("", None))
        rows = {"loss": loss(y_true, y_pred, logits if activation == loss.logits_of else None)}
    for metric in metrics:
        with layer_scope(metric.name):
            rows[metric.name] = metric(y_true, y_pred)
    with layer_scope("loss"):
        return {name: OPS.sum(row * share) for name, row in rows.items()}


def _train(shapes: _Shapes, states: States, target: Target, loss: Loss, metrics: list[Metric],
           optimizer: Optimizer) -> Graph:
    context = Context(training=True, states=states)
    scores = _scores(shapes, context, target, loss, metrics)
    params = [context.read(w) for w in shapes.model.weights if w.trains]
    if not params:
        raise ConfigError(f"model {shapes.model.name!r} has no trainable weights; leave the "
                          "optimizer out, or set layer.trainable = True")
    step = states.leaf("optimizer/step", (), "int32", lambda: 0, kind="counter",
                       trainable=False)
    updates = {**context.updates,
               **optimizer.apply(params, gradients(scores["loss"], params), step)}
    return Graph(scores, {state.attrs["name"]: new for state, new in updates.items()})


def float_dtype(d: Any) -> DType:
    """The dtype a model computes in."""
    found = dtype(d)
    if found.long not in ("float32", "float64"):
        raise ConfigError(f"dtype={found.long!r}: models compute in 'float32' or 'float64'")
    return found
