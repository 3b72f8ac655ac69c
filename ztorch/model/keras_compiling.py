"""Describes how a model was compiled as Keras does in a .keras file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ztorch.config import Named
from ztorch.errors import ZtorchError
from ztorch.layers.symbol import nested
from ztorch.losses import Loss
from ztorch.metrics import Metric
from ztorch.optimizers import Optimizer
from ztorch.weights.keras_describing import named

# Short names that Keras knows as well, which name the scores of metrics.
_SHORT = frozenset(("acc", "accuracy", "ce", "crossentropy", "mae", "mape", "mse", "msle"))


def compile_config(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of `compile` as Keras writes them; None if it was compiled without a loss, or
    with functions, which a file cannot hold."""
    if arguments["loss"] is None:
        return None
    try:
        return {
            "optimizer": (None if arguments["optimizer"] is None else
                          named(Optimizer.get(arguments["optimizer"]), "compile(optimizer=...)")),
            "loss": nested(_written(Loss.get, "loss"), arguments["loss"]),
            "loss_weights": arguments["loss_weights"],
            "metrics": nested(_written(_metric, "metrics"), _listed(arguments["metrics"])),
            "weighted_metrics": None, "run_eagerly": False, "steps_per_execution": 1,
            "jit_compile": False}
    except ZtorchError:
        return None


def _listed(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else x


def _metric(x: Any) -> Any:
    """A metric, or a loss that is measured."""
    is_loss = isinstance(x, Loss) or (isinstance(x, str) and x not in Metric.known)
    return Loss.get(x) if is_loss else Metric.get(x)


def _written(get: Callable[[str], Any], argument: str) -> Callable[[Any], Any]:
    """Writes a loss or a metric that is given by name or as a member."""
    def written(x: Any) -> Any:
        if x is None or (isinstance(x, str) and x in _SHORT):
            return x
        member = get(x)
        if isinstance(x, str) and isinstance(member, Loss):
            return type(member).names[0]  # Keras' own name, where ours has others
        return named(member, f"compile({argument}=...)") if isinstance(member, Named) else x

    return written
