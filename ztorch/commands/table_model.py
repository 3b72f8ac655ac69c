"""The model for a table: a linear part, and beside it a small network for what is not linear."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ztorch.model.model import Model
    from ztorch.tabular.pipeline import Pipeline

FEW_ROWS = 1000  # with fewer, a narrow network learns less by heart
DROPOUT = 0.2


def table_model(pipeline: Pipeline, x: np.ndarray, y: np.ndarray) -> Model:
    """A model that takes the features of a pipeline as they are and predicts its target. The
    statistics of the features, and of a quantity, are layers of it.

    Args:
        pipeline: What made the arrays.
        x: The inputs to train on.
        y: The targets to train on.
    """
    from ztorch import layers
    from ztorch.model.model import Model

    mean, variance = pipeline.statistics(x)
    outputs = len(pipeline.classes) or 1
    width = 32 if len(x) < FEW_ROWS else 128
    rows = layers.Input((x.shape[1],))
    scaled = layers.Normalization(mean=mean, variance=variance, name="scaled")(rows)
    hidden = layers.Dense(width, activation="relu", name="hidden")(scaled)
    hidden = layers.Dropout(DROPOUT, name="dropout")(hidden)
    hidden = layers.Dense(width // 2, activation="relu", name="hidden_2")(hidden)
    network = layers.Dense(outputs, name="network")(hidden)
    linear = layers.Dense(outputs, use_bias=False, name="linear")(scaled)
    both = layers.Add(name="both")([network, linear])
    if pipeline.classes:
        result = layers.Activation("softmax", name="probabilities")(both)
    else:
        result = layers.Normalization(mean=float(y.mean()), variance=float(y.var()) or 1.0,
                                      invert=True, name="unscaled")(both)
    return Model(rows, result, name="table")
