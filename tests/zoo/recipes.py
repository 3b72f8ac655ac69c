"""The zoo as tests take it: the small variant where there is one, or less, and random data for it."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np

from ztorch.commands.recipe import Recipe, find, zoo
from ztorch.runtime.executable import Executable
from ztorch.runtime.snapshot import Metadata

BATCH = 4
NAMES = zoo()
# Small variants are made to be trained. This one is made of the same layers in the same sizes of windows
# and steps, with half the channels, on pictures whose sides become 24, 12, 6 and 3.
SMALLER = {"resnet18": {"size": 48, "classes": 8, "width": 8}}


def shipped(name: str) -> Recipe:
    """A model's recipe; of large models the small variant's."""
    recipe = find(name)
    return find(f"{name}:small") if recipe.small is not None else recipe


def small(name: str) -> Recipe:
    """The same, or smaller still."""
    recipe = shipped(name)
    if how := SMALLER.get(name):
        made = importlib.import_module(f"models.{name}").build(**how)
        recipe = dataclasses.replace(recipe, model=made)
    return recipe


def rows(executable: Executable, metadata: Metadata, recipe: Recipe,
         steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Random data that the model takes."""
    random = np.random.default_rng(1)
    train = executable.functions["train"].inputs
    shape = (steps * BATCH, *train["x"].shape[1:])
    x: np.ndarray = random.random(shape).astype(np.float32)
    if ids := metadata.input_range[""]:
        x = random.integers(ids.low, ids.high + 1, shape).astype(np.int32)
    if recipe.target == "x":
        return x, x
    if classes := metadata.classes[""]:
        return x, random.integers(0, classes, (len(x), *train["y"].shape[1:])).astype(np.int32)
    return x, random.random((len(x), *train["y"].shape[1:])).astype(np.float32)
