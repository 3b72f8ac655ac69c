"""Trained weights that ship with small models of the zoo."""

from __future__ import annotations

import json

from ztorch.files import safetensors
from ztorch.sources.recipe import Recipe


def take_shipped(recipe: Recipe) -> bool:
    """Loads the trained weights that ship with a model, and the names of its classes. Returns False
    if there are none, or if the model has other weights already.

    >>> from ztorch.sources.find import find
    >>> take_shipped(find("digits_mlp")), take_shipped(find("resnet18"))
    (True, False)
    """
    if recipe.shipped is None or not all(w.has_first_value for w in recipe.model.weights):
        return False
    recipe.model.load_weights(recipe.shipped)
    _, notes = safetensors.read(recipe.shipped)
    if "classes" in notes:
        from ztorch.tabular.pipeline import Pipeline  # few models have one

        recipe.model.pipeline = Pipeline.of_classes(json.loads(notes["classes"]))
    return True
