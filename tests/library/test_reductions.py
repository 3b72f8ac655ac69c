"""Reductions of the device library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.library.devices import Operand, close, library, sampled
from ztorch.errors import ConfigError, ShapeError

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


# -- reductions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["sum", "prod", "mean", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, -1, (0, 2), None])
def test_reduce(op: str, axis: Any) -> None:
    own, x = library("cpu"), normal(3, 4, 5)
    positions = op.startswith("arg")
    if positions and isinstance(axis, tuple):
        want = getattr(np, op)(x.transpose(1, 0, 2).reshape(4, 15), axis=1)
    else:
        want = getattr(np, op)(x.astype(float), axis=axis)
    source = Operand(own, x, (1, 20, 4), 2)
    result = Operand(own, np.zeros(want.shape, np.int32 if positions else np.float32),
                     None if want.ndim < 2 else (11, 2))
    own.reduce(op, source.tensor, result.tensor, axis)
    close(result.now(), want, terms=x.size)


@sampled
def test_reductions_on_each_device(name: str) -> None:
    own, x = library(name), normal(4, 6)
    source = Operand(own, x, (7, 1), 1)
    sums, places = Operand(own, np.zeros((1, 6), np.float32), (0, 2)), Operand(own, np.zeros(4, np.int32))
    own.reduce("sum", source.tensor, sums.tensor, 0)
    close(sums.now(), x.astype(float).sum(0, keepdims=True), terms=4)
    own.reduce("argmin", source.tensor, places.tensor)
    close(places.now(), x.argmin(1))
    own.softmax(source.tensor, source.tensor, axis=0)
    e = np.exp(x.astype(float))
    close(source.now(), e / e.sum(0), terms=4)


def test_reductions_of_nothing() -> None:
    own = library("cpu")
    none = own.alloc(0).tensor((0, 3))
    result = Operand(own, np.full(3, 7, np.float32))
    own.reduce("sum", none, result.tensor, 0)
    close(result.now(), np.zeros(3))
    own.reduce("prod", none, result.tensor, 0)
    close(result.now(), np.ones(3))
    with pytest.raises(ShapeError, match="there is no max of no elements"):
        own.reduce("max", none, result.tensor, 0)
    for routine in (lambda: own.unary("exp", none, none), lambda: own.softmax(none, none),
                    lambda: own.reduce("max", none, own.alloc(0).tensor((0,)), 1)):
        routine()  # and nothing happens
    with pytest.raises(ConfigError, match="y is float64"):  # only integers have a mean of another dtype
        own.reduce("mean", own.alloc(24).tensor((2, 3)), own.alloc(24).tensor((3,), "float64"), 0)
    with pytest.raises(ShapeError, match=r"y has shape \(2,\), and must have \(3,\) or \(1, 3\)"):
        own.reduce("sum", own.alloc(24).tensor((2, 3)), own.alloc(8).tensor((2,)), 0)
