"""Models are copied and pickled with their weights; both are models of their own from then on."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def row() -> zt.Model:
    return zt.Sequential([L.Input((4,)), L.Dense(5), L.BatchNormalization(),
                          L.Residual(L.Dense(5)), L.Dense(3)], seed=5)


def several() -> zt.Model:
    x = L.Input((4,))
    shared = L.Dense(4)
    inner = zt.Sequential([L.Dense(2)])
    return zt.Model(x, [L.Dense(3)(shared(shared(x))), inner(x)], seed=7)


WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("make", [row, several])
def test_copies_are_equal_and_independent(make: Callable[[], zt.Model], built: bool, way: str) -> None:
    made = make()
    if built:
        made.set_weights([w + 0.5 for w in made.get_weights()])
        made.weights[0].trainable = False
    other = WAYS[way](made)
    assert type(other) is type(made) and other.get_config() == made.get_config()
    assert [w.trainable for w in other.weights] == [w.trainable for w in made.weights]
    before = made.get_weights()
    for a, b in zip(before, other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(_predicted(made), _predicted(other), strict=True):
        np.testing.assert_array_equal(a, b)
    other.set_weights([w * 0 for w in before])
    for a, b in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def _predicted(model: zt.Model) -> list[np.ndarray]:
    y = model.compile("cpu:scalar").predict(X)
    return y if isinstance(y, list) else [y]


def test_functions_are_copied_and_not_pickled() -> None:
    made = zt.Sequential([L.Input((4,)), L.Lambda(lambda x: x * 2.0, name="twice")])
    for way in (copy.copy, copy.deepcopy):
        np.testing.assert_array_equal(_predicted(way(made))[0], X * 2)
    with pytest.raises(ConfigError, match=r"'twice' is a Lambda.*subclass of Layer"):
        pickle.dumps(made)


def test_a_compiled_model_stores_its_weights_once() -> None:
    """In the program's own block, not in arrays as well."""
    def arrays() -> int:
        held = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
        return sum(trace.size for trace in held.traces)

    model, twin = (zt.Sequential([L.Input((512,)), L.Dense(1024)], seed=3) for _ in range(2))
    drawn = twin.get_weights()
    tracemalloc.start()
    try:
        model.compile("cpu", batch_size=1)
        assert arrays() < drawn[0].nbytes // 4
    finally:
        tracemalloc.stop()
    for mine, first in zip(model.get_weights(), drawn, strict=True):
        np.testing.assert_array_equal(mine, first)
