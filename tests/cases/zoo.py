"""The zoo as tests take it: the small variant where there is one, or less, and random data for it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.cases.available import device as opened
from tests.cases.covering import full
from ztorch.commands import verify
from ztorch.graph import rounding
from ztorch.graph.value import Value
from ztorch.program.program import Program
from ztorch.runtime.executable import Executable
from ztorch.runtime.snapshot import Metadata
from ztorch.sources.find import find, zoo
from ztorch.sources.recipe import Recipe, optimizer
from ztorch.verify import compare

BATCH = 4
NAMES = zoo()
# Layers and windows of these are those of another model, which stands for both: of digits_mlp's products,
# cifar_resnet's blocks, tiny_gpt's attention, lenet's windows. On devices and beside PyTorch they are for
# full runs; every processor runs them in each.
COUSINS = {"mnist_mlp", "tabular_regressor", "autoencoder", "resnet18", "bert_base", "digits_cnn"}
# Small variants are made to be trained, and compile a kernel for each step of each layer. These are made
# of the same layers in the same sizes of windows and steps, each kind of block once or twice: of the
# residual nets the stage that keeps rows and columns and the one that halves them (resnet18's sides
# become 10, 5 and 3), of unet one level down and up, of mobilenet a block that halves and one that does
# not. Of equal blocks the second is lstm_classifier's and tabular_regressor's.
SMALLER: dict[str, dict[str, int | float]] = {
    "resnet18": {"size": 20, "classes": 8, "width": 8, "stages": 2},
    "cifar_resnet": {"size": 16, "blocks": 1, "width": 8, "stages": 2},
    "mobilenet": {"size": 16, "classes": 8, "alpha": 0.125, "blocks": 3},
    "unet": {"size": 16, "width": 4, "depth": 1},
    "tiny_gpt": {"blocks": 1},
    "bert_base": {"length": 24, "words": 32, "width": 48, "blocks": 1, "heads": 4, "places": 24}}


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


STEPS = 3 if full() else 2  # the second begins where the first ended, with the optimizer's states
# Nets so deep in ReLUs that among their numbers some lie about zero. One that rounding takes across
# changes all gradients before it by a hundredth, which says nothing about the code; in float64 none
# lies that near.
KINKED = {"cifar_resnet", "mobilenet", "resnet18", "unet"}


def program(name: str, device: str) -> tuple[Program, Any, Any]:
    recipe = small(name)
    made = recipe.model.compile(
        device, batch_size=BATCH, loss=recipe.loss, metrics=recipe.metrics,
        optimizer=optimizer(recipe.optimizer, recipe.learning_rate), decode=recipe.decode,
        dtype="float64" if name in KINKED else "float32")
    return made, *rows(made.executable, made.metadata, recipe, STEPS)


# Models that are small enough to be compared layer by layer as well: the kernels that write what
# layers pass to each other are compiled besides the program.
PROBED = ("digits_cnn", *(  # layers of products are probed everywhere in verify/test_verify.py
    ("digits_mlp", "text_classifier", "lstm_classifier", "tiny_gpt") if full() else ()))


_bounds: dict[bytes, list[tuple[np.ndarray, float]]] = {}


def bounded(name: str, roots: Sequence[Value], feeds: Mapping[Value, Any]) -> list[tuple[np.ndarray, float]]:
    """The float64 results of the graph of a model, computed once for each data: a prediction and the first
    step begin on all devices with the same."""
    told = hashlib.sha256(repr((name, [(v.op.name, v.shape, v.dtype.name) for v in roots])).encode())
    for v, a in feeds.items():
        told.update(repr((v.attrs["name"], a.dtype.str, a.shape)).encode() + np.ascontiguousarray(a).tobytes())
    key = told.digest()
    if key not in _bounds:
        _bounds[key] = rounding.bounded(roots, feeds)
    return _bounds[key]


def assert_verified(backend: str, name: str, probed: bool = True) -> None:
    """A prediction and a few steps of training agree with float64, as `ztorch verify` compares."""
    layers = probed and name in PROBED
    subject = verify.of_recipe(small(name), opened(backend).id, BATCH)
    with patch.object(compare, "bounded", functools.partial(bounded, name)):
        checks = list(compare.compare(subject, STEPS, seed=1, layers=layers))
    assert [c for c in checks if not c.passed] == []
    parts = {"predict", *(f"step {k + 1}" for k in range(STEPS))}
    assert {c.part for c in checks} >= parts | ({"step 1 backward"} if layers else set())
    bounds = [c.bound for c in checks if c.part == "predict"]
    assert max(bounds) < 0.05, "bounds so wide say nothing"
