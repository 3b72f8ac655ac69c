"""Models without code of users are traced once: nothing in them follows from the size of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.layers.twin_cases import CASES, Case
from ztorch import layers as L
from ztorch import ops
from ztorch.graph.value import Graph
from ztorch.layers.context import Context, States
from ztorch.layers.real_positions import Padding
from ztorch.model.own_code import has_own_code
from ztorch.model.size_effects import SizeEffects

X = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def counted(x: Any, times: float = 1.0) -> Any:
    return x * (times * ops.shape(x)[0])


class Counting(zt.layers.Layer):
    def call(self, x: Any) -> Any:
        return counted(x)


class Count(zt.regularizers.Regularizer):
    def __call__(self, x: Any) -> Any:
        return ops.sum(counted(x))


def patched() -> zt.layers.Layer:
    layer = L.Dense(6, kernel_initializer="identity")
    call = layer.call
    layer.call = lambda x, context: counted(call(x, context))  # type: ignore[method-assign]
    return layer


WITH_OWN: dict[str, Callable[[], zt.layers.Layer]] = {
    "a class": Counting,
    "a function": lambda: L.Lambda(counted),
    "an activation": lambda: L.Activation(counted),
    "an activation of a layer": lambda: L.Dense(6, kernel_initializer="identity", activation=counted),
    "a class as activation": lambda: L.Dense(6, kernel_initializer="identity", activation=Counting()),
    "arguments beside": lambda: L.Activation(functools.partial(counted, times=1.0)),
    "inside of a layer": lambda: L.Parallel([L.Activation(counted)], merge="add"),
    "a nested model": lambda: zt.Sequential([L.Input((6,)), L.Residual(L.Identity()), L.Rescaling(0.5),
                                             L.Activation(counted)]),
    "a method of its own": patched}


@together()
@pytest.mark.parametrize("name", WITH_OWN)
def test_own_code_that_counts_rows_sees_no_padding(name: str) -> None:
    layer = WITH_OWN[name]()
    assert has_own_code([layer])
    model = zt.Sequential([L.Input((6,)), layer])
    model.compile(batch_size=8)
    np.testing.assert_allclose(model.predict(X), 3 * X, rtol=1e-6)


def test_ops_between_symbolic_tensors_that_count_rows_see_no_padding() -> None:
    x = L.Input((6,))
    model = zt.Model(x, x * ops.flip(ops.cumsum(ops.ones_like(x), axis=0), axis=0))
    assert has_own_code([model])
    model.compile(batch_size=8)
    np.testing.assert_allclose(model.predict(X), X * np.array([[3], [2], [1]], np.float32), rtol=1e-6)


def test_own_penalties_losses_and_metrics_are_noticed() -> None:
    assert has_own_code([L.Dense(2, activity_regularizer=Count())])
    assert has_own_code([zt.losses.get(lambda y, p: ops.mean(p) + y)])
    assert has_own_code([zt.metrics.MeanMetricWrapper(lambda y, p: ops.mean(p) + y)])
    assert not has_own_code([zt.losses.get("mse"), zt.metrics.MeanSquaredError(), None])
    assert not has_own_code([L.Dense(2, activation=zt.ops.relu, activity_regularizer="l2")])


@together()
@pytest.mark.parametrize("case", [case for case in CASES if case.layer not in ("Lambda", "Kernel")], ids=str)
def test_layers_of_the_package_do_not_count_rows(case: Case) -> None:
    model = zt.Sequential([L.Input(case.shape, dtype="int32" if case.ids else None), case.make()])
    model.build()
    assert not has_own_code([model])

    contexts = [Context(training=True, states=States(data=False, root=model.path),
                        padding=Padding({}, rows_vary=True)) for _ in range(2)]
    few, more = (Graph(model.called(model.leaves(rows), context)).nodes()
                 for rows, context in zip((4, 5), contexts, strict=True))
    counting = SizeEffects(4).first(few, more)
    assert counting is None or counting.layer in contexts[0].padding.layers_that_hide_rows


@pytest.mark.parametrize("name", ["mse", "binary_crossentropy", "kl_divergence", "huber", "cosine_similarity"])
def test_losses_of_the_package_do_not_count_rows(name: str) -> None:
    model = zt.Sequential([L.Input((6,)), L.Dense(6, activation="sigmoid")])
    model.compile(loss=name, metrics=["mae"], batch_size=8)
    y = np.abs(np.roll(X, 1)) / 4
    loss, error = model.evaluate(X, y, verbose=0)
    p = model.predict(X)
    np.testing.assert_allclose(loss, np.mean(zt.losses.get(name)(y, p)), rtol=1e-5)
    np.testing.assert_allclose(error, np.abs(y - p).mean(), rtol=1e-5)
    assert model.program.metadata.whole_batches == ()
