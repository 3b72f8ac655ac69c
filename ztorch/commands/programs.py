"""Programs that commands run: those in artifacts, and models that are compiled for the purpose."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.program.program import Program, load
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import Recipe


def program_of(name: str, threads: int | None = None, **options: Any) -> Program:
    """The program in an artifact, or that of another model that has learned something.

    Args:
        name: What names a model.
        threads: Worker threads on a CPU. Default: `None`.
        **options: Those of `compile` for models that are not compiled yet.
    """
    if is_artifact(name):
        return load(name, threads)
    recipe = find(name)
    need_trained(name, recipe)
    return recipe.model.compile(**{
        "batch_size": recipe.batch_size, "sizes": recipe.sizes, "dtype": recipe.dtype,
        "threads": threads, **options})


def need_trained(name: str, recipe: Recipe, *more: str) -> None:
    """Raises where all weights are the random ones that a model begins with.

    Args:
        name: What names the model.
        recipe: The model.
        *more: What else the user may do about it.
    """
    weights = recipe.model.weights
    if not weights or not all(w.has_first_value for w in weights):
        return
    ways = [f"train it first: ztorch train {name} --out trained.zt, then use trained.zt in its "
            "place", *more]
    raise ConfigError(f"{name} has learned nothing yet, its weights are random; "
                      f"{'; or '.join(ways)}")
