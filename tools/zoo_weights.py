"""Trains models of the zoo and writes the weights that come with them, in 16 bits:

    python -m tools.zoo_weights [NAME...]

Only models that meet their bar with these rounded weights are written. Run it again after a model,
its data or how it is trained has changed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from ztorch import data
from ztorch.commands.train import compiled
from ztorch.data.registry import class_names
from ztorch.dtypes import dtype
from ztorch.files import safetensors
from ztorch.host import assets
from ztorch.sources.find import find

# Those that are small, and whose data come with ztorch.
NAMES = ("autoencoder", "digits_cnn", "digits_mlp", "lstm_classifier", "tabular_regressor",
         "text_classifier", "tiny_gpt", "vae")


def rounded(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of 16 bits.

    >>> float(rounded(np.float32(0.1)))
    0.0999755859375
    """
    return np.asarray(array, np.float16)


def train(name: str) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The rounded weights of a model that was trained as its file says, and their scores on data
    that it was not trained on."""
    recipe = find(name)
    assert recipe.data is not None and recipe.bar is not None
    (x, y), (x_test, y_test) = data.load(recipe.data)
    if recipe.target == "x":
        y, y_test = x, x_test
    program = compiled(recipe, "cpu")
    program.fit(x, y, epochs=recipe.epochs, verbose=0)
    weights = {path: rounded(array) for path, array in program.weight_arrays().items()}
    program.set_weights([array.astype(np.float32) for array in weights.values()])
    scores: Any = program.evaluate(x_test, y_test, verbose=0, return_dict=True)
    for metric, least in recipe.bar.items():
        met = scores[metric] >= least if "accuracy" in metric else scores[metric] <= least
        assert met, f"{name}: {metric} is {scores[metric]:.4f}, and the bar {least}"
    return weights, {metric: scores[metric] for metric in recipe.bar}


def main(names: list[str]) -> None:
    """Writes the weights of these models, or of all that have some."""
    folder = assets.folder("models") / "trained"
    folder.mkdir(exist_ok=True)
    for name in names or NAMES:
        weights, scores = train(name)
        classes = class_names(str(find(name).data))
        path = folder / f"{name}.safetensors"
        safetensors.write(path, {n: (dtype("float16"), array) for n, array in weights.items()},
                          {"format": "ztorch weights", "model": name,
                           **({"classes": json.dumps(classes)} if classes else {})})
        print(f"{path.name}: {path.stat().st_size:,} bytes, "
              + ", ".join(f"{metric} {score:.4f}" for metric, score in scores.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
