"""A small classifier, and its functions as graphs."""

from __future__ import annotations

from ztorch import layers as L
from ztorch.model.sequential import Sequential


def classifier(**options):
    return Sequential([L.Input((5,)), L.Dense(7, activation="relu"), L.Dropout(0.0),
                       L.Dense(3, activation="softmax")], **options)


def traced(model=None, batch=8, optimizer="sgd", dtype="float64", metrics=("accuracy",), **more):
    return (model or classifier()).trace(batch, optimizer, "sparse_categorical_crossentropy",
                                         metrics, dtype, **more)


def traced_states(functions, of="predict"):
    return {v.attrs["name"]: v for v in functions.functions[of].leaves("state")}
