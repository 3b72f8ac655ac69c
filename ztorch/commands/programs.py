"""Loads or compiles the programs that commands run."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.program.program import Program, load
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import Recipe
from ztorch.sources.shipped import take_shipped
from ztorch.terminal.work_line import say


def program_of(name: str, threads: int | None = None, **options: Any) -> Program:
    """The program in an artifact, or a trained model that is compiled now.

    Args:
        name: The name or path of a model.
        threads: Worker threads on a CPU. Default: `None`.
        **options: Arguments of `compile` for models that are not compiled yet.
    """
    if is_artifact(name):
        return load(name, threads)
    recipe = find(name)
    need_trained(name, recipe)
    return recipe.model.compile(**{
        "batch_size": recipe.batch_size, "sizes": recipe.sizes, "dtype": recipe.dtype,
        "threads": threads, **options})


def take_trained(name: str, recipe: Recipe) -> bool:
    """Loads the trained weights that come with a model of the zoo, and prints that. Returns whether
    there are any."""
    has_weights = take_shipped(recipe)
    if has_weights:
        say(f"{name}: takes the trained weights that come with it")
    return has_weights


def need_trained(name: str, recipe: Recipe, *more: str) -> None:
    """Loads the trained weights that come with a model of the zoo. Raises if there are none and all
    weights are still the initial ones.

    Args:
        name: The name or path of the model.
        recipe: The model.
        *more: Other ways out, for the error message.
    """
    weights = recipe.model.weights
    if not weights or not all(w.has_first_value for w in weights):
        return
    if take_trained(name, recipe):
        return
    data = "" if recipe.data else " --data DATA"
    ways = [f"train it first: ztorch train {name}{data} --out trained.zt, then use trained.zt in "
            "its place", *more]
    if recipe.small_data and not name.endswith(":small"):
        ways.append(f"take its small variant, {name}:small, which trains on data that are here")
    raise ConfigError(f"{name} has learned nothing yet, its weights are random; "
                      f"{'; or '.join(ways)}")
