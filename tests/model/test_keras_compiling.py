"""The arguments of `compile` as Keras' files describe them."""

from __future__ import annotations

from typing import Any

from ztorch import metrics, optimizers
from ztorch.model.keras_compiling import compile_arguments


def described(kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": config}


def test_optimizers_losses_and_metrics_are_as_described() -> None:
    arguments = compile_arguments({
        "optimizer": described("Adam", learning_rate=0.25, beta_1=0.5), "loss": "mse",
        "metrics": [described("MeanSquaredError", name="mine", dtype="float32"), described("Precision", top_k=2)]})
    assert arguments is not None and arguments["loss"] == "mse"
    optimizer, (named, unnamed) = arguments["optimizer"], arguments["metrics"]
    assert isinstance(optimizer, optimizers.Adam)
    assert (optimizer.learning_rate, optimizer.beta_1) == (0.25, 0.5)
    assert named.name == "mine"
    assert isinstance(unnamed, metrics.Precision) and (unnamed.name, unnamed.top_k) == ("precision", 2)


def test_parts_that_are_missing_here_leave_the_model_uncompiled() -> None:
    optimizer = described("Adam", learning_rate=0.25)
    assert compile_arguments({"optimizer": optimizer, "loss": described("Nobody")}) is None
    assert compile_arguments({"optimizer": optimizer, "loss": None}) is None
    assert compile_arguments({"optimizer": None, "loss": "mse"}) is None
