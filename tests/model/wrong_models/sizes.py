"""Models whose sizes vary, and that would mix padding of sequences into their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ztorch as zt
from ztorch import layers as L


def sequence(*layers: Any, **options: Any) -> Any:
    """A model of (time, 4) that is compiled."""
    model = zt.Sequential([L.Input(("time", 4)), *layers], name="words")
    return model.compile("cpu", **{"sizes": (8, 16), **options})


def pair(join: Any, first: str = "source", second: str = "target") -> Any:
    """A model of two sequences."""
    a, b = L.Input((first, 4), name="a"), L.Input((second, 4), name="b")
    return zt.Model([a, b], join([a, b]), name="pair")


def never_alike() -> Any:
    """Half of a sequence, and all of it but its ends: as long where it has four steps."""
    x = L.Input(("time", 4))
    return zt.Model(x, L.Add()([L.MaxPooling1D(2)(x), L.Conv1D(4, 3)(x)])).trace(1, sizes=8)


def skip(*, sizes: Any = 8, rows: int = 8) -> Any:
    """A net that halves a picture twice, repeats it twice, and joins that with the picture."""
    x = L.Input(("height", 8, 4))
    low = L.MaxPooling2D(2)(L.MaxPooling2D(2)(x))
    model = zt.Model(x, L.Concatenate()([x, L.UpSampling2D(4)(low)]), name="skip")
    return model.compile("cpu:scalar", batch_size=1, sizes=sizes).predict(np.ones((1, rows, 8, 4)))


class OwnSum(L.Layer):
    def call(self, x: Any, context: Any) -> Any:
        return zt.ops.sum(x, axis=1)


CASES: dict[str, Callable[[], Any]] = {
    "no sizes": lambda: zt.Sequential([L.Input(("time", 4)), L.Dense(2)]).trace(2),
    "sizes of no axis": lambda: zt.Sequential([L.Input((4,)), L.Dense(2)]).compile("cpu", sizes=8),
    "sizes of another axis": lambda: sequence(L.Dense(2), sizes={"tine": 8}),
    "sizes that are not sizes": lambda: sequence(L.Dense(2), sizes={"time": (8, "x")}),
    "a size that is listed twice": lambda: sequence(L.Dense(2), sizes=(8, 8)),
    "sizes of one of two axes": lambda: pair(L.Add()).compile("cpu", sizes={"source": 8}),
    "sizes without names for two axes": lambda: pair(L.Add()).compile("cpu", sizes=(8, 16)),
    "two axes that are added": lambda: pair(L.Add()).compile("cpu", sizes={"source": 8,
                                                                           "target": 8}),
    "two axes that have no names": lambda: pair(L.Add(), None, None).compile("cpu", sizes=8),
    "an axis named batch": lambda: L.Input(("batch", 4)),
    "a name with a slash": lambda: L.Input(("a/b", 4)),
    "flattened": lambda: sequence(L.Flatten(), L.Dense(2)),
    "reshaped": lambda: sequence(L.Reshape((-1, 2))),
    "a window larger than any": lambda: sequence(L.MaxPooling1D(99)),
    "joined along time": lambda: pair(L.Concatenate(axis=1), "time", "time").compile("cpu",
                                                                                     sizes=8),
    "normalized over time": lambda: sequence(L.LayerNormalization(axis=(1, 2))),
    "sizes that are never alike": never_alike,
    "a skip around strides, compiled for no multiple": lambda: skip(sizes=(8, 10)),
    "a skip around strides, called with no multiple": lambda: skip(rows=6),
    "a position for each step": lambda: sequence(L.PositionEmbedding()),
    "backwards only": lambda: sequence(L.LSTM(3, go_backwards=True, return_sequences=True)),
    "groups over time": lambda: sequence(L.GroupNormalization(2)),
    "features of steps": lambda: sequence(L.Permute((2, 1)), L.Dense(3)),
    "a layer of one's own": lambda: sequence(OwnSum(name="mine")),
    "a function of one's own": lambda: sequence(L.Lambda(lambda x: x[:, -1], name="last")),
    "a loss that mixes steps": lambda: sequence(
        L.Dense(2), loss=lambda y, p: zt.ops.sum((y - p) * (y - p), axis=(1, 2))),
}
