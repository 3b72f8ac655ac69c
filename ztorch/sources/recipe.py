"""Recipes: models with their training settings, from any source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.runtime.buckets import ROWS

if TYPE_CHECKING:
    from ztorch.model.model import Model


@dataclass(frozen=True)
class Recipe:
    """A model with its training settings: the constants of its file, or the declarations of its
    artifact."""

    model: Model
    data: str | None = None  # DATA: the name of a data set
    target: str = "y"  # TARGET: the target, x for an autoencoder
    loss: Any = None  # LOSS
    optimizer: Any = None  # OPTIMIZER
    learning_rate: float | None = None  # LEARNING_RATE: of the first step
    schedule: Any = None  # SCHEDULE: of the learning rate
    metrics: Any = ()  # METRICS
    epochs: int = 10  # EPOCHS
    batch_size: int | tuple[int, ...] = ROWS  # BATCH_SIZE
    decode: bool | int = False  # DECODE: whether its programs can generate, or how many rows
    loss_weights: Any = None  # factors of several losses
    dtype: str = "float32"  # in which it computes
    sizes: dict[str, tuple[int, ...]] | None = None  # of open axes
    seed: int | None = None  # of dropout and shuffling; None: that of the model
    trained: bool = False  # whether its weights come from a file
    small: dict[str, Any] | None = None  # SMALL: arguments of `build` for a small variant
    small_data: str | None = None  # the data of the small variant, where the model has no DATA
    stand_in: str | None = None  # STAND_IN: data that ship with ztorch, in place of DATA
    bar: dict[str, float] | None = None  # BAR: scores on test data that training reaches
    shipped: Path | None = None  # trained weights that ship with the model


def imported(model: Model) -> Recipe:
    """The recipe of a model in a file, which has its weights and may have its batch size."""
    return Recipe(model, batch_size=model.declared_batch_size or ROWS, trained=True)


def as_compiled(recipe: Recipe) -> Recipe:
    """The recipe with the loss, metrics and optimizer of `model.compile`, if it has no loss of its
    own."""
    arguments = recipe.model.compile_arguments
    if recipe.loss is not None or arguments.get("loss") is None:
        return recipe
    return replace(recipe, loss=arguments["loss"],
                   metrics=recipe.metrics or arguments["metrics"] or (),
                   optimizer=recipe.optimizer or arguments["optimizer"],
                   loss_weights=arguments["loss_weights"])


def optimizer(spec: Any, rate: Any) -> Any:
    """The optimizer with a name or config; Adam without one. `rate`: its learning rate or
    schedule; None: its own."""
    from ztorch.optimizers import Optimizer

    default = Optimizer.get("adam" if spec is None else spec)
    if rate is None:
        return default
    return type(default).from_config({**default.get_config(), "learning_rate": rate})


def training_options(recipe: Recipe, loss: Any) -> dict[str, Any]:
    """The options of `compile` and `trace` to train by a recipe; empty without a loss."""
    if loss is None:
        return {}
    return {"loss": loss, "metrics": recipe.metrics,
            "loss_weights": recipe.loss_weights if loss is recipe.loss else None,
            "optimizer": optimizer(recipe.optimizer, recipe.learning_rate)}
