"""Every model of the zoo builds, trains alike on scalar and SIMD code, and survives a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.commands.models import Recipe, find, zoo
from ztorch.commands.train import compiled
from ztorch.training.program import Program

BATCH = 4


def rows(program: Program, recipe: Recipe, steps: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Random data that the model takes."""
    random = np.random.default_rng(1)
    train = program.executable.functions["train"].inputs
    shape = (steps * BATCH, *train["x"].shape[1:])
    x: np.ndarray = random.random(shape).astype(np.float32)
    if ids := program.metadata["input_range"]:
        x = random.integers(ids["low"], ids["high"], shape).astype(np.int32)
    if recipe.target == "x":
        return x, x
    if classes := program.metadata["classes"]:
        return x, random.integers(0, classes, (len(x), *train["y"].shape[1:])).astype(np.int32)
    return x, random.random((len(x), *train["y"].shape[1:])).astype(np.float32)


def small(name: str, device: str) -> tuple[Program, Any, Any]:
    recipe = find(name)
    program = compiled(recipe, device, BATCH)
    return program, *rows(program, recipe)


@pytest.mark.parametrize("name", zoo())
def test_the_zoo(name: str, tmp_path: Path) -> None:
    reference, x, y = small(name, "cpu:scalar")
    program, _, _ = small(name, "cpu")
    losses = [p.fit(x, y, verbose=0, shuffle=False).history["loss"] for p in (reference, program)]
    assert np.isfinite(losses).all() and losses[0] == pytest.approx(losses[1], rel=1e-4)
    for a, b in zip(reference.get_weights(), program.get_weights(), strict=True):
        # Adam's first steps have the size of the learning rate whatever the gradient, so where a
        # gradient is about zero, its rounding decides the direction.
        assert np.abs(a - b).max() < 8e-3 and np.abs(a - b).mean() < 1e-5
    program.save(tmp_path / "model.zt")
    again = zt.load(tmp_path / "model.zt")
    assert np.array_equal(program.predict(x), again.predict(x))
    program.fit(x, y, verbose=0)
    again.fit(x, y, verbose=0)
    for a, b in zip(program.get_weights(), again.get_weights(), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", zoo())
def test_each_says_how_it_is_trained(name: str) -> None:
    recipe = find(name)
    assert recipe.model.name == name
    assert recipe.loss and recipe.optimizer and recipe.metrics and recipe.data in zt.data.names()
    assert recipe.epochs > 0 and recipe.learning_rate and recipe.target in ("x", "y")


def test_the_autoencoder_learns_to_draw() -> None:
    recipe = find("autoencoder")
    program = compiled(recipe, "cpu", threads=1)
    (x, _), (x_test, _) = zt.data.load("digits")
    program.fit(x, x, epochs=20, verbose=0)
    blank = float(((x_test - x_test.mean(0)) ** 2).mean())
    assert program.evaluate(x_test, x_test, verbose=0, return_dict=True)["loss"] < blank / 3
