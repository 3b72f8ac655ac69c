"""The model for a table: a linear part, and a small network in parallel for nonlinear effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ztorch.model.model import Model
    from ztorch.tabular.pipeline import Pipeline

WIDTHS = ((1_000, 32), (10_000, 64))  # largest number of rows, and width of the network for it
MAX_WIDTH = 128  # width of the network for more rows
DROPOUT = 0.2  # rate after the first hidden layer


def table_model(pipeline: Pipeline, x: np.ndarray, y: np.ndarray, name: str) -> Model:
    """A model that predicts the target of a pipeline from its features. Layers scale the features,
    and the target if it is a quantity.

    Args:
        pipeline: The pipeline that encoded the arrays.
        x: The inputs to train on.
        y: The targets to train on.
        name: The name of the model.
    """
    from ztorch import layers
    from ztorch.model.model import Model

    mean, variance = pipeline.statistics(x)
    outputs = len(pipeline.classes) or 1
    width = next((width for rows, width in WIDTHS if len(x) <= rows), MAX_WIDTH)
    rows = layers.Input((x.shape[1],))
    scaled = layers.Normalization(mean=mean, variance=variance, name="scaled")(rows)
    hidden = layers.Dense(width, activation="relu", name="hidden")(scaled)
    hidden = layers.Dropout(DROPOUT, name="dropout")(hidden)
    hidden = layers.Dense(width // 2, activation="relu", name="hidden_2")(hidden)
    # Zeros: the first predictions are the mean, and training stops before it learns noise.
    network = layers.Dense(outputs, kernel_initializer="zeros", name="network")(hidden)
    linear = layers.Dense(outputs, use_bias=False, kernel_initializer="zeros",
                          name="linear")(scaled)
    both = layers.Add(name="both")([network, linear])
    if pipeline.classes:
        result = layers.Activation("softmax", name="probabilities")(both)
    else:
        result = layers.Normalization(mean=float(y.mean()), variance=float(y.var()) or 1.0,
                                      invert=True, name="unscaled")(both)
    return Model(rows, result, name=name)
