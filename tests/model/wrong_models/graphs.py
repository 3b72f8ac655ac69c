"""Models of layers called on tensors: broken graphs and wrong names."""

from __future__ import annotations

import numpy as np

import ztorch as zt
from tests.model.wrong_models.cases import Case
from ztorch import layers as L


def two(name: str = "two") -> zt.Model:
    a, b = L.Input((4,), name="a"), L.Input((3,), name="b")
    y = L.Dense(2, name="y")(L.Concatenate()([a, b]))
    return zt.Model([a, b], {"p": y, "q": L.Dense(1)(y)}, name=name)


def disconnected() -> None:
    a, b = L.Input((4,), name="a"), L.Input((4,), name="b")
    zt.Model(a, L.Dense(2, name="end")(L.Add()([a, b])), name="net")


def middle() -> None:
    x = L.Input((4,))
    zt.Model(L.Dense(3, name="half"), L.Dense(2)(x), name="net")


def same_name() -> None:
    x = L.Input((4,))
    zt.Model(x, L.Dense(2, name="twin")(L.Dense(2, name="twin")(x)), name="graph")


def nested_and_direct() -> None:
    x, shared = L.Input((4,)), L.Dense(4, name="shared")
    part = zt.Sequential([shared], name="part")
    zt.Model(x, L.Add()([part(x), shared(x)]), name="net").build()


X = L.Input((4,), name="x")

CASES: dict[str, Case] = {
    "an input that is not listed": disconnected,
    "a layer as input": middle,
    "two layers named alike": same_name,
    "a layer nested and called directly": nested_and_direct,
    "two inputs named alike": lambda: zt.Model(
        [a := L.Input((2,), name="same"), b := L.Input((2,), name="same")], L.Add()([a, b]),
        name="net"),
    "one input twice": lambda: zt.Model([X, X], L.Dense(2)(X), name="net"),
    "no inputs": lambda: zt.Model([], L.Dense(2)(X), name="net"),
    "a shape for an input": lambda: zt.Model((4,), L.Dense(2)(X), name="net"),
    "no outputs": lambda: zt.Model(X, [], name="net"),
    "a layer for an output": lambda: zt.Model(X, L.Dense(2), name="net"),
    "an array for an output": lambda: zt.Model(X, 3.0, name="net"),
    "the input as output": lambda: zt.Model(X, X, name="net"),
    "a slash in the name of an input": lambda: zt.Model(
        {"a/b": X, "c": (c := L.Input((4,)))}, L.Add()([X, c]), name="net"),
    "a slash in the name of an output": lambda: zt.Model(
        X, {"a/b": L.Dense(2)(X), "c": L.Dense(1)(X)}, name="net"),
    "wrong number of tensors": lambda: two()(L.Input((4,))),
    "too many tensors": lambda: two()([L.Input((4,))] * 3),
    "tensors by wrong names": lambda: two()({"a": L.Input((4,)), "c": L.Input((3,))}),
    "tensors of wrong shapes": lambda: two()([L.Input((4,)), L.Input((4,))]),
    "a list for a model of one input": lambda: zt.Model(X, L.Dense(2)(X), name="one")([X, X]),
    "several inputs in a row": lambda: zt.Sequential([L.Input((4,)), two("pair")], name="net").build(),
    "numpy on a symbolic tensor": lambda: np.mean(L.Dense(2, name="two")(X)),
    "a choice by a symbolic tensor": lambda: bool(L.Dense(1, name="one")(X)),
    "an arithmetic of two widths": lambda: X + L.Dense(5, name="five")(X),
    "json of a broken graph": lambda: zt.Model.from_json(
        '{"class_name": "Model", "config": {"inputs": {}}}'),
    "json of a layer as a model": lambda: zt.Model.from_json(
        '{"class_name": "Dense", "config": {"units": 3}}'),
    # targets of outputs
    "a loss for an unknown output": lambda: two().trace(2, "sgd", {"r": "mse"}),
    "a loss too few": lambda: two().trace(2, "sgd", ["mse"]),
    "no loss at all": lambda: two().trace(2, "sgd", {}),
    "metrics without a loss": lambda: two().trace(2, "sgd", {"p": "mse"}, {"q": ["mae"]}),
    "one metric for two outputs": lambda: two().trace(2, "sgd", "mse", "mae"),
    "a loss weight in words": lambda: two().trace(2, "sgd", "mse", loss_weights=["much", 1]),
    "classes of one number": lambda: two().trace(2, "sgd", {
        "q": "sparse_categorical_crossentropy"}),
}
