"""Dense, shapes, activations, normalization and dropout; and Sequential itself."""

from __future__ import annotations

import math

import numpy as np

import ztorch as zt
from tests.model.wrong_models.cases import Case, image, row, rows, steps
from ztorch import layers as L


class Silent(L.Layer):
    def call(self, x: object, context: object) -> None:  # type: ignore[override]
        pass


CASES: dict[str, Case] = {
    # arguments
    "no units": lambda: L.Dense(0),
    "units in words": lambda: L.Dense("ten"),
    "half a unit": lambda: L.Dense(2.5),
    "unknown activation": lambda: L.Dense(3, activation="rellu"),
    "a layer as activation": lambda: L.Dense(3, activation=L.PReLU()),
    "unknown argument": lambda: L.Dense(3, use_biases=True),
    "unknown initializer": lambda: row(L.Dense(3, kernel_initializer="glorot")),
    "a name with a slash": lambda: L.Dense(3, name="a/b"),
    "a reserved name": lambda: L.Dense(3, name="optimizer"),
    "an empty name": lambda: L.Dense(3, name=""),
    "negative dropout": lambda: L.Dropout(-0.1),
    "dropout of everything": lambda: L.Dropout(1.0),
    "dropout in percent": lambda: L.SpatialDropout1D(25),
    "noise without size": lambda: L.GaussianNoise(-1.0),
    "noise shape of another rank": lambda: row(L.Dropout(0.5, noise_shape=(1, 6, 1))).trace(
        4, "sgd", "mse"),
    "negative slope in words": lambda: L.LeakyReLU("small"),
    "rescaling by nothing": lambda: L.Rescaling(None),
    "epsilon of zero": lambda: L.LayerNormalization(epsilon=0),
    "momentum above one": lambda: L.BatchNormalization(momentum=1.5),
    "permutation of a number": lambda: L.Permute(1),
    "repeated minus twice": lambda: L.RepeatVector(-2),
    # shapes
    "an axis with a comma in its name": lambda: L.Input(("a,b", 3)),
    "an input that is a number": lambda: L.Input(28),
    "an input of an unknown dtype": lambda: L.Input((3,), dtype="float33"),
    "dense on nothing": lambda: zt.Sequential([L.Input(()), L.Dense(2)]).build(),
    "dense on integers": lambda: zt.Sequential(
        [L.Input((4,), dtype="int32"), L.Dense(2)]).build(),
    "reshape to another size": lambda: row(L.Reshape((4, 2))),
    "reshape with two open axes": lambda: row(L.Reshape((-1, -1))),
    "reshape to a number": lambda: L.Reshape(6),
    "permutation that leaves one out": lambda: L.Permute((1, 1)),
    "permutation of the batch": lambda: L.Permute((0, 1)),
    "permutation of another rank": lambda: steps(L.Permute((1, 3, 2))),
    "repeating a sequence": lambda: steps(L.RepeatVector(2)),
    "softmax over the batch": lambda: row(L.Softmax(axis=0)),
    "layer norm over an axis that is not there": lambda: row(L.LayerNormalization(axis=3)),
    "groups that do not divide": lambda: image(L.GroupNormalization(groups=2)),
    "batch norm over an axis that is not there": lambda: row(L.BatchNormalization(axis=4)),
    "a layer used at another width": lambda: [
        zt.Sequential([L.Input((n,)), shared]).build() for shared in [L.Dense(2, name="shared")]
        for n in (4, 5)],
    # Sequential
    "an input in the middle": lambda: zt.Sequential([L.Input((3,)), L.Dense(2), L.Input((2,))]),
    "two inputs in a row": lambda: zt.Sequential([L.Input((3,)), L.Input((3,))]),
    "no input": lambda: zt.Sequential([L.Dense(3)], name="net").build(),
    "no layers": lambda: zt.Sequential([L.Input((3,))], name="net").build(),
    "one layer without a list": lambda: zt.Sequential(L.Dense(3)),
    "a class for a layer": lambda: zt.Sequential([L.Dense], name="net"),
    "a number for a layer": lambda: zt.Sequential([10], name="net"),
    "a list for a layer": lambda: zt.Sequential([[L.Dense(2)]], name="net"),
    "two layers of one name": lambda: zt.Sequential([L.Dense(2, name="a"), L.Dense(2, name="a")],
                                                    name="net"),
    "one layer twice": lambda: (lambda d: zt.Sequential([d, d], name="net"))(L.Dense(2)),
    "a model in itself": lambda: (lambda m: m.add(zt.Sequential([m], name="outer")))(
        zt.Sequential([L.Dense(2)], name="net")),
    "built for another shape": lambda: row(L.Dense(2)).build((7,)),
    "a layer that is not there": lambda: row(L.Dense(2)).get_layer("dence"),
    "popping from an empty model": lambda: zt.Sequential(name="net").pop(),
    "a seed below zero": lambda: zt.Sequential(seed=-1),
    "weights of another model": lambda: row(L.Dense(2)).set_weights([rows(6, 3), rows(3)]),
    "too few weights": lambda: row(L.Dense(2)).set_weights([rows(6, 2)]),
    "weights that are nothing": lambda: row(L.Dense(2)).set_weights(
        None),
    "weights in words": lambda: row(L.Dense(2, use_bias=False)).set_weights(
        [np.full((6, 2), "much")]),
    "json of something else": lambda: zt.Sequential.from_json("{}"),
    "json of a layer without arguments": lambda: zt.Sequential.from_json(
        '{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}}'),
    "a lambda in json": lambda: row(L.Lambda(lambda x: x, name="mine")).to_json(),
    "a lambda that gives a number": lambda: row(L.Lambda(lambda x: 3.0)),
    "a lambda that sums the batch": lambda: row(L.Lambda(lambda x: zt.ops.sum(x))),
    "a lambda of numpy": lambda: row(L.Lambda(lambda x: np.maximum(x, 0.0), name="mine")),
    "a lambda of python's math": lambda: row(L.Lambda(lambda x: math.exp(x), name="mine")),
    "a lambda that asks": lambda: row(L.Lambda(lambda x: x if x > 0.0 else -x, name="mine")),
    "a lambda that walks": lambda: row(L.Lambda(lambda x: max(*x), name="mine")),
    "a lambda of methods": lambda: row(L.Lambda(lambda x: x.meen(axis=1), name="mine")),
    "a lambda of methods of none": lambda: row(L.Lambda(lambda x: x.numpy(), name="mine")),
    "a lambda of an unknown op": lambda: row(L.Lambda(lambda x: zt.ops.meen(x), name="mine")),
    "a lambda of two arguments": lambda: row(L.Lambda(lambda a, b: a + b, name="mine")),
    "a lambda that adds nothing": lambda: row(L.Lambda(lambda x: x + None, name="mine")),
    "an activation of numpy": lambda: row(L.Dense(3, activation=np.tanh, name="tanh")),
    "an activation that gives a number": lambda: row(L.Dense(
        3, activation=lambda x: 2.0, name="mine")),
    "a lambda that is a layer": lambda: L.Lambda(L.ReLU()),
    "a normalization of integers": lambda: zt.Sequential(
        [L.Input((4,), dtype="int32"), L.BatchNormalization()]).build(),
    "a layer that returns nothing": lambda: row(Silent()),
    "a layer without call": lambda: row(type("WithoutCall", (L.Layer,), {})()),
    "a layer with forward": lambda: row(
        type("WithForward", (L.Layer,), {"forward": lambda self, x: x})()),
    "a model with forward": type("ModelWithForward", (zt.Model,), {"forward": lambda self, x: x}),
    "a layer without units": lambda: L.Dense(),
    "a convolution without windows": lambda: L.Conv2D(3),
    "a symbolic tensor as a number": lambda: math.exp(L.Dense(1)(L.Input((3,)))),
    "a layer called on a number": lambda: L.Dense(3)(2.0),
    "a layer called on nothing": lambda: L.Dense(3)(),
    "a layer called on a layer": lambda: L.Dense(3)(L.Dense(4, name="before")),
}
